//! An opened message comes from an envelope whose signature holds, and from nothing else.
use latchkey_wire::{Head, Opened, OwnerRequest, PublicKey};

fn forge(head: Head, signer: PublicKey) -> Opened<OwnerRequest> {
    Opened::assertion(head, signer, OwnerRequest::Release)
}

fn main() {}
