//! Tests of both sides together, over connections of this host.

use crate::{
    Acceptor, Checked, ClientSettings, Connector, Handshake, Problem, Protocol, ServerSettings, Stream,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Files {
    dir: TempDir,
}

impl Files {
    /// Creates authorities `a` and `b`, each with a server and a client certificate.
    fn make() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        for ca in ["a", "b"] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.distinguished_name.push(rcgen::DnType::CommonName, ca);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            files.write(&format!("{ca}-ca.pem"), &issuer.pem());
            for (name, names) in [
                ("server", vec!["server.global.nomad", "localhost", "127.0.0.1"]),
                ("client", vec!["client.global.nomad"]),
            ] {
                let key = KeyPair::generate().unwrap();
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                let mut params = CertificateParams::new(names).unwrap();
                params.extended_key_usages =
                    vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
                let cert = params.signed_by(&key, &issuer).unwrap();
                files.write(&format!("{ca}-{name}.pem"), &cert.pem());
                files.write(&format!("{ca}-{name}-key.pem"), &key.serialize_pem());
            }
        }
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn server(&self, name: &str, client_ca: Option<&str>) -> ServerSettings {
        ServerSettings {
            cert_file: self.path(&format!("{name}.pem")),
            key_file: self.path(&format!("{name}-key.pem")),
            client_ca: client_ca.map(|ca| self.path(&format!("{ca}-ca.pem"))),
            protocol: Protocol::default(),
            http2: false,
        }
    }

    fn client(&self, ca: &str, own: Option<&str>, checked: Checked) -> ClientSettings {
        ClientSettings {
            ca_file: Some(self.path(&format!("{ca}-ca.pem"))),
            cert_file: own.map(|own| self.path(&format!("{own}.pem"))),
            key_file: own.map(|own| self.path(&format!("{own}-key.pem"))),
            checked,
            ..ClientSettings::default()
        }
    }
}

/// Opens one connection. Returns the client's echoed text and the server's stream.
async fn talk(
    server: &Acceptor,
    client: &ClientSettings,
    host: &str,
) -> (io::Result<String>, io::Result<Stream>) {
    let connector = Connector::new(client).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let near = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = connector.connect(host, stream).await?;
        stream.write_all(b"hello").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let far = async {
        let (stream, _) = listener.accept().await?;
        let mut stream = server.accept(stream).await?;
        let mut word = [0; 5];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await?;
        Ok(stream)
    };
    tokio::join!(near, far)
}

fn problem(result: io::Result<String>) -> (Problem, String) {
    let error = result.unwrap_err();
    let handshake = Handshake::within(&error).unwrap_or_else(|| panic!("{error:?}"));
    (handshake.problem, error.to_string())
}

#[tokio::test]
async fn sides_that_know_each_other_talk() {
    let files = Files::make();
    let server = Acceptor::new(&files.server("a-server", Some("a"))).unwrap();
    for (host, checked) in [
        ("localhost", Checked::Host),
        ("127.0.0.1", Checked::Host),
        ("elsewhere", Checked::Name("server.global.nomad".into())),
        ("elsewhere", Checked::Authority),
        ("elsewhere", Checked::Nothing),
    ] {
        let (got, far) = talk(&server, &files.client("a", Some("a-client"), checked), host).await;
        assert_eq!(got.unwrap(), "hello");
        let certificate = far.unwrap().certificate().unwrap();
        assert!(certificate.is_for("client.global.nomad").unwrap());
        assert!(!certificate.is_for("server.global.nomad").unwrap());
        assert!(certificate.is_for("").is_err());
    }
}

#[tokio::test]
async fn the_connecting_side_learns_the_problem() {
    let files = Files::make();
    let open = Acceptor::new(&files.server("a-server", None)).unwrap();
    let closed = Acceptor::new(&files.server("a-server", Some("a"))).unwrap();
    let host = |ca, own| files.client(ca, own, Checked::Host);

    let (kind, words) = problem(talk(&open, &host("b", None), "localhost").await.0);
    assert_eq!(kind, Problem::UnknownAuthority);
    assert!(words.contains("authority that is not trusted"), "{words}");

    let (kind, words) = problem(talk(&open, &host("a", None), "example.com").await.0);
    assert_eq!(kind, Problem::WrongName);
    assert!(
        words.contains("is for server.global.nomad, localhost, 127.0.0.1, not for example.com"),
        "{words}"
    );

    let foreign = files.client("b", None, Checked::Authority);
    assert_eq!(problem(talk(&open, &foreign, "localhost").await.0).0, Problem::UnknownAuthority);

    assert_eq!(problem(talk(&closed, &host("a", None), "localhost").await.0).0, Problem::CertificateRequired);
    let (kind, _) = problem(talk(&closed, &host("a", Some("b-client")), "localhost").await.0);
    assert_eq!(kind, Problem::CertificateRefused);
}

