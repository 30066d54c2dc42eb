#!/usr/bin/env bash
# vm.sh [OPTIONS] -- PROGRAM [ARGUMENT...]
#
# Starts a throw-away virtual machine with Debian's stock kernel, runs PROGRAM in it as root, prints what it prints, and ends with
# its exit code. The machine is an archive in memory: the programs and files named here with the libraries they need, busybox, and the
# kernel modules asked for. It sees nothing of this computer, has no network but loopback, and leaves nothing behind.
#
#   --put HOST GUEST       a file or folder of this computer, and where it lies in the machine; a program brings its libraries along
#   --module 'NAME PARAM…' a kernel module to load, with what it depends on (repeatable, in order)
#   --timeout S            stop after so many seconds                                     (default 180)
#   --memory MIB           memory of the machine                                          (default 1024)
#   --console FILE         keep what the kernel says here
#   --fetch                only see to it that the kernel is there
#
# Exit codes besides PROGRAM's own: 77 this computer cannot do it, the last line says why; 124 out of time; 125 the machine did not start
# or died. The kernel (a 70 MB package) is kept in LATCHKEY_VM_CACHE, by default ~/.cache/latchkey-vm.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

CACHE=${LATCHKEY_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/latchkey-vm}
# The only parts of the module tree that a camera, an LED and their kind need, so that the cache stays near 130 MB.
KEPT_MODULES='kernel/drivers/media kernel/drivers/input kernel/drivers/leds kernel/drivers/video kernel/drivers/gpio kernel/drivers/hid '\
'kernel/drivers/usb/core kernel/drivers/usb/common kernel/drivers/usb/usbip kernel/sound kernel/lib'
WAIT_FOR_OTHERS_S=600 # another run may be fetching the kernel over a slow line

note() { printf 'vm: %s\n' "$*" >&2; }
cannot() { note "$*"; exit 77; }
broken() { note "$*"; exit 125; }

# ---- the call -------------------------------------------------------------------------------------------------------

PUTS=() MODULES=() TIMEOUT_S=180 MEMORY_MIB=1024 CONSOLE='' FETCH_ONLY=0
while [ $# -gt 0 ]; do
  case $1 in
    --put) PUTS+=("$2" "$3"); shift 3 ;;
    --module) MODULES+=("$2"); shift 2 ;;
    --timeout) TIMEOUT_S=$2; shift 2 ;;
    --memory) MEMORY_MIB=$2; shift 2 ;;
    --console) CONSOLE=$2; shift 2 ;;
    --fetch) FETCH_ONLY=1; shift ;;
    --) shift; break ;;
    *) note "unknown option $1"; exit 2 ;;
  esac
done
if [ $# = 0 ] && [ $FETCH_ONLY = 0 ]; then note 'no program given'; exit 2; fi

[ "$(uname -m)" = x86_64 ] || cannot "made for x86_64 machines; this one is $(uname -m)"
for tool in qemu-system-x86_64 busybox modprobe depmod cpio xz; do
  command -v "$tool" >/dev/null || cannot "$tool is missing (scripts/setup.sh test installs it)"
done
if ldd "$(command -v busybox)" >/dev/null 2>&1; then cannot 'busybox here needs libraries; the package busybox-static is what serves'; fi

# ---- the kernel, fetched once -----------------------------------------------------------------------------------------

apt_as_is() { # root has to say that it downloads as root, or apt warns about the folder
  if [ "$(id -u)" = 0 ]; then apt-get -o APT::Sandbox::User=root "$@"; else apt-get "$@"; fi
}

kernel_package() { # what Debian's "the current stock kernel" stands for just now
  apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }'
}

fetch_package() { # into CACHE/download, checked against the hash in apt's lists
  command -v apt-get >/dev/null || cannot "the kernel comes from Debian's archive, and this system has no apt-get"
  local package attempt
  package=$(kernel_package)
  if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then
    note 'apt has no lists yet; fetching them'
    apt-get update -q >/dev/null 2>&1 || true
    package=$(kernel_package)
  fi
  [ -n "$package" ] || cannot "apt knows no linux-image-amd64, Debian's stock kernel (on Debian: apt-get update)"
  mkdir -p download
  for attempt in 1 2 3; do
    note "fetching $package, about 70 MB, once (attempt $attempt of 3)"
    if fetch_by_curl "$package" || fetch_by_apt "$package"; then touch download/complete; return; fi
  done
  cannot "$package could not be downloaded; is the network there?"
}

