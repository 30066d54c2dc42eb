//! TLS 1.3 to a device whose Ed25519 key is known beforehand (section 3).
//!
//! Called by `link` for each new connection. The certificate is nothing but an envelope for a public key: the pinned one
//! or no connection. No CA, no names, no dates, no resumption, no 0-RTT; the handshake signature is checked by wire's
//! strict verifier, so that a server which only copied the certificate is refused.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, OtherError, SignatureScheme};
use wire::keys::{Domain, PublicKey, Signature};

use crate::link::LinkError;

/// The DER of an Ed25519 SubjectPublicKeyInfo before its 32 key bytes (RFC 8410).
const ED25519_SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The certificate holds another key than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("the certificate holds another key than the device's")]
struct OtherKey;

/// Takes exactly one key.
#[derive(Debug)]
struct Pinned {
    device: PublicKey,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = webpki::EndEntityCert::try_from(end_entity)
            .map_err(|_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let mut expected = ED25519_SPKI_HEAD.to_vec();
        expected.extend_from_slice(&self.device.to_bytes());
        if certificate.subject_public_key_info().as_ref() != expected {
            return Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(OtherKey)))));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(CertificateError::BadSignature))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let refused = || rustls::Error::InvalidCertificate(CertificateError::BadSignature);
        if dss.scheme != SignatureScheme::ED25519 {
            return Err(refused());
        }
        let bytes = <[u8; 64]>::try_from(dss.signature()).map_err(|_| refused())?;
        self.device.verify(Domain::Tls, message, &Signature::from_bytes(&bytes)).map_err(|_| refused())?;
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// The settings of one connection to `device`.
///
/// # Errors
///
/// [`LinkError::TlsRefused`] if the cryptography cannot do TLS 1.3, which a build decides, not a peer.
pub(crate) fn settings(device: &PublicKey) -> Result<Arc<ClientConfig>, LinkError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut settings = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(LinkError::TlsRefused)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { device: device.clone() }))
        .with_no_client_auth();
    // A resumed session would skip the signature of the pinned key.
    settings.resumption = Resumption::disabled();
    settings.enable_early_data = false;
    // The certificate bears no name, so none is told to whoever listens.
    settings.enable_sni = false;
    Ok(Arc::new(settings))
}

/// What a failed handshake means.
pub(crate) fn refusal(error: io::Error) -> LinkError {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                LinkError::NoHandshake(error)
            }
            _ => LinkError::Broken(Box::new(error)),
        };
    };
    match tls {
        rustls::Error::InvalidCertificate(CertificateError::Other(_) | CertificateError::BadEncoding) => {
            LinkError::WrongKey
        }
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => LinkError::KeyNotHeld,
        rustls::Error::InvalidMessage(_) => LinkError::NotTls,
        other => LinkError::TlsRefused(other.clone()),
    }
}