#[tokio::test]
async fn who_does_not_speak_tls_is_found_out() {
    let files = Files::make();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Acceptor::new(&files.server("a-server", None)).unwrap();
    let near = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /").await.unwrap();
        stream
    };
    let far = async { server.accept(listener.accept().await.unwrap().0).await.unwrap() };
    let (_near, mut far) = tokio::join!(near, far);
    assert!(!far.is_tls() && far.certificate().is_none());
    let mut all = [0; 5];
    far.read_exact(&mut all).await.unwrap();
    assert_eq!(&all, b"GET /");

    let connector = Connector::new(&files.client("a", None, Checked::Host)).unwrap();
    let near = async {
        let stream = TcpStream::connect(address).await.unwrap();
        connector.connect("localhost", stream).await.map(|_| String::new())
    };
    let far = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
    };
    let (reported, ()) = tokio::join!(near, far);
    assert_eq!(problem(reported).0, Problem::NoTls);
}

#[tokio::test]
async fn http2_is_agreed_on_where_both_sides_want_it() {
    let files = Files::make();
    for (ours, theirs) in [(true, true), (true, false), (false, true)] {
        let server =
            Acceptor::new(&ServerSettings { http2: theirs, ..files.server("a-server", None) }).unwrap();
        let client = ClientSettings { http2: ours, ..files.client("a", None, Checked::Host) };
        let (reported, stream) = talk(&server, &client, "localhost").await;
        assert_eq!(reported.unwrap(), "hello");
        assert_eq!(stream.unwrap().is_http2(), ours && theirs);
    }
}

#[tokio::test]
async fn certificates_are_read_again() {
    let files = Files::make();
    let settings = files.server("a-server", None);
    let server = Acceptor::new(&settings).unwrap();
    let client = files.client("b", None, Checked::Host);
    assert!(talk(&server, &client, "localhost").await.0.is_err());
    std::fs::copy(files.path("b-server.pem"), &settings.cert_file).unwrap();
    // Only the certificate is new, so the previous settings stay in use.
    let reported = server.replace(&settings).unwrap_err().to_string();
    assert!(reported.contains("the key belongs to another certificate"), "{reported}");
    assert!(talk(&server, &files.client("a", None, Checked::Host), "localhost").await.0.is_ok());
    std::fs::copy(files.path("b-server-key.pem"), &settings.key_file).unwrap();
    server.replace(&settings).unwrap();
    assert_eq!(talk(&server, &client, "localhost").await.0.unwrap(), "hello");
}

#[tokio::test]
async fn versions_must_meet() {
    let files = Files::make();
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let newest = ServerSettings {
        protocol: Protocol::parse("tls13", suite).unwrap(),
        ..files.server("a-server", None)
    };
    let server = Acceptor::new(&newest).unwrap();
    let client = ClientSettings {
        protocol: Protocol::parse("tls12", suite).unwrap(),
        ..files.client("a", None, Checked::Host)
    };
    assert_eq!(talk(&server, &client, "localhost").await.0.unwrap(), "hello");
}

#[test]
fn errors_name_the_file() {
    let files = Files::make();
    let reported = |settings: &ClientSettings| Connector::new(settings).unwrap_err().to_string();
    let ca = |path: &Path| ClientSettings { ca_file: Some(path.to_owned()), ..ClientSettings::default() };
    let missing = files.path("none.pem");
    let words = reported(&ca(&missing));
    assert!(
        words.starts_with(&format!("the CA certificate {} cannot be read", missing.display())),
        "{words}"
    );
    files.write("empty.pem", "");
    assert!(reported(&ca(&files.path("empty.pem"))).contains("there is no certificate in it"));
    files.write("odd.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    assert!(reported(&ca(&files.path("odd.pem"))).contains("odd.pem cannot be used"));

    let text = |pem: &str| ClientSettings { ca_pem: vec![pem.to_owned()], ..ClientSettings::default() };
    assert!(reported(&text("x")).contains("there is no certificate in it"));
    assert!(Connector::new(&text(&std::fs::read_to_string(files.path("a-ca.pem")).unwrap())).is_ok());

    let mut half = files.client("a", Some("a-client"), Checked::Host);
    half.key_file = None;
    assert!(reported(&half).contains("without a client key"));
    half.key_file = Some(files.path("a-client.pem"));
    assert!(reported(&half).contains("a-client.pem cannot be used: there is no key"));
    half.key_file = Some(files.path("a-server-key.pem"));
    assert!(reported(&half).contains("the key belongs to another certificate"));

    let dir = |path: PathBuf| ClientSettings { ca_path: Some(path), ..ClientSettings::default() };
    assert!(reported(&dir(missing)).starts_with("the directory of CA certificates"));
    let some = tempfile::tempdir().unwrap();
    assert!(reported(&dir(some.path().to_owned())).contains("there is no file in it"));
    std::fs::copy(files.path("a-ca.pem"), some.path().join("a.pem")).unwrap();
    assert!(Connector::new(&dir(some.path().to_owned())).is_ok());
}
