//! A camera's frames as they come, for measuring.
//!
//! Made by [`Camera::bare`](super::Camera::bare). Owns the stream, the camera's one place and a hold on the sign, and gives them back in this order. Refuses
//! every frame once the sign is lost; ends with its drop.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::capture::Ended;
use super::{Frame, Seat, Source, Stream, fault_of};
use crate::clock::{Clock as _, SystemClock};
use crate::handler::Fault;
use crate::sign::Lit;

/// A camera that runs under a lit sign.
pub struct Bare {
    // Fields drop in this order: the device is closed before another capture may come, and before the sign may go off.
    stream: Box<dyn Stream>,
    slice: Duration,
    lost: CancellationToken,
    _seat: Seat,
    _lit: Lit,
}

impl Bare {
    pub(super) fn open(source: &dyn Source, slice: Duration, seat: Seat, lit: Lit) -> Result<Self, Fault> {
        let lost = lit.lost();
        if lost.is_cancelled() {
            return Err(Fault::Stopped);
        }
        let stream = source.open().map_err(|fault| fault_of(Ended::Camera(fault)))?;
        Ok(Self { stream, slice, lost, _seat: seat, _lit: lit })
    }

    /// The next frame, or `None` when none came within `wait`.
    ///
    /// # Errors
    /// [`Fault::Stopped`] when the sign is lost, also while waiting; otherwise as `camera.snapshot`.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Frame>, Fault> {
        let began = SystemClock.boot();
        loop {
            let left = wait.saturating_sub(SystemClock.boot().since(began));
            let frame = if self.lost.is_cancelled() { Ok(None) } else { self.stream.next(left.min(self.slice)) };
            if self.lost.is_cancelled() {
                return Err(Fault::Stopped);
            }
            match frame.map_err(|fault| fault_of(Ended::Camera(fault)))? {
                None if left > self.slice => {}
                frame => return Ok(frame),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests; their tasks end with them")]

    use std::sync::Arc;

    use tokio::time::timeout;

    use super::super::{Camera, CameraSetup, SimulatedCamera};
    use super::*;
    use crate::sign::{Sign, SignState, SignTrouble, SimulatedSign};

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn bare_frames_hold_the_sign_and_the_place_and_end_with_a_lost_sign() {
        let (light, device) = (SimulatedSign::new(|_| {}), SimulatedCamera::new());
        let sign = Sign::new(vec![Arc::new(light.clone())], Arc::new(SystemClock));
        tokio::spawn(Arc::clone(&sign).tend(CancellationToken::new()));
        tokio::task::yield_now().await;
        let camera = Camera::simulated(device.clone(), &CameraSetup::default());
        let lit = sign.light().await.unwrap();
        let lost = lit.lost();
        let mut stream = camera.bare(lit).unwrap();
        assert!(stream.next(SOON).unwrap().is_some());
        let refused = camera.bare(sign.light().await.unwrap()).err();
        assert_eq!(refused, Some(super::super::hangs()), "the camera has one place");
        tokio::time::sleep(crate::sign::ON_MIN + Duration::from_millis(400)).await;
        assert!(light.is_lit(), "the sign stays on while the stream is open");
        assert!(stream.next(SOON).unwrap().is_some());
        light.trouble(Some(SignTrouble::GoesOut));
        timeout(SOON, lost.cancelled()).await.unwrap();
        assert_eq!(stream.next(SOON).err(), Some(Fault::Stopped));
        drop(stream);
        assert_eq!(device.counts().closes, 1);
        light.trouble(None);
        let mut state = sign.watch();
        timeout(SOON, state.wait_for(|state| *state == SignState::Dark)).await.unwrap().unwrap();
        let mut stream = camera.bare(sign.light().await.unwrap()).unwrap();
        assert!(stream.next(SOON).unwrap().is_some(), "and the place is free again");
    }
}
