#!/usr/bin/env bash
# setup.sh build|test: sees to it that the system packages are there which the build, or the tests too, need.
#
# It looks for the thing itself (a compiler, a library, a program), not for a package, and installs only what is missing, after
# saying what and why. Debian and Ubuntu: apt-get, as root or through sudo. Elsewhere it names what to install and stops.
# A missing build need ends with 1. A missing test need that cannot be installed is named and left: the tests that
# need it will be skipped, and listed as skipped.
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }
has() { PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1; }

# ---- what is looked for ---------------------------------------------------------------------------------------------

has_libc_headers() { [ -e /usr/include/stdlib.h ] && [ -e /usr/include/linux/videodev2.h ]; }

has_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] && return 0
  # Not libclang-cpp, which is another library.
  if compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null; then return 0; fi
  if compgen -G '/usr/lib/llvm-*/lib/libclang-[0-9]*.so*' >/dev/null; then return 0; fi
  PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null | grep -q 'libclang[-.0-9]*\.so'
}

has_chromium() { has chromium || has chromium-browser || has google-chrome; }
has_emoji() { [ -n "$(find /usr/share/fonts /usr/local/share/fonts -iname '*emoji*' -print -quit 2>/dev/null)" ]; }
has_wasi_libc() { [ -e /usr/lib/wasm32-wasi/libc.a ]; }
has_letters() { [ -n "$(find /usr/share/fonts /usr/local/share/fonts -iname '*sans*.[to]tf' -print -quit 2>/dev/null)" ]; }

# ---- what each thing is called, and why it is needed ------------------------------------------------------------------
# name | kind | why | apt | dnf | pacman | zypper        (apt "?" is asked of apt below)
THINGS='
cc|build|compiles the database and the cryptography, which are C inside|gcc libc6-dev|gcc|gcc|gcc
libc_headers|build|the C library and the kernel interface of cameras|libc6-dev|glibc-devel kernel-headers|glibc linux-api-headers|glibc-devel linux-glibc-devel
pkg-config|build|finds system libraries for the build|pkg-config|pkgconf-pkg-config|pkgconf|pkg-config
libclang|build|reads the camera interface of the kernel for the build|?|clang-libs|clang|libclang13
alsa|build|the interface of sound cards, for the build|libasound2-dev|alsa-lib-devel|alsa-lib|alsa-devel
chromium|test|a real browser looks at the device page|chromium|chromium|chromium|chromium
chromedriver|test|drives that browser|chromium-driver|chromedriver|chromium|chromedriver
espeak-ng|test|the voice of speaker.say|espeak-ng|espeak-ng|espeak-ng|espeak-ng
python-venv|test|a place for the recogniser that listens to that voice|python3 python3-venv|python3|python|python3
letters|test|letters for the browser|fonts-dejavu-core|dejavu-sans-fonts|ttf-dejavu|dejavu-fonts
emoji|test|emoji for the browser|fonts-noto-color-emoji|google-noto-color-emoji-fonts|noto-fonts-emoji|google-noto-coloremoji-fonts
qemu-system-x86_64|test|the virtual machine with cameras, an LED and sound cards|qemu-system-x86|qemu-system-x86-core|qemu-system-x86|qemu-x86
busybox|test|the few commands inside that machine|busybox-static|busybox|busybox|busybox-static
modprobe|test|knows which kernel modules the camera needs|kmod|kmod|kmod|kmod
cpio|test|packs the files of that machine|cpio|cpio|cpio|cpio
xz|test|unpacks its kernel|xz-utils|xz|xz|xz
clang|test|builds the examples of handlers that are written in C|clang|clang|clang|clang
wasm-ld|test|links them|lld|lld|lld|lld
wasi-libc|test|the C library of one of them|wasi-libc libclang-rt-dev-wasm32|wasi-libc-devel|wasi-libc wasi-compiler-rt|
'

present() { # present NAME
  case $1 in
    libc_headers) has_libc_headers ;;
    libclang) has_libclang ;;
    alsa) pkg-config --exists alsa 2>/dev/null ;;
    chromium) has_chromium ;;
    letters) has_letters ;;
    emoji) has_emoji ;;
    wasi-libc) has_wasi_libc ;;
    python-venv) python3 -c 'import ensurepip' 2>/dev/null ;;
    *) has "$1" ;;
  esac
}

