//! TLS with a pinned key: who is refused, and the control that is not.

use std::sync::Arc;

use latchkey_controller::Failure;
use latchkey_controller::explain::{Attempt, explain};
use latchkey_controller::link::LinkError;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use wire::keys::{Domain, SecretKey, Signer};

use crate::bench::bench;
use crate::fake::{Fake, TlsParts, new_key};

/// A key in the forms that rcgen and rustls want.
#[derive(Clone)]
struct Holder(Arc<SecretKey>, [u8; 32]);

impl Holder {
    fn new(key: &Arc<SecretKey>) -> Self {
        Self(Arc::clone(key), key.public().to_bytes())
    }
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holder")
    }
}

impl rcgen::PublicKeyData for Holder {
    fn der_bytes(&self) -> &[u8] {
        &self.1
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

impl rcgen::SigningKey for Holder {
    fn sign(&self, msg: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.0.sign(Domain::Tls, msg).to_bytes().to_vec())
    }
}

impl rustls::sign::SigningKey for Holder {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn rustls::sign::Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl rustls::sign::Signer for Holder {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.0.sign(Domain::Tls, message).to_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

fn certificate(key: &Arc<SecretKey>) -> CertificateDer<'static> {
    rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&Holder::new(key)).unwrap().into()
}

fn server(
    shown: &Arc<SecretKey>,
    held: &Arc<SecretKey>,
    version: &'static rustls::SupportedProtocolVersion,
) -> TlsParts {
    let certified = CertifiedKey::new(vec![certificate(shown)], Arc::new(Holder::new(held)));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    TlsParts { config: Arc::new(config) }
}

#[tokio::test]
async fn only_the_pinned_key_gets_a_connection() {
    let device = Arc::new(new_key());
    let other = Arc::new(new_key());
    let tls13 = &rustls::version::TLS13;
    for (parts, link_tls, named) in [
        (Some(server(&device, &device, tls13)), true, "accepted"),
        (Some(server(&other, &other, tls13)), true, "wrong key"),
        (Some(server(&device, &other, tls13)), true, "key not held"),
        (Some(server(&device, &device, &rustls::version::TLS12)), true, "tls refused"),
        (None, true, "not tls"),
        (Some(server(&device, &device, tls13)), false, "not the link"),
        (None, false, "accepted"),
    ] {
        let fake = Fake::start(Arc::clone(&device), parts).await;
        let mut link = fake.link();
        link.tls = link_tls;
        let bench = bench();
        let found = match bench.controller.claim(&link, None, |_| false).await {
            Ok(_) => "accepted",
            Err(Failure::Link(LinkError::WrongKey)) => "wrong key",
            Err(Failure::Link(LinkError::KeyNotHeld)) => "key not held",
            Err(Failure::Link(LinkError::TlsRefused(_))) => "tls refused",
            Err(Failure::Link(LinkError::NotTls)) => "not tls",
            Err(Failure::Link(LinkError::NotTheLink | LinkError::Broken(_))) => "not the link",
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(found, named);
        assert_eq!(fake.state().posts > 0, named == "accepted", "{named}: nothing is sent to a stranger");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_on_tls_is_told_from_a_connection_that_broke() {
    use tokio::io::AsyncReadExt as _;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Reads what came and closes without a word, as a device does that speaks plain HTTP.
    let device = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; 4096];
            let _read = stream.read(&mut hello).await;
        }
    });
    let mut link = Fake::plain().await.link();
    (link.tls, link.port) = (true, port);
    let bench = bench();
    let failure = bench.controller.claim(&link, None, |_| false).await.unwrap_err();
    assert!(matches!(failure, Failure::Link(LinkError::NoHandshake(_))), "{failure:?}");
    let attempt = Attempt { device: "kitchen", claim: true, ..Attempt::default() };
    let sentence = explain(&failure, &attempt);
    assert!(sentence.contains("no TLS is spoken there") && sentence.contains("latchkeyd pair"), "{sentence}");
    let owned = explain(&failure, &Attempt { claim: false, ..attempt });
    assert!(owned.contains("link.direct.scheme = \"https\"") && !owned.contains("latchkeyd pair"), "{owned}");
    device.abort();
}
