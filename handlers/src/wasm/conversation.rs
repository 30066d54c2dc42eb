//! One call, as it is spoken over the pipes.
//!
//! Owns nothing: it speaks for `handler` with a process that may be broken or hostile. Anything but the frames of this call, in their
//! order, ends the process. A process that is told to stop and does not is ended too.

use std::time::Duration;

use tokio::time::Instant;

use super::children::Running;
use super::frame::{CallFrame, Done, FROM_CHILD_BYTES_MAX, FrameError, FromChild, ToChild};
use super::requests::Requests;
use super::spawn::Life;

/// How long a process may take to give up a call that is not wanted any more. Past it, it hangs in the system or in itself.
pub(crate) const GRACE: Duration = Duration::from_millis(200);
/// How long the end of a process is awaited to say how it ended; its pipe is closed already.
const END_MAX: Duration = Duration::from_secs(1);
/// Requests of a call that ended which may cross its end on their way: as many as five calls may send.
const LATE_MAX: u32 = 80;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Close {
    /// With its last frame. The process goes on.
    Done(Done),
    /// It was stopped, and the process obeyed and goes on.
    Stopped(Done),
    /// It was stopped, and the process did not obey.
    WouldNotStop,
    /// The process died or broke the order, as said here.
    Lost(String),
}

/// Speaks one call until its end. Dropping it leaves the process in the middle: it is then to be ended.
pub(crate) async fn converse(
    child: &mut Running,
    arguments: Vec<u8>,
    deadline: Instant,
    mut requests: Requests,
    stop: impl Future<Output = ()>,
) -> Close {
    child.calls = child.calls.saturating_add(1);
    let number = child.calls;
    let within = deadline.saturating_duration_since(Instant::now());
    let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX).max(1);
    if let Err(error) = child.line.say(&ToChild::Call(CallFrame { number, arguments, within_ms })) {
        return lost(child, error).await;
    }
    tokio::pin!(stop);
    let mut grace: Option<Instant> = None;
    let mut late = 0_u32;
    loop {
        let heard = tokio::select! {
            biased;
            () = &mut stop, if grace.is_none() => {
                grace = Some(Instant::now() + GRACE);
                requests.abandon();
                child.line.say(&ToChild::Cancel { number }).map(|()| None)
            }
            () = until(grace) => return Close::WouldNotStop,
            (number, answer) = requests.answered() => child.line.say(&ToChild::Http { number, answer }).map(|()| None),
            heard = child.line.hear::<FromChild>(FROM_CHILD_BYTES_MAX) => heard.map(Some),
        };
        match heard {
            Ok(None) => {}
            Ok(Some(FromChild::Done(done))) if done.number == number => {
                return if grace.is_some() { Close::Stopped(done) } else { Close::Done(done) };
            }
            // What it asked for a call that ended crossed that end on its way.
            Ok(Some(FromChild::Http { call, .. })) if call < number || grace.is_some() => {
                late = late.saturating_add(1);
                if late > LATE_MAX {
                    return Close::Lost("its process asks for requests of calls that are over, without end".to_owned());
                }
            }
            Ok(Some(FromChild::Http { number: asked, call, request })) if call == number => {
                if !requests.ask(asked, request) {
                    return Close::Lost("its process asks for requests without end".to_owned());
                }
            }
            Ok(Some(other)) => return Close::Lost(format!("its process said {:?} during a call", kind(&other))),
            Err(error) => return lost(child, error).await,
        }
    }
}

async fn until(grace: Option<Instant>) {
    match grace {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn lost(child: &mut Running, error: FrameError) -> Close {
    Close::Lost(why_lost(&mut *child.life, &error).await)
}

/// What is wrong with a process whose pipe gave this error.
pub(crate) async fn why_lost(life: &mut dyn Life, error: &FrameError) -> String {
    match error {
        FrameError::Ended => match tokio::time::timeout(END_MAX, life.end()).await {
            Ok(how) => how,
            Err(_) => "its process closed its pipe".to_owned(),
        },
        FrameError::Length { .. } | FrameError::Form(_) | FrameError::Pipe(_) => {
            format!("its process broke the order of frames: {error}")
        }
    }
}

/// What a frame is, without its content.
pub(crate) fn kind(frame: &FromChild) -> &'static str {
    match frame {
        FromChild::Ready { .. } => "ready",
        FromChild::NotReady { .. } => "not ready",
        FromChild::Compiled(_) => "compiled",
        FromChild::Loaded => "loaded",
        FromChild::Refused { .. } => "refused",
        FromChild::Done(_) => "done",
        FromChild::Http { .. } => "http",
    }
}
