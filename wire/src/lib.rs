//! Every byte that crosses a machine boundary: text forms, envelope, messages, bounds, records.
//!
//! Pure: no I/O, no clock, no randomness, no async. What parses here is valid everywhere else. The section numbers in the
//! documentation are those of `PROTOCOL.md`. This is the only home of ed25519-dalek; other rooms get a [`Signer`] for a named
//! [`Domain`] and one strict verifier, [`PublicKey::verify`].

pub mod answer;
pub mod bounds;
pub mod cbor;
pub mod declaration;
pub mod envelope;
pub mod json;
pub mod keys;
pub mod pairing;
pub mod record;
pub mod request;
pub mod text;

pub use answer::{Answer, ErrorCode, Refusal};
pub use bounds::{Arguments, Bounds, BoundsError};
pub use declaration::{Activation, CapabilityState, Declaration, Effect, Grant, Offered, Owner, Registration};
pub use envelope::{Envelope, Opened, Refused, Sealed, Unopened};
pub use json::Object;
pub use keys::{Domain, KeyError, PublicKey, SecretKey, Signature, Signer};
pub use pairing::{ClaimCode, PairingLink, PairingSecret, Proof};
pub use record::{Record, RecordHash};
pub use request::{ClaimantRequest, Head, Lease, OwnerRequest};
pub use text::{Agent, CapabilityName, Challenge, GrantName, Id, Salt};
