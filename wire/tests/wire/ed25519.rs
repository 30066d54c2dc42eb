//! Signatures that some verifiers take and others do not. One verdict for everybody: the strict rule.

use wire::keys::BadSignature;
use wire::{Domain, KeyError, PublicKey, SecretKey, Signature, Signer};

use crate::vectors::{head, hex, public, receive, secret};

/// The order of the base point, little endian.
const L: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

#[derive(Debug, PartialEq)]
enum Verdict {
    Accepted,
    Key(KeyError),
    Signature,
}

/// Entries of the public ed25519-speccheck set: message, key, signature.
const SPECCHECK: [(&str, &str, &str); 8] = [
    (
        "8c93255d71dcab10e8f379c26200f3c7bd5f09d9bc3068d3ef4edeb4853022b6",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a0000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
    ),
    (
        "aebf3f2601a0c8c5d39cc7d8911642f740b78168218da8471772b35f9d35b9ab",
        "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa8c4bd45aecaca5b24fb97bc10ac27ac8751a7dfe1baff8b953ec9f5833ca260e",
    ),
    (
        "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "9046a64750444938de19f227bb80485e92b83fdb4b6506c160484c016cc1852f87909e14428a7a1d62e9f22f3d3ad7802db02eb2e688b6c52fcd6648a98bd009",
    ),
    (
        "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "160a1cb0dc9c0258cd0a7d23e94d8fa878bcb1925f2c64246b2dee1796bed5125ec6bc982a269b723e0668e540911a9a6a58921d6925e434ab10aa7940551a09",
    ),
    (
        "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d",
        "21122a84e0b5fca4052f5b1235c80a537878b38f3142356b2c2384ebad4668b7e40bc836dac0f71076f9abe3a53f9c03c1ceeeddb658d0030494ace586687405",
    ),
    (
        "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
        "e96f66be976d82e60150baecff9906684aebb1ef181f67a7189ac78ea23b6c0e547f7690a0e2ddcd04d87dbc3490dc19b3b3052f7ff0538cb68afb369ba3a514",
    ),
    (
        "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623",
        "8ce5b96c8f26d0ab6c47958c9e68b937104cd36e13c33566acd2fe8d38aa19427e71f98a473474f2f13f06f97c20d58cc3f54b8bd0d272f42b695dd7e89a8c22",
    ),
];

fn check(entry: usize, expected: Verdict) {
    let (message, key, signature) = SPECCHECK[entry];
    let signature = Signature::from_bytes(&hex(signature).try_into().unwrap());
    let verdict = match PublicKey::from_bytes(&hex(key).try_into().unwrap()) {
        Err(error) => Verdict::Key(error),
        Ok(key) => match key.verify(Domain::Tls, &hex(message), &signature) {
            Ok(()) => Verdict::Accepted,
            Err(BadSignature) => Verdict::Signature,
        },
    };
    assert_eq!(verdict, expected, "entry {entry}");
}

#[test]
fn a_key_or_a_nonce_point_of_small_order_is_refused() {
    check(0, Verdict::Key(KeyError::SmallOrder));
    check(1, Verdict::Key(KeyError::SmallOrder));
    check(2, Verdict::Signature);
}

#[test]
fn a_signature_whose_s_is_not_reduced_is_refused() {
    check(6, Verdict::Signature);
    check(7, Verdict::Signature);
}

#[test]
fn what_holds_only_with_the_cofactor_is_refused_and_a_mixed_order_key_is_held_to_the_plain_rule() {
    check(3, Verdict::Accepted);
    check(4, Verdict::Signature);
    check(5, Verdict::Signature);
}

