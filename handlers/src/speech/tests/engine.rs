//! `SpeechEngine` over small programs that stand for engines. Each is a line for `/bin/sh`, which gets `$SOUND` and `$ROOM` as paths.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::wav;
use crate::clock::{Clock as _, SystemClock};
use crate::speech::{EngineChoice, EngineLimits, Speech as _, SpeechEngine, SpeechFault, Spoken};

/// Far more than anything here needs on a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// A folder with a sound in it, for one engine.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        let room = Self(tempfile::tempdir().unwrap());
        fs::write(room.file("sound"), wav(1)).unwrap();
        room
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8(fs::read(self.file(name)).unwrap()).unwrap()
    }

    fn engine(&self, line: &str, whole: Duration) -> SpeechEngine {
        let room = self.0.path().display();
        let line = format!("ROOM={room}; SOUND={room}/sound; {line}");
        let arguments = ["-c", &line, "engine", "--fixed"].map(str::to_owned).to_vec();
        SpeechEngine::new(EngineChoice::Command { program: "/bin/sh".to_owned(), arguments }, EngineLimits { whole })
    }

    async fn speak(&self, line: &str, text: &str) -> Result<Spoken, SpeechFault> {
        self.engine(line, SOON).speak(text, CancellationToken::new()).await
    }

    /// The process whose number an engine left in this file.
    fn process(&self, name: &str) -> PathBuf {
        let found = until("a number", || fs::read_to_string(self.file(name)).ok().filter(|text| text.ends_with('\n')));
        Path::new("/proc").join(found.trim())
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = SystemClock.boot();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(SystemClock.boot().since(began) < SOON, "{what}: not within {SOON:?}");
        std::thread::yield_now();
    }
}

/// Ended and reaped: a process that nobody waited for still has its folder.
fn gone(process: &Path) {
    until("the process to be gone", || (!process.exists()).then_some(()));
}

/// T1.
#[tokio::test]
async fn t1_text_that_looks_like_options_is_never_an_argument() {
    const RECORDER: &str = "tr '\\0' '\\n' </proc/$$/cmdline | tail -n +4 >$ROOM/argv; cat >$ROOM/stdin; cat $SOUND";
    let room = Room::new();
    let pwned = room.file("pwn.wav");
    let option = format!("-w{} hello", pwned.display());
    for text in
        [option.as_str(), "--version", "-f /etc/passwd", "- milk", "$(touch $ROOM/pwn.wav) `id` ; & | > x", "-m", ""]
    {
        let spoken = room.speak(RECORDER, text).await.unwrap();
        assert_eq!(spoken.pcm.duration(), Duration::from_secs(1));
        assert_eq!(room.read("argv"), "engine\n--fixed\n", "{text}");
        assert_eq!(room.read("stdin"), format!("{text}\n"));
    }
    assert!(!pwned.exists());
}

/// T2, T6: whatever an engine dies of, the error says it, and the next text is spoken.
#[tokio::test]
async fn t6_an_engine_that_aborts_on_an_ordinary_word_is_an_error_and_the_next_text_is_spoken() {
    const STUB: &str =
        "read -r text; case $text in *buttons*) kill -ABRT $$;; *leaks*) kill -SEGV $$;; esac; cat $SOUND";
    let room = Room::new();
    for (text, how) in
        [("press the buttons now", "crashed: it aborted (signal 6)"), ("it leaks", "crashed: it died of signal 11")]
    {
        let ended = room.speak(STUB, text).await;
        let wanted = SpeechFault::Ended { engine: "sh".to_owned(), how: how.to_owned(), said: String::new() };
        assert_eq!(ended, Err(wanted));
        assert_eq!(room.speak(STUB, "press the keys now").await.unwrap().pcm.duration(), Duration::from_secs(1));
    }
}

#[tokio::test]
async fn each_way_in_which_an_engine_fails_has_its_own_sentence() {
    let rows = [
        (
            "echo 'no voice' >&2; echo >&2; printf 'of this name\\033[2J' >&2; exit 3",
            "the speech engine sh ended with code 3; it says: no voice; of this name\\u{1b}[2J",
        ),
        ("true", "the speech engine sh gave no sound that can be played: it is empty"),
        (
            "echo '<html>'",
            "the speech engine sh gave no sound that can be played: it is not WAV; it begins with \"<html>\\n\"",
        ),
        ("head -c 30 $SOUND", "the speech engine sh gave no sound that can be played: it ends inside its header"),
        ("cat $SOUND; exit 1", "the speech engine sh ended with code 1"),
        ("exec /nonexistent/engine 2>/dev/null", "the speech engine sh ended with code 127"),
    ];
    let room = Room::new();
    for (line, sentence) in rows {
        let said = room.speak(line, "hello").await.map(|_| ()).unwrap_err().to_string();
        // Shells differ in the code for a program that is not there.
        assert_eq!(said.replace("code 126", "code 127"), sentence, "{line}");
    }
    let complains = room.speak("while echo 'mbrola: bad pitch' >&2; do :; done & sleep 0.2; exit 1", "x").await;
    let Err(SpeechFault::Ended { said, .. }) = complains else { panic!("{complains:?}") };
    assert!(said.starts_with("mbrola: bad pitch; mbrola") && said.len() <= 700, "{} bytes", said.len());
}