wanted() { # wanted NAME KIND: is it needed for this call, on this machine?
  [ "$2" = build ] || [ "$MODE" = test ] || return 1
  case $1 in
    qemu-system-x86_64 | busybox | modprobe | cpio | xz) [ "$(uname -m)" = x86_64 ] ;;
    *) true ;;
  esac
}

# ---- apt ------------------------------------------------------------------------------------------------------------

candidate() { # candidate PACKAGE: has apt one that it could install?
  apt-cache policy "$1" 2>/dev/null | grep 'Candidate:' | grep -qv '(none)'
}

libclang_package() { # libclang1-N alone is enough, no compiler needed; the oldest is the one most tried
  local version
  for version in 14 15 16 17 18 19; do
    if candidate "libclang1-$version"; then echo "libclang1-$version"; return; fi
  done
  echo libclang1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] && return 0
  has sudo || return 1
  [ -t 0 ] || sudo -n true 2>/dev/null
}

apt_install() { # apt_install PACKAGE...
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "$@" >&2 </dev/null
}

install_by_apt() { # uses MISSING_BUILD and MISSING_TEST (names); leaves what could not be installed in the same
  say "fetching the list of packages (apt-get update)"
  as_root apt-get update -q -o DPkg::Lock::Timeout=300 >/dev/null </dev/null ||
    say "apt-get update failed; trying with the lists that are here"
  local kind name package
  local -a packages words
  for kind in build test; do
    packages=()
    for name in $(missing "$kind"); do
      if [ "$name" = chromium ] && ubuntu_snap; then continue; fi
      if [ "$name" = chromedriver ] && ubuntu_snap; then continue; fi
      package=$(field "$name" 4)
      [ "$package" != '?' ] || package=$(libclang_package)
      read -ra words <<<"$package"
      for package in "${words[@]}"; do
        if candidate "$package"; then packages+=("$package"); else say "apt has no $package, for $name"; fi
      done
    done
    [ ${#packages[@]} -gt 0 ] || continue
    say "installing: ${packages[*]}"
    apt_install "${packages[@]}" || say "apt-get could not install all of: ${packages[*]}"
  done
}

ubuntu_snap() { # Ubuntu's package of this name only fetches a snap, which a container or root cannot use
  grep -qs '^ID=ubuntu' /etc/os-release || return 1
  apt-cache policy chromium-browser chromium 2>/dev/null | grep -q snap
}

# ---- the list -------------------------------------------------------------------------------------------------------

field() { awk -F'|' -v name="$1" -v n="$2" '$1 == name { print $n }' <<<"$THINGS"; }

missing() { # missing KIND
  local name kind
  while IFS='|' read -r name kind _; do
    if [ -z "$name" ] || [ "$kind" != "$1" ]; then continue; fi
    if wanted "$name" "$kind" && ! present "$name"; then echo "$name"; fi
  done <<<"$THINGS"
}

explain() {
  local name
  for name in $(missing build) $(missing test); do say "missing: $name, $(field "$name" 3)"; done
}

name_for_others() {
  local column tool name list='' more
  if has dnf; then column=5 tool='dnf install'
  elif has pacman; then column=6 tool='pacman -S'
  elif has zypper; then column=7 tool='zypper install'
  else
    say 'this system has none of apt-get, dnf, pacman and zypper; install what is named above by the means it has'
    return
  fi
  for name in $(missing build) $(missing test); do
    for more in $(field "$name" "$column"); do
      case " $list " in *" $more "*) ;; *) list="$list $more" ;; esac
    done
  done
  say "please install them, then try again:  $tool$list"
}

check_rust() {
  PATH=$PATH:$HOME/.cargo/bin
  has cargo && return
  say 'Rust is missing. Install it as https://rustup.rs says, then try again.'
  exit 1
}

MODE=${1:-build}
case $MODE in build | test) ;; *) echo 'usage: setup.sh build|test' >&2; exit 2 ;; esac

check_rust
if [ -z "$(missing build)$(missing test)" ]; then exit 0; fi
explain
if ! has apt-get; then
  name_for_others
elif can_be_root; then
  install_by_apt
else
  say 'installing needs root: run this as root, or install sudo'
fi

for name in $(missing test); do
  if [ "$name" = chromium ] && ubuntu_snap; then
    say 'Ubuntu offers chromium only as a snap, which tests cannot drive; install Google Chrome and chromedriver, or the browser tests are skipped'
  fi
  say "still missing: $name; tests that need it will be skipped"
done
if [ -n "$(missing build)" ]; then
  for name in $(missing build); do say "still missing: $name, without which nothing can be built"; done
  exit 1
fi
