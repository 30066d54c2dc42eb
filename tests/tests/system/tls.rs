//! The direct link over TLS, through both programs: it works with the device's key, and with nothing else. A certificate is no
//! proof; plain HTTP never takes the place of TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use latchkey_tests::programs::soon;
use latchkey_tests::{Daemon, Room, SOON, Start};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
    StreamOwned, SupportedProtocolVersion,
};
use wire::Signer;

/// A claimed device behind TLS, as two people set it up with the two programs.
fn claimed(room: &Room) -> Daemon {
    let daemon = https(room, "127.0.0.1:0");
    let link = room.latchkeyd(&["pair", "--json"]).well().json()["link"].as_str().unwrap().to_owned();
    assert!(link.starts_with("https://127.0.0.1:"), "{link}");
    room.latchkey(&["agent", "new", "helper@home.example.org"]).well();
    let code = room.latchkey(&["claim", &link, "--name", "kitchen", "--no-wait", "--json"]).well().json();
    room.latchkeyd(&["approve", code["code"].as_str().unwrap()]).well();
    daemon
}

fn https(room: &Room, listen: &str) -> Daemon {
    served(room, listen, "https")
}

fn served(room: &Room, listen: &str, scheme: &str) -> Daemon {
    Start::bare(room)
        .set(&format!("link.direct.listen={listen}"))
        .set(&format!("link.direct.scheme={scheme}"))
        .set("keeper.listen=127.0.0.1:0")
        .arguments(&["run", "--simulate"])
        .up()
}

#[test]
fn a_device_behind_tls_is_claimed_and_takes_a_picture_through_the_two_programs() {
    let room = Room::new();
    let _daemon = claimed(&room);
    room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).refused(3, &["camera is not granted on kitchen"]);
    room.latchkeyd(&["grant", "camera"]).well();
    room.latchkey(&["snapshot", "kitchen", "-o", "a.jpg"]).well();
    let picture = std::fs::read(room.file("a.jpg")).unwrap();
    assert!(picture.starts_with(&[0xff, 0xd8]) && picture.len() > 1_000);
    let devices = room.latchkey(&["devices", "--json"]).well().json();
    assert!(devices[0]["address"].as_str().unwrap().starts_with("https://"), "{devices}");
}

#[test]
fn a_server_that_shows_the_certificate_of_the_device_and_holds_another_key_is_refused() {
    let room = Room::new();
    let mut daemon = claimed(&room);
    let address = daemon.direct();
    let shown = certificate(address);
    room.latchkey(&["health", "kitchen"]).well();
    assert_eq!(daemon.stop(), 0);

    // The device's certificate, and another key behind it.
    let impostor = Server::start(address, resolver(shown.clone(), &stranger()));
    room.latchkey(&["health", "kitchen"]).refused(4, &["shows the certificate of kitchen and does not hold its key"]);
    assert_eq!(impostor.heard(), None, "nothing was said to it");

    // Another certificate, and its own key.
    let key = stranger();
    let certificate = CertificateParams::new(Vec::<String>::new()).unwrap().self_signed(&key).unwrap().der().clone();
    let impostor = Server::start(address, resolver(certificate, &key));
    room.latchkey(&["health", "kitchen"]).refused(4, &["has another key than kitchen"]);
    assert_eq!(impostor.heard(), None, "nothing was said to it");

    // The control: the same server with the same certificate and the right key behind it is talked to.
    let signer: Arc<dyn Signer> = Arc::new(room.key());
    let right = Server::start(address, runtime::tls::server_config(&signer).unwrap());
    let ended = room.latchkey(&["health", "kitchen"]);
    assert!(right.heard().is_some_and(|heard| heard.starts_with("GET /v1/challenge ")), "{ended:?}");
    assert_eq!(ended.code(), 4, "it is no device all the same: {ended:?}");

    let _daemon = https(&room, &address.to_string());
    room.latchkey(&["health", "kitchen"]).well();
}