#[tokio::test]
async fn complaints_without_end_do_not_hold_up_the_sound() {
    let room = Room::new();
    let spoken = room.speak("while echo complaint >&2; do :; done & cat $SOUND", "x").await.unwrap();
    assert_eq!(spoken.pcm.duration(), Duration::from_secs(1));
}

/// T4.
#[tokio::test]
async fn t4_sound_without_end_is_cut_at_a_minute_and_said_to_be() {
    let room = Room::new();
    let began = SystemClock.boot();
    let spoken = room.speak("echo $$ >$ROOM/pid; cat $SOUND; while cat $SOUND; do :; done", "x").await.unwrap();
    assert_eq!((spoken.pcm.duration(), spoken.cut), (Duration::from_secs(60), true));
    assert!(SystemClock.boot().since(began) < SOON);
    gone(&room.process("pid"));
    let control = room.speak("cat $SOUND", "x").await.unwrap();
    assert!(!control.cut);
}

/// T3.
#[tokio::test]
async fn t3_an_engine_that_hangs_is_ended_in_time_also_when_it_ignores_signals_or_has_closed_its_pipes() {
    let limit = Duration::from_millis(700);
    let hanging = [
        "trap '' TERM INT HUP; echo $$ >$ROOM/pid; echo stuck >&2; while :; do sleep 100; done",
        "echo $$ >$ROOM/pid; echo stuck >&2; exec >&- 2>&- <&-; sleep 100",
        "echo $$ >$ROOM/pid; echo stuck >&2; head -c 100 $SOUND; sleep 100",
    ];
    for line in hanging {
        let room = Room::new();
        let ended = room.engine(line, limit).speak("x", CancellationToken::new()).await;
        let wanted = SpeechFault::Slow { engine: "sh".to_owned(), seconds: 0, said: "stuck".to_owned() };
        assert_eq!(ended, Err(wanted), "{line}");
        gone(&room.process("pid"));
    }
}

#[tokio::test]
async fn what_an_engine_started_dies_with_it_and_does_not_hold_up_the_sound() {
    let room = Room::new();
    let began = SystemClock.boot();
    let spoken = room.speak("sleep 300 & echo $! >$ROOM/grandchild; cat $SOUND", "x").await.unwrap();
    assert_eq!(spoken.pcm.duration(), Duration::from_secs(1));
    assert!(SystemClock.boot().since(began) < SOON);
    gone(&room.process("grandchild"));
}

/// With and without the program that would take it out of its engine's process group.
#[tokio::test]
async fn what_an_engine_started_cannot_leave_its_group_and_outlive_it() {
    let control = Command::new("setsid").arg("true").status().unwrap();
    assert!(control.success(), "outside an engine it does what it is for");
    for away in ["", "setsid", "setsid --fork --wait", "bash -mc '\"$@\" & wait' -"] {
        let room = Room::new();
        // Waits for the first that is known: it runs, or what would have started it ended with an error.
        let line = format!(
            "{{ {away} sh -c 'echo $$ >'$ROOM'/away; sleep 300' || echo refused >$ROOM/away; }} & cat $SOUND; \
             while ! [ -s $ROOM/away ]; do sleep 0.05; done"
        );
        let spoken = room.speak(&line, "x").await.unwrap();
        assert_eq!(spoken.pcm.duration(), Duration::from_secs(1), "{away}");
        let refused = room.read("away") == "refused\n";
        assert_eq!(refused, away.starts_with("setsid"), "{away}: refused before it runs anything");
        if !refused {
            gone(&room.process("away"));
        }
    }
}

#[tokio::test]
async fn a_header_that_tells_its_length_ends_the_sound_although_the_engine_lingers() {
    let room = Room::new();
    let mut honest = wav(1);
    honest[40..44].copy_from_slice(&16_000_u32.to_le_bytes());
    fs::write(room.file("honest"), honest).unwrap();
    let began = SystemClock.boot();
    let spoken = room.speak("echo $$ >$ROOM/pid; cat $ROOM/honest; sleep 300", "x").await.unwrap();
    assert_eq!((spoken.pcm.duration(), spoken.cut), (Duration::from_secs(1), false));
    assert!(SystemClock.boot().since(began) < SOON);
    gone(&room.process("pid"));
}

