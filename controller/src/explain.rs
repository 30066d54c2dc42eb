//! Failures as one sentence for people, with the next step.
//!
//! Called at the edge: the command line prints it, a server may put it into its own answer. The device's own words come
//! through `wire::text::visible`, so that they cannot steer a terminal.

use wire::answer::{ErrorCode, Refusal};
use wire::text::{CapabilityName, visible};

use crate::failure::{AnswerError, Failure};
use crate::inventory::{Address, InventoryError, StoreError};
use crate::link::{LinkError, Step};

/// How much a capability's name may differ from a declared one to be offered as what was meant. Names in one area begin
/// alike, so it is more than elsewhere.
const SIMILAR_MIN: f64 = 0.85;

/// What was tried, as far as it helps to explain why it did not work.
#[derive(Debug, Clone, Default)]
pub struct Attempt<'a> {
    /// The device's local name.
    pub device: &'a str,
    /// Where it listens.
    pub address: Option<&'a Address>,
    /// The capability, if one was to be used.
    pub capability: Option<&'a CapabilityName>,
    /// Whether it was a claim.
    pub claim: bool,
}

/// The sentence.
#[must_use]
pub fn explain(failure: &Failure, attempt: &Attempt<'_>) -> String {
    let device = attempt.device;
    match failure {
        Failure::Link(error) => link(error, attempt),
        Failure::OutcomeUnknown { id, cause } => {
            let next = match (attempt.claim, attempt.capability) {
                (true, _) => "look again with: latchkey claim --resume".to_owned(),
                (false, Some(capability)) => format!(
                    "ask again under the same id, which never runs twice: latchkey call {device} {capability} … --id {id}"
                ),
                (false, None) => format!("look again with: latchkey devices (id {id})"),
            };
            format!(
                "the request was sent and may have been done, but no answer that counts came back ({}); {next}",
                chain(&**cause)
            )
        }
        Failure::Answer(error) => answer(error, attempt),
        Failure::Refused(refusal) => refused(refusal, attempt),
        Failure::Undeclared { wanted, declared } => undeclared(wanted, declared, device),
        Failure::Arguments(error) => {
            let look = format!("see what it takes with: latchkey capabilities {device}");
            format!("{}; nothing was sent, {look}", visible(&error.to_string()))
        }
        Failure::TooLarge { .. } => format!("{failure}; nothing was sent, send less at once"),
        Failure::Value(error) => {
            format!("{device} answered something that does not fit what was asked, so it is dropped: {error}")
        }
        Failure::NotActive => {
            format!("{device} is not active; run: latchkey activate {device}, or leave out --no-activate")
        }
        Failure::OtherActive { other, remaining_ms, cause } => format!(
            "{other} may still be active for {} s and cannot be asked to stop ({}); an agent never has two active devices: make {other} reachable, or wait that long",
            remaining_ms.div_ceil(1000),
            explain(cause, &Attempt { device: other.as_str(), ..Attempt::default() })
        ),
        Failure::NotFound(error) => format!("{}; see: latchkey devices", visible(&error.to_string())),
        Failure::NoChange(name) => format!("no claim, transfer or release of {name} is under way"),
        Failure::StillActive { device, remaining_ms } => format!(
            "{device} may still be active for {} s; first run: latchkey deactivate {device}, or wait that long",
            remaining_ms.div_ceil(1000)
        ),
        Failure::Store(error) => store(error),
        Failure::Chance(error) => format!("{error}, so nothing was sent"),
    }
}

/// What caused an error, in one line; the error itself if nothing is known to have.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| visible(&error.to_string()), chain)
}

/// An error and what caused it, in one line, fit for a terminal.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    visible(&text)
}

fn store(error: &StoreError) -> String {
    match error {
        StoreError::Unreadable { source: InventoryError::Newer(_), .. } => {
            format!("{}; use that newer latchkey", chain(error))
        }
        StoreError::Unreadable { path, source: InventoryError::Damaged(_) | InventoryError::Twice(_) } => format!(
            "{}; mend it, or move it away and claim again: mv {} {}.damaged",
            chain(error),
            path.display(),
            path.display()
        ),
        StoreError::File(_) => chain(error),
    }
}

fn link(error: &LinkError, attempt: &Attempt<'_>) -> String {
    let device = attempt.device;
    let at = attempt.address.map(|address| format!(" at {address}")).unwrap_or_default();
    match error {
        LinkError::NoSuchHost(host) => {
            format!("the name {} leads nowhere; check the address of {device}", visible(host))
        }
        LinkError::NothingListens(_) => {
            format!("nothing listens{at}; is latchkeyd running on {device}, and is this still its address?")
        }
        LinkError::NoWay(cause) => format!("no way to {device}{at} ({cause}); is it on, and in this network?"),
        LinkError::NotTls => format!(
            "what answers{at} does not speak TLS; the link says https, and http is never tried instead: {}",
            turn_tls_on(attempt)
        ),
        LinkError::NoHandshake(_) => format!(
            "what answers{at} ends the connection where TLS begins; most likely no TLS is spoken there, and http is never tried instead: {}; if TLS is on there, it has no place left for another connection: try again in a moment",
            turn_tls_on(attempt)
        ),
        LinkError::TlsRefused(cause) => {
            format!(
                "TLS with {device}{at} failed ({}); it must offer TLS 1.3 with an Ed25519 key",
                visible(&cause.to_string())
            )
        }
        LinkError::WrongKey => format!(
            "the server{at} has another key than {device}, so nothing was sent; another machine has this address, or {device} got a new key: pair it anew at the device with: latchkeyd pair"
        ),
        LinkError::KeyNotHeld => format!(
            "the server{at} shows the certificate of {device} and does not hold its key, so nothing was sent; somebody may stand in between"
        ),
        LinkError::TimedOut(step) => timed_out(*step, device, &at),
        LinkError::Broken(_) => format!("the connection to {device}{at} broke ({}); try again", cause(error)),
        LinkError::TooLarge { max } => {
            format!("the answer{at} is larger than {max} bytes, which no device sends; it was dropped")
        }
        LinkError::NotADevice(status) => {
            format!("what answers{at} is no device (HTTP {status}); check the address and port")
        }
        LinkError::NotTheLink => {
            format!("what answers{at} does not speak the device link; check the port, and whether it is https there")
        }
        LinkError::HostRefused => format!(
            "{device} does not serve under this host name; at the device add it to link.direct.hosts, or use its IP address"
        ),
        LinkError::Forbidden if attempt.claim => format!(
            "{device} refuses this link: pairing is not open there, or the link is used, expired or mistyped; at the device run: latchkeyd pair, and claim with the new link"
        ),
        LinkError::Forbidden => format!(
            "{device} answered 403 and does not say why: most likely this agent is not its owner (any more), or it just restarted; try once more, then at the device run: latchkeyd status"
        ),
    }
}