#[test]
fn plain_http_is_refused_where_the_link_says_https_and_nothing_is_said_in_clear() {
    let room = Room::new();
    let mut daemon = claimed(&room);
    let address = daemon.direct();
    assert_eq!(daemon.stop(), 0);
    let mut plain = served(&room, &address.to_string(), "http");
    let next = "on kitchen set link.direct.scheme = \"https\"";
    room.latchkey(&["health", "kitchen"]).refused(4, &["no TLS is spoken there", next]);
    assert_eq!(plain.stop(), 0);

    // What reaches a listener that only listens is the first flight of TLS, once.
    let listener = TcpListener::bind(address).unwrap();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 64 * 1024];
        let read = stream.read(&mut bytes).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        drop(stream);
        listener.set_nonblocking(true).unwrap();
        (bytes[..read].to_vec(), listener)
    });
    room.latchkey(&["health", "kitchen"]).refused(4, &["does not speak TLS", "http is never tried instead", next]);
    let (bytes, listener) = heard.join().unwrap();
    assert_eq!(bytes.first(), Some(&0x16), "a TLS handshake");
    assert!(!String::from_utf8_lossy(&bytes).contains("HTTP/1.1"));
    assert!(listener.accept().is_err(), "no second try in clear");
    drop(listener);

    let _daemon = https(&room, &address.to_string());
    room.latchkey(&["health", "kitchen"]).well();
}

#[test]
fn the_device_speaks_tls_1_3_alone_and_answers_nothing_in_clear() {
    let room = Room::new();
    let daemon = https(&room, "127.0.0.1:0");
    let ask = |version| {
        let (config, _) = client(version);
        let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("device").unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, connected(daemon.direct()));
        stream.write_all(b"GET /v1/challenge HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        let _ends_without_close_notify = stream.read_to_end(&mut answer);
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    assert!(ask(&rustls::version::TLS12).is_err(), "TLS 1.2");
    assert!(ask(&rustls::version::TLS13).unwrap().starts_with("HTTP/1.1 200 "), "the control: TLS 1.3");
    let mut clear = latchkey_tests::Wire::connect(daemon.direct());
    clear.send(b"GET /v1/challenge HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    clear.rest(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, SOON).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// A client that believes everything and remembers what it was shown.
fn client(version: &'static SupportedProtocolVersion) -> (ClientConfig, Arc<Believer>) {
    let believer = Arc::new(Believer::default());
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(believer.clone())
        .with_no_client_auth();
    (config, believer)
}

/// The certificate that a server shows to everybody.
fn certificate(address: SocketAddr) -> CertificateDer<'static> {
    let (config, believer) = client(&rustls::version::TLS13);
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("device").unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, connected(address));
    stream.flush().unwrap();
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    believer.shown.lock().unwrap().clone().expect("a certificate")
}

#[derive(Debug, Default)]
struct Believer {
    shown: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.shown.lock().unwrap() = Some(end_entity.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

fn stranger() -> KeyPair {
    KeyPair::generate_for(&PKCS_ED25519).unwrap()
}

/// The settings of a server that shows one certificate and signs with whatever key it has.
fn resolver(certificate: CertificateDer<'static>, key: &KeyPair) -> ServerConfig {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let signing = ring::sign::any_eddsa_type(match &key {
        PrivateKeyDer::Pkcs8(key) => key,
        _ => panic!("made above"),
    });
    let certified = CertifiedKey::new(vec![certificate], signing.unwrap());
    let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(certified));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}

/// A server for one connection that closes once it has heard something.
struct Server {
    heard: Receiver<Option<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(address: SocketAddr, config: ServerConfig) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (tell, heard) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            drop(listener);
            stream.set_read_timeout(Some(SOON)).unwrap();
            let mut stream = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), stream);
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap_or(0);
            let said = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
            stream.conn.send_close_notify();
            let _ = stream.flush();
            tell.send((read > 0).then_some(said)).unwrap();
        });
        Self { heard, thread: Some(thread) }
    }

    /// What a client said once it believed.
    fn heard(mut self) -> Option<String> {
        let heard = soon(&self.heard, "a client");
        self.thread.take().unwrap().join().unwrap();
        heard
    }
}
