//! What the kernel itself says of captures and the time: each opening and last closing of a camera's handle, and of a sound card's, by
//! probes of its functions, and the time stamp of each frame that is handed out. All by the clock that LED events carry too.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

const TRACING: &str = "/sys/kernel/tracing";
/// The functions behind open and the last close of a camera, and of a sound card to hear with; the last close of one to play on is the same
/// function, so nothing is played while a test looks.
const PROBES: &str = "p:camera_opened v4l2_open\np:camera_closed v4l2_release\n\
                      p:sound_opened snd_pcm_capture_open\np:sound_closed snd_pcm_release\n";
/// Our own program, which sets the camera's controls.
const OURSELVES: &str = "vm_guest";

/// The kernel's clock that counts from its start.
pub(crate) fn now() -> Duration {
    duration(ClockId::Monotonic)
}

/// What a wall clock showed at a moment of the kernel's.
pub(crate) fn wall_ms(at: Duration) -> Result<i128> {
    let since = |time: Duration| i128::try_from(time.as_micros());
    Ok((since(duration(ClockId::Realtime))? - since(now())? + since(at)?).div_euclid(1000))
}

fn duration(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What the device did to its camera and its microphone, the first first.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) opened: Vec<Duration>,
    pub(crate) closed: Vec<Duration>,
    /// The time stamps of the frames that it took.
    pub(crate) frames: Vec<Duration>,
}

impl Seen {
    pub(crate) fn open_now(&self) -> usize {
        self.opened.len().saturating_sub(self.closed.len())
    }
}

/// The probes; they stay until the machine ends.
pub(crate) struct Kernel(());

impl Kernel {
    pub(crate) fn ask() -> Result<Self> {
        tell("trace_clock", "mono")?;
        tell("kprobe_events", PROBES)?;
        tell("events/kprobes/enable", "1")?;
        tell("events/v4l2/v4l2_dqbuf/enable", "1")?;
        Ok(Self(()))
    }

    /// Forgets what was.
    pub(crate) fn forget(&self) -> Result<()> {
        tell("trace", "")
    }

    pub(crate) fn seen(&self) -> Result<Seen> {
        let trace = fs::read_to_string(Path::new(TRACING).join("trace")).context("reading the trace")?;
        ensure!(!trace.contains("LOST"), "the kernel forgot events");
        Ok(of_trace(&trace))
    }
}

fn tell(file: &str, text: &str) -> Result<()> {
    fs::write(Path::new(TRACING).join(file), text).with_context(|| format!("writing {text:?} to {file}"))
}

fn of_trace(trace: &str) -> Seen {
    let mut seen = Seen::default();
    for line in trace.lines().filter(|line| !line.starts_with('#')) {
        let Some((head, tail)) = line.split_once(": ") else { continue };
        let Some((event, about)) = tail.split_once(':') else { continue };
        let Some(at) = head.split_whitespace().next_back().and_then(|at| at.parse().ok()) else { continue };
        if head.trim_start().starts_with(OURSELVES) {
            continue;
        }
        let at = Duration::from_secs_f64(at);
        match event {
            "camera_opened" | "sound_opened" => seen.opened.push(at),
            "camera_closed" | "sound_closed" => seen.closed.push(at),
            "v4l2_dqbuf" => seen.frames.extend(time_stamp(about)),
            _ => {}
        }
    }
    seen
}

fn time_stamp(about: &str) -> Option<Duration> {
    let (_, rest) = about.split_once("timestamp = ")?;
    rest.split(',').next()?.trim().parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_closings_and_frames_of_the_device_are_told_from_our_own() {
        let trace = "# tracer: nop\n#\n\
            \x20       vm_guest-101     [000] .....     1.500000: camera_opened: (v4l2_open+0x0/0xf0 [videodev])\n\
            \x20         camera-123     [001] .....     3.973778: camera_opened: (v4l2_open+0x0/0xf0 [videodev])\n\
            \x20         camera-123     [001] .....     4.100000: v4l2_dqbuf: minor = 0, index = 1, type = VIDEO_CAPTURE, bytesused = 7, flags = 0x2001, field = NONE, timestamp = 4050000000, timecode = { type = 0x0 }\n\
            \x20       my-proc:-123     [001] d..1.     5.005857: camera_closed: (v4l2_release+0x0/0xd0 [videodev])\n\
            \x20       vm_guest-101     [000] .....     6.000000: camera_closed: (v4l2_release+0x0/0xd0 [videodev])\n";
        let seen = of_trace(trace);
        let rows = [(&seen.opened, 3_973_778), (&seen.frames, 4_050_000), (&seen.closed, 5_005_857)];
        for (found, micros) in rows {
            assert_eq!(found.iter().map(Duration::as_micros).collect::<Vec<_>>(), [micros]);
        }
        assert_eq!(seen.open_now(), 0);
    }
}