fetch_by_curl() { # goes on where an earlier download was cut off, which apt does not
  command -v curl >/dev/null || return 1
  local address name size hash
  read -r address name size hash < <(apt_as_is download --print-uris "$1" 2>/dev/null | grep '^.http' | tr -d "'")
  if [ -z "${hash:-}" ] || [ "${hash%%:*}" != SHA256 ]; then return 1; fi
  with_progress "$size" curl --fail --location --silent --show-error --continue-at - --connect-timeout 20 \
    --output "download/$name.part" "$address" || return 1
  if [ "$(sha256sum <"download/$name.part" | cut -d' ' -f1)" != "${hash#SHA256:}" ]; then
    note 'what came is not what the list says; it is thrown away'
    rm -f "download/$name.part"
    return 1
  fi
  mv "download/$name.part" "download/$name"
}

fetch_by_apt() { # knows proxies, mirrors and passwords that curl does not, and checks the hash itself
  (cd download && with_progress 70000000 apt_as_is -q download "$1")
}

with_progress() { # with_progress BYTES COMMAND...: says every five seconds how far the download is
  local bytes=$1 waited=0 command
  shift
  "$@" >"$CACHE/download.log" 2>&1 &
  command=$!
  while kill -0 "$command" 2>/dev/null; do
    sleep 1
    waited=$((waited + 1))
    [ $((waited % 5)) != 0 ] || note "  $(($(du -sk "$CACHE/download" | cut -f1) / 1000)) of $((bytes / 1000000)) MB"
  done
  wait "$command" || { sed 's/^/    /' "$CACHE/download.log" >&2; return 1; }
}

