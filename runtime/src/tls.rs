//! TLS 1.3 with the device's own key.
//!
//! Owns the certificate, made anew at each start: self-signed, without names, its public key the device key. A controller pins that
//! key and reads nothing else of it. Session resumption is off, because a resumed handshake carries no signature of the key. The
//! secret key itself stays behind [`Signer`], which signs handshakes of a server and our own certificate under
//! [`Domain::Tls`] and nothing else.

use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, PKCS_ED25519, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{ServerConfig, SignatureAlgorithm, SignatureScheme};
use wire::{Domain, Signer};

/// The year in which the certificate ends. It is made anew at each start and nobody reads its dates.
const LAST_YEAR: i32 = 4096;

/// Why the device cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate could not be made.
    #[error("cannot make the certificate")]
    Certificate(#[from] rcgen::Error),
    /// The library refused the settings.
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
}

/// The server side of TLS for the direct link.
///
/// # Errors
/// When a library refuses; neither can with a sound key.
pub fn server_config(signer: &Arc<dyn Signer>) -> Result<ServerConfig, TlsError> {
    let key = DeviceKey { signer: Arc::clone(signer), public: signer.public().to_bytes() };
    let certified = CertifiedKey::new(vec![certificate(&key)?], Arc::new(key));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

fn certificate(key: &DeviceKey) -> Result<CertificateDer<'static>, TlsError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.not_after = rcgen::date_time_ymd(LAST_YEAR, 1, 1);
    Ok(params.self_signed(key)?.der().clone())
}

/// The device key as the two libraries want it.
#[derive(Clone)]
struct DeviceKey {
    signer: Arc<dyn Signer>,
    public: [u8; 32],
}

impl std::fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceKey").field(self.signer.public()).finish()
    }
}

impl DeviceKey {
    fn signature(&self, message: &[u8]) -> Vec<u8> {
        self.signer.sign(Domain::Tls, message).to_bytes().to_vec()
    }
}

impl PublicKeyData for DeviceKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl rcgen::SigningKey for DeviceKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.signature(message))
    }
}

impl SigningKey for DeviceKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn rustls::sign::Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn rustls::sign::Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl rustls::sign::Signer for DeviceKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(self.signature(message))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}
