//! Engines that are reached over TLS.

use crate::*;
use caravan_testkit::free_port;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use std::path::Path;

/// Writes an authority with a certificate of the engine and one of its client into a directory.
fn certificates(dir: &Path) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(dir.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    for (name, usage) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let mut params = CertificateParams::new(vec!["127.0.0.1".into(), "localhost".into()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), made.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_reached_over_tls() {
    let mut world = World::new();
    let (dir, strangers) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates(dir.path());
    certificates(strangers.path());
    let port = free_port().unwrap();
    let file = |dir: &Path, name: &str| dir.join(name).display().to_string();
    world
        .engine
        .listen(&[
            &format!("--host=tcp://127.0.0.1:{port}"),
            "--tlsverify",
            &format!("--tlscacert={}", file(dir.path(), "ca.pem")),
            &format!("--tlscert={}", file(dir.path(), "server.pem")),
            &format!("--tlskey={}", file(dir.path(), "server.key")),
        ])
        .unwrap();
    let options = |tls: Value| json!({"endpoint": format!("tcp://127.0.0.1:{port}"), "tls": tls});
    let of = |ca: &Path, own: &Path| json!({"ca": file(ca, "ca.pem"), "cert": file(own, "client.pem"), "key": file(own, "client.key")});
    let (own, other) = (dir.path(), strangers.path());
    world.options = options(of(own, own));
    let driver = world.docker();
    let found = driver.fingerprint().await;
    assert_eq!(found.state, Health::Healthy, "{found:?}");
    // A task with its output, and a program in it: the connection of a program changes its protocol.
    let config = world.script("t", "echo hello; trap 'exit 0' TERM; sleep 100000 & wait");
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    until("the output", || world.output("t") == "hello\n").await;
    let ran = driver.exec(&id, &["echo".into(), "inside".into()], TIMEOUT).await.unwrap();
    assert_eq!((ran.stdout.as_slice(), ran.exit_code), (b"inside\n".as_slice(), 0));
    assert!(driver.usage(&id).await.unwrap().memory > 0);
    driver.destroy(&id, true).await.unwrap();

    for (tls, words) in [
        (of(other, own), "certificate"),
        (of(own, other), "certificate"),
        (json!({"ca": file(own, "ca.pem")}), "certificate"),
        (json!({"ca": file(own, "absent.pem")}), "absent.pem"),
        (json!({"cert": file(own, "client.pem")}), "client key"),
    ] {
        let driver = world.docker_with(DockerOptions::read(&options(tls.clone())).unwrap());
        let found = driver.fingerprint().await;
        assert_eq!(found.state, Health::Undetected, "{tls}: {found:?}");
        assert!(found.description.contains(words), "{tls}: {found:?}");
    }
}