unpack_package() { # from download/*.deb: boot/ and the kept modules, in one step
  local deb folder folders=()
  deb=$(printf '%s\n' download/*.deb | sort -V | tail -n 1)
  if ! dpkg-deb --info "$deb" >/dev/null 2>&1; then
    rm -rf download
    cannot "${deb##*/} was damaged and is deleted; try again"
  fi
  note "unpacking ${deb##*/}"
  rm -rf new && mkdir new
  for folder in $KEPT_MODULES; do folders+=("./lib/modules/*/$folder"); done
  dpkg-deb --fsys-tarfile "$deb" |
    tar -x -C new --wildcards './boot/vmlinuz-*' './lib/modules/*/modules.*' "${folders[@]}"
  KERNEL_VERSION=$(basename new/boot/vmlinuz-*) KERNEL_VERSION=${KERNEL_VERSION#vmlinuz-}
  depmod -b new "$KERNEL_VERSION" 2>/dev/null
  bare_kernel "new/boot/vmlinuz-$KERNEL_VERSION" new/vmlinux
  echo "$KEPT_MODULES" >new/kept
  rm -rf kernel && mv new kernel
  rm -rf download
}

# The image carries the kernel compressed, and says in its header where. Unpacking it here once saves the emulated
# processor ten seconds at each start.
bare_kernel() { # bare_kernel IMAGE OUT
  number() { od -An -v -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '; }
  local sectors offset length
  sectors=$(number "$1" $((0x1f1)) 1)
  offset=$(number "$1" $((0x248)) 4)
  length=$(number "$1" $((0x24c)) 4)
  tail -c "+$(((sectors + 1) * 512 + offset + 1))" "$1" | head -c "$length" >"$2.packed" || true
  xz -dcq --single-stream <"$2.packed" >"$2" 2>/dev/null || true # four bytes of size follow the stream
  rm -f "$2.packed"
  if [ "$(head -c 4 "$2" | tail -c 3)" != ELF ]; then
    note 'the kernel is packed in a way unknown here; it will unpack itself, slowly'
    cp "$1" "$2"
  fi
}

mkdir -p "$CACHE"
cd_back=$PWD
cd "$CACHE"
exec 9>lock
flock -w "$WAIT_FOR_OTHERS_S" 9 || cannot "another run holds $CACHE/lock"
# What an earlier version of this script kept may lack a module that this one needs.
if [ ! -e kernel/vmlinux ] || [ "$(cat kernel/kept 2>/dev/null)" != "$KEPT_MODULES" ]; then
  [ -e download/complete ] || fetch_package
  unpack_package
fi
exec 9>&-
KERNEL=$CACHE/kernel
KERNEL_VERSION=$(basename "$KERNEL"/boot/vmlinuz-*) KERNEL_VERSION=${KERNEL_VERSION#vmlinuz-}
cd "$cd_back"
if [ $FETCH_ONLY = 1 ]; then note "Debian's kernel $KERNEL_VERSION is in $CACHE"; exit 0; fi

# ---- the archive ------------------------------------------------------------------------------------------------------

WORK=$(mktemp -d "${TMPDIR:-/tmp}/latchkey-vm.XXXXXX")
QEMU=''
# shellcheck disable=SC2317 # called by the trap
tidy() {
  if [ -n "$QEMU" ]; then kill "$QEMU" 2>/dev/null || true; wait "$QEMU" 2>/dev/null || true; fi
  if [ -n "$CONSOLE" ] && [ -e "$WORK/console" ]; then cp "$WORK/console" "$CONSOLE"; fi
  rm -rf "$WORK"
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
TREE=$WORK/tree
mkdir -p "$TREE"/{bin,dev,etc,lib/modules,proc,root,run,sys,tmp}

put_library() { # where the loader will look for it: under the same path as here
  [ -e "$TREE$1" ] || install -D "$(realpath "$1")" "$TREE$1"
}

put() { # put HOST GUEST; a program loses its debug information, which is most of its size
  if [ -d "$1" ]; then
    mkdir -p "$TREE$2"
    cp -rL "$1/." "$TREE$2/"
    return
  fi
  install -D "$1" "$TREE$2"
  if [ -x "$1" ] && command -v strip >/dev/null; then strip --strip-debug "$TREE$2" 2>/dev/null || true; fi
  local library
  for library in $( { ldd "$1" 2>/dev/null || true; } | grep -oE '(^|[[:space:]])/[^ ]+' ); do put_library "$library"; done
}

put "$(command -v busybox)" /bin/busybox
for ((i = 0; i < ${#PUTS[@]}; i += 2)); do put "${PUTS[i]}" "${PUTS[i + 1]}"; done
echo 'root:x:0:0:root:/root:/bin/sh' >"$TREE/etc/passwd"
printf 'root:x:0:\naudio:x:29:\n' >"$TREE/etc/group" # alsa-lib asks for audio
echo '127.0.0.1 localhost' >"$TREE/etc/hosts"

# One line for each module file, in the order in which they can be loaded. Only the one asked for gets the parameters.
for module in "${MODULES[@]}"; do
  read -r name parameters <<<"$module"
  order=$(modprobe -d "$KERNEL" -S "$KERNEL_VERSION" --show-depends "$name" 2>&1) || broken "the kernel has no module $name: $order"
  while read -r verb file _; do
    [ "$verb" = insmod ] || continue
    base=${file##*/}
    [ -e "$TREE/lib/modules/$base" ] && continue
    cp "$file" "$TREE/lib/modules/"
    given=''
    [ "${base%%.ko*}" != "${name//-/_}" ] && [ "${base%%.ko*}" != "$name" ] || given=$parameters
    printf '%s %s\n' "$base" "$given" >>"$TREE/lib/modules/order"
  done <<<"$order"
done

{
  cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tracefs tracefs /sys/kernel/tracing
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
ip link set lo up
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
end() { echo "ended $1" >/dev/ttyS2; poweroff -f; }
if [ -e /lib/modules/order ]; then
  while read -r file parameters; do
    insmod /lib/modules/$file $parameters || { echo "vm: cannot load $file" >/dev/ttyS1; end 125; }
  done </lib/modules/order
fi
cd /root
INIT
  printf '(exec'
  printf ' %q' "$@"
  printf ') </dev/null >/dev/ttyS1 2>&1\nend $?\n'
} >"$TREE/init"
chmod +x "$TREE/init"
(cd "$TREE" && find . | cpio --create --format=newc --owner=0:0 --quiet) >"$WORK/archive"

# ---- the machine ------------------------------------------------------------------------------------------------------

# /dev/kvm alone proves nothing: nested kinds of it cannot run a stock kernel. The processor's own flag does.
if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
  SPEED=(-accel kvm -cpu host)
else
  SPEED=(-accel 'tcg,thread=multi' -cpu max)
fi
PROCESSORS=$(nproc)
[ "$PROCESSORS" -le 2 ] || PROCESSORS=2

: >"$WORK/console"
: >"$WORK/result"
# Three serial lines, which the stock kernel drives without a module: its own messages, the program's output, the result.
timeout --kill-after=5 "$TIMEOUT_S" qemu-system-x86_64 \
  -machine q35,usb=off "${SPEED[@]}" -smp "$PROCESSORS" -m "$MEMORY_MIB" \
  -nodefaults -no-user-config -display none -nic none -no-reboot \
  -kernel "$KERNEL/vmlinux" -initrd "$WORK/archive" \
  -append 'console=ttyS0 loglevel=5 panic=-1 mitigations=off no_timer_check random.trust_cpu=on 8250.nr_uarts=4' \
  -serial "file:$WORK/console" -chardev stdio,id=output,signal=off -serial chardev:output -serial "file:$WORK/result" \
  </dev/null 2>"$WORK/qemu" &
QEMU=$!
ended=0
wait "$QEMU" || ended=$?
QEMU=''

code=$(sed -n 's/^ended \([0-9]*\).*/\1/p' "$WORK/result")
if [ -n "$code" ]; then exit "$code"; fi
if [ "$ended" = 124 ] || [ "$ended" = 137 ]; then note "stopped after $TIMEOUT_S s"; tail -n 5 "$WORK/console" >&2; exit 124; fi
cat "$WORK/qemu" >&2
tail -n 20 "$WORK/console" >&2
broken 'the machine ended without a result'
