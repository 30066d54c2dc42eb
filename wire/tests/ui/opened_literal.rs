//! An opened message cannot be put together by hand.
use latchkey_wire::{Head, Opened, OwnerRequest, PublicKey};

fn forge(head: Head, signer: PublicKey) -> Opened<OwnerRequest> {
    Opened { head, signer, message: OwnerRequest::Release }
}

fn main() {}