/// What to do about a device that speaks plain HTTP where its link says https.
fn turn_tls_on(attempt: &Attempt<'_>) -> String {
    let device = attempt.device;
    let turn_on = format!("on {device} set link.direct.scheme = \"https\" and start latchkeyd anew");
    if attempt.claim {
        format!("run there: latchkeyd pair, and claim with the link it shows now; or {turn_on}")
    } else {
        turn_on
    }
}

fn timed_out(step: Step, device: &str, at: &str) -> String {
    match step {
        Step::Connect => format!("no connection to {device}{at} in time; is it on, and in this network?"),
        Step::Head => format!("{device}{at} did not answer in time; try again"),
        Step::Body => format!("{device}{at} began to answer and did not end in time; try again"),
        Step::Total => format!("the time given was over before {device}{at} had answered; give more with --timeout"),
    }
}

fn answer(error: &AnswerError, attempt: &Attempt<'_>) -> String {
    let device = attempt.device;
    match error {
        AnswerError::Envelope(_) | AnswerError::Mismatch(_) => {
            format!("an answer came that does not count ({}); it may not come from {device}", chain(error))
        }
        AnswerError::Registration(_) | AnswerError::OtherKey | AnswerError::Member(_) => {
            format!("{} ({device}); its latchkeyd may be of another version", chain(error))
        }
        AnswerError::Code => format!("{error}; do not approve it at {device}"),
    }
}

fn undeclared(wanted: &CapabilityName, declared: &[CapabilityName], device: &str) -> String {
    let near = declared
        .iter()
        .map(|name| (strsim::jaro_winkler(name.as_str(), wanted.as_str()), name))
        .filter(|(likeness, _)| *likeness >= SIMILAR_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default();
    format!("{device} declares no {wanted}{near}; nothing was sent, see: latchkey capabilities {device}")
}

fn refused(refusal: &Refusal, attempt: &Attempt<'_>) -> String {
    let device = attempt.device;
    let said = visible(&refusal.message);
    let what = attempt.capability.map_or_else(|| "this".to_owned(), ToString::to_string);
    match refusal.error {
        ErrorCode::Denied => match attempt.capability {
            Some(capability) => {
                let grant = capability.grant();
                format!("{grant} is not granted on {device}; at the device run: latchkeyd grant {grant}")
            }
            None => format!("{device} denies this ({said}); at the device run: latchkeyd grants"),
        },
        ErrorCode::NotActive => format!("{device} is not active; run: latchkey activate {device}"),
        ErrorCode::Unsupported => format!("{device} has no {what} ({said}); see: latchkey capabilities {device}"),
        ErrorCode::InvalidArguments => {
            format!("{device} does not take these arguments ({said}); see: latchkey capabilities {device}")
        }
        ErrorCode::HardwareUnavailable => {
            format!("{what} cannot work on {device} now: {said}; at the device run: latchkeyd status")
        }
        ErrorCode::Busy => format!("{what} is busy on {device} ({said}); try again in a moment"),
        ErrorCode::Timeout => format!("{device} cut {what} off at its time-out ({said}); try again"),
        ErrorCode::Cancelled => format!("{what} was cancelled on {device}: {said}"),
        ErrorCode::Failed => format!("{what} failed on {device}: {said}; at the device run: latchkeyd status"),
        ErrorCode::UnknownOutcome => format!(
            "{what} began on {device} and nothing proves how it ended ({said}); look at the device, or at its record: latchkeyd receipts"
        ),
        ErrorCode::IdReused => format!("this id was used with other content on {device}; leave out --id for a new one"),
        ErrorCode::InProgress => format!("the same request still runs on {device}; ask again in a moment"),
        ErrorCode::RateLimited => format!("too many requests to {device}: {said}"),
        ErrorCode::Conflict => conflict(device, &said, attempt.claim),
        ErrorCode::StorageFull => {
            format!("{device} cannot write a record, so it does nothing: {said}; at the device run: latchkeyd status")
        }
    }
}

fn conflict(device: &str, said: &str, claim: bool) -> String {
    if claim {
        format!(
            "{device} cannot be claimed now: {said}; if it has an owner, at the device run: latchkeyd release, then: latchkeyd pair"
        )
    } else {
        format!("{device} cannot change its owner now: {said}; at the device run: latchkeyd claims")
    }
}

#[cfg(test)]
mod tests;
