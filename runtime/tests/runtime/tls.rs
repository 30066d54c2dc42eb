//! TLS with the device's own key: what a controller sees, and what it is refused.

use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::device::{Bench, GET_CHALLENGE, Wish, exchange};

/// Takes any certificate, keeps it, and lets the library hold the handshake signature against it.
#[derive(Debug, Default)]
struct Looking {
    seen: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Looking {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        assert!(more.is_empty(), "one certificate and no chain");
        *self.seen.lock().unwrap() = Some(certificate.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

fn client(looking: Arc<Looking>, versions: &[&'static rustls::SupportedProtocolVersion]) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let config = config.dangerous().with_custom_certificate_verifier(looking).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

fn tls_device() -> Wish {
    Wish { sets: vec!["link.direct.scheme=\"https\""], ..Wish::default() }
}

async fn connect(
    bench: &Bench,
    connector: &TlsConnector,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(bench.direct()).await.unwrap();
    connector.connect(ServerName::try_from("device.invalid").unwrap(), stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_carries_the_device_key_and_no_names_and_the_handshake_is_signed_by_it() {
    let bench = Bench::start(tls_device()).await;
    let looking = Arc::new(Looking::default());
    let connector = client(Arc::clone(&looking), &[&rustls::version::TLS13]);
    for _ in 0..2 {
        let mut stream = connect(&bench, &connector).await.unwrap();
        stream.write_all(GET_CHALLENGE.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(
            stream.get_ref().1.handshake_kind(),
            Some(rustls::HandshakeKind::Full),
            "never resumed: each handshake is signed"
        );
    }
    let certificate = looking.seen.lock().unwrap().clone().unwrap();
    let read = webpki::EndEntityCert::try_from(&certificate).unwrap();
    // An Ed25519 key in DER is twelve bytes of head and the key itself.
    let spki = read.subject_public_key_info();
    assert_eq!(&spki[spki.len() - 32..], bench.public().to_bytes());
    assert_eq!(read.valid_dns_names().count() + read.valid_uri_names().count(), 0);
    // An empty subject and issuer: two empty sequences, and no common name (2.5.4.3) anywhere.
    assert!(!certificate.windows(5).any(|bytes| bytes == [0x06, 0x03, 0x55, 0x04, 0x03]));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_tls_and_plain_http_get_nothing_from_a_tls_listener() {
    let bench = Bench::start(tls_device()).await;
    let looking = Arc::new(Looking::default());
    let old = connect(&bench, &client(Arc::clone(&looking), &[&rustls::version::TLS12])).await;
    assert!(old.is_err() && looking.seen.lock().unwrap().is_none());
    assert!(!exchange(bench.direct(), GET_CHALLENGE).await.contains("challenge"));
    assert!(connect(&bench, &client(looking, &[&rustls::version::TLS13])).await.is_ok(), "control");
    bench.stop().await;
}
