//! The crypto alone: the limit that no server on this machine can pass.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wire::{Domain, Signer};

use crate::load::Party;

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Microseconds of processor time for one strict verification of a request and one signature of an answer.
pub(crate) fn pair_us(party: &Party, answer_bytes: usize, seconds: f64) -> f64 {
    let request = party.invoke_body(&wire::Challenge::from_bytes([7; 24]));
    let signature = party.owner.sign(Domain::Link, &request);
    let answer = vec![b'x'; answer_bytes];
    let began = thread_time();
    let (mut pairs, mut sink) = (0_u32, 0_u8);
    while (thread_time() - began).as_secs_f64() < seconds {
        for _ in 0..50 {
            if party.owner.public().verify(Domain::Link, &request, &signature).is_ok() {
                sink ^= party.device.sign(Domain::Link, &answer).to_bytes()[0];
                pairs += 1;
            }
        }
    }
    std::hint::black_box(sink);
    (thread_time() - began).as_secs_f64() * 1e6 / f64::from(pairs.max(1))
}