#[test]
fn adding_the_order_to_s_spoils_a_good_signature() {
    let key = secret("owner");
    let signature = key.sign(Domain::Link, b"body");
    assert_eq!(key.public().verify(Domain::Link, b"body", &signature), Ok(()));
    let mut bytes = signature.to_bytes();
    let mut carry = 0;
    for (byte, order) in bytes[32..].iter_mut().zip(L) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        (*byte, carry) = (sum as u8, sum >> 8);
    }
    assert_eq!(carry, 0, "S + L fits 32 bytes");
    assert_eq!(key.public().verify(Domain::Link, b"body", &Signature::from_bytes(&bytes)), Err(BadSignature));
}

#[test]
fn a_signature_of_another_length_is_refused() {
    let body = wire::OwnerRequest::Registration.to_body(&head());
    let signature = secret("owner").sign(Domain::Link, &body).to_bytes();
    let envelope = |signature: &[u8]| {
        let (body, signature) = (wire::text::base64url_encode(&body), wire::text::base64url_encode(signature));
        receive(format!(r#"{{"body":"{body}","signature":"{signature}"}}"#).as_bytes()).map(drop).map_err(|e| e.label())
    };
    assert_eq!(envelope(&signature), Ok(()));
    assert_eq!(envelope(&signature[..63]), Err("base64"));
    assert_eq!(envelope(&[&signature[..], &[0]].concat()), Err("base64"));
}

#[test]
fn a_signature_of_one_domain_holds_in_no_other() {
    let key = secret("device");
    let domains = [Domain::Link, Domain::Receipts, Domain::Tls];
    let message = b"\x30 a message that every domain signs";
    for made in domains {
        let signature = key.sign(made, message);
        for held in domains {
            assert_eq!(key.public().verify(held, message, &signature).is_ok(), made == held, "{made:?} as {held:?}");
        }
    }
}

#[test]
fn as_tls_only_what_tls_signs_is_signed() {
    let key = secret("device");
    let handshake = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat();
    let holds = |message: &[u8]| key.public().verify(Domain::Tls, message, &key.sign(Domain::Tls, message)).is_ok();
    assert!(holds(&handshake));
    assert!(holds(b"\x30\x82\x01\x00"), "a certificate");
    let client = String::from_utf8(handshake[..98].to_vec()).unwrap().replace("server", "client");
    for other in [client.as_bytes(), &handshake[1..], b"", b"{}", b"ai-maestro-device/1\0{}"] {
        assert!(!holds(other));
        let fixed = key.sign(Domain::Tls, other);
        assert_eq!(key.public().verify(Domain::Tls, b"latchkey-refused/1\0", &fixed), Ok(()), "one fixed text");
    }
}

#[test]
fn debug_of_key_types_shows_public_parts_only() {
    let (device, seed) = (secret("device"), secret("device").seed());
    insta::assert_snapshot!(format!("{device:?}"), @"SecretKey(of ebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ)");
    insta::assert_snapshot!(format!("{:?}", public("device")), @"PublicKey(ebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ)");
    let secret = wire::PairingSecret::from_bytes([7; 16]);
    insta::assert_snapshot!(format!("{secret:?}"), @"PairingSecret(hidden)");
    let link: wire::PairingLink =
        format!("https://[::1]:7601/#{}.{}", public("device"), secret.expose()).parse().unwrap();
    insta::assert_snapshot!(format!("{link:?}"), @r#"PairingLink { tls: true, host: "::1", port: 7601, device: PublicKey(ebVWLo_mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ), secret: PairingSecret(hidden) }"#);
    insta::assert_snapshot!(format!("{:?}", secret.proof(&public("owner"), &head().id)), @"Proof(ThRLo0d-6heGpSs3Q0SN9i5uL00w6mHP6dvzwtl5RbI)");
    insta::assert_snapshot!(format!("{:?}", SecretKey::from_seed(&seed).sign(Domain::Link, b"")), @"Signature(BZBkf4_tpcTOks7cr97he43pddiWL2GBdenYmUVlQn2K_t7L5-iMJ2i-ZMFpj2Av3NYWkDrziGyl6NVHSpnWCA)");
}