#[tokio::test]
async fn a_stop_and_a_caller_who_goes_away_end_the_engine() {
    const HANGS: &str = "echo $$ >$ROOM/pid; sleep 300";
    let room = Room::new();
    let stop = CancellationToken::new();
    let speaking = room.engine(HANGS, SOON).speak("x", stop.clone());
    let stopper = async {
        let process = room.process("pid");
        assert!(process.exists());
        stop.cancel();
        process
    };
    let (ended, process) = tokio::join!(speaking, stopper);
    assert_eq!(ended, Err(SpeechFault::Stopped));
    gone(&process);
    let room = Room::new();
    let mut speaking = room.engine(HANGS, SOON).speak("x", CancellationToken::new());
    // Begun, and then dropped.
    assert!(futures_util::FutureExt::now_or_never(&mut speaking).is_none());
    let process = room.process("pid");
    assert!(process.exists());
    drop(speaking);
    gone(&process);
}

#[tokio::test]
async fn an_engine_inherits_its_three_pipes_and_nothing_of_ours() {
    const LOOK: &str =
        "for fd in /proc/$$/fd/*; do [ -L $fd ] && all=\"$all${fd##*/} \"; done; echo $all >$ROOM/fds; cat $SOUND";
    let room = Room::new();
    // As a library opens a camera: without the mark that closes it.
    let held = rustix::fs::open(room.file("sound"), rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::empty()).unwrap();
    room.speak(LOOK, "x").await.unwrap();
    assert_eq!(room.read("fds"), "0 1 2\n");
    // The control: a child that is started as any other has both.
    let plain = Command::new("/bin/sh").args(["-c", "ls /proc/$$/fd"]).output().unwrap();
    let inherited: Vec<i32> =
        String::from_utf8(plain.stdout).unwrap().lines().map(|number| number.parse().unwrap()).collect();
    assert!(inherited.contains(&held.as_raw_fd()) && inherited.contains(&socket.as_raw_fd()), "{inherited:?}");
}

#[tokio::test]
async fn an_engine_has_limits_from_its_first_moment_and_an_environment_of_three_words() {
    const LOOK: &str = "cat /proc/$$/limits /proc/$$/status >$ROOM/limits; tr '\\0' '\\n' </proc/$$/environ >$ROOM/env; \
                        readlink /proc/$$/cwd >$ROOM/cwd; cut -d' ' -f5 /proc/$$/stat >$ROOM/group; echo $$ >$ROOM/pid; cat $SOUND";
    let room = Room::new();
    room.speak(LOOK, "x").await.unwrap();
    let limits = room.read("limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").filter(|word| !word.trim().is_empty()).nth(2).unwrap().trim().to_owned()
    };
    assert_eq!(limit("Max data size"), (2_u64 << 30).to_string());
    assert_eq!(limit("Max cpu time"), "120");
    assert_eq!(limit("Max file size"), (64 << 20).to_string());
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max open files"), "256");
    assert!(limits.contains("NoNewPrivs:\t1"));
    assert_eq!(room.read("env"), "HOME=/nonexistent\nLANG=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\n");
    assert_eq!(room.read("cwd"), "/\n");
    assert_eq!(room.read("group"), room.read("pid"));
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_missing_in_words_and_nothing_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    fs::write(&file, "no program").unwrap();
    let (file, dir) = (file.display().to_string(), folder.path().display().to_string());
    let rows = [
        (
            "/nowhere/piper",
            "there is no speech engine: /nowhere/piper of speech.command is not a program that we may run".to_owned(),
        ),
        (&file, format!("there is no speech engine: {file} of speech.command is not a program that we may run")),
        (&dir, format!("there is no speech engine: {dir} of speech.command is not a program that we may run")),
        (
            "no-such-engine",
            "there is no speech engine: no-such-engine of speech.command is in none of /usr/local/bin, /usr/bin, /bin"
                .to_owned(),
        ),
    ];
    for (program, sentence) in rows {
        let choice = EngineChoice::Command { program: program.to_owned(), arguments: Vec::new() };
        let engine = SpeechEngine::new(choice, EngineLimits::default());
        let missing = SpeechFault::Missing(sentence);
        assert_eq!(engine.ready(), Err(missing.clone()));
        assert_eq!(engine.speak("x", CancellationToken::new()).await, Err(missing));
    }
    let sh = EngineChoice::Command { program: "sh".to_owned(), arguments: Vec::new() };
    assert_eq!(SpeechEngine::new(sh, EngineLimits::default()).ready(), Ok(()));
    // A file that only says it is a program: the system refuses it, which is another sentence.
    let broken = folder.path().join("broken");
    fs::write(&broken, "#!/nowhere/interpreter\n").unwrap();
    fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let choice = EngineChoice::Command { program: broken.display().to_string(), arguments: Vec::new() };
    let ended = SpeechEngine::new(choice, EngineLimits::default()).speak("x", CancellationToken::new()).await;
    assert!(matches!(&ended, Err(SpeechFault::Unstarted { engine, .. }) if engine == "broken"), "{ended:?}");
}
