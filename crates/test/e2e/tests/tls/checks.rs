//! Checks of services over TLS.

use super::Certificates;
use crate::{id_of, run_job};
use anyhow::{Result, bail, ensure};
use caravan_testkit::{Answer, Asked, Pair, WebServer, eventually};
use std::collections::BTreeMap;

/// Returns a check of the port with a label.
fn check(name: &str, port: &str, settings: &str) -> String {
    format!(
        "check {{\n name = \"{name}\"\n port = \"{port}\"\n interval = \"1s\"\n timeout = \"5s\"\n {settings}\n }}\n"
    )
}

fn job(ports: &[(&str, u16)], checks: &str) -> String {
    let ports: String =
        ports.iter().map(|(label, port)| format!("port \"{label}\" {{\n static = {port}\n }}\n")).collect();
    let extra = format!(
        "network {{\n {ports} }}\n service {{\n name = \"web\"\n provider = \"nomad\"\n port = \"known\"\n {checks} }}\n"
    );
    crate::script_job("web", "exec sleep 1000").replacen("task \"t\"", &format!("{extra} task \"t\""), 1)
}

#[test]
fn checks_use_the_configured_ca() -> Result<()> {
    let (certificates, others) = (Certificates::make()?, Certificates::make()?);
    let agent = certificates.trusting_agent()?;
    let ((cert, key), (cert2, key2)) = (certificates.pair(), others.pair());
    let (own, strange) = (Pair { cert: &cert, key: &key }, Pair { cert: &cert2, key: &key2 });
    let answer = |asked: &Asked| match asked.path.as_str() {
        "/well" => Answer::good("well"),
        _ => Answer::status(503),
    };
    let known = WebServer::start(Some(own), answer)?;
    let stranger = WebServer::start(Some(strange), answer)?;
    let (health, foreign) = (WebServer::grpc_health(Some(own))?, WebServer::grpc_health(Some(strange))?);
    let open = WebServer::grpc_health(None)?;
    let ports = [
        ("known", known.port()),
        ("stranger", stranger.port()),
        ("health", health.port()),
        ("foreign", foreign.port()),
        ("open", open.port()),
    ];
    let (web, skip) = ("type = \"http\"\n protocol = \"https\"\n path = \"/well\"", "tls_skip_verify = true");
    let grpc = "type = \"grpc\"\n grpc_use_tls = true";
    let named = |name: &str| format!("tls_server_name = \"{name}\"");
    let untrusted = "signed by an authority that is not trusted here";
    // The name, the port, the settings, and the output of a failing check.
    let table = [
        ("https", "known", web.to_owned(), ""),
        ("https-ill", "known", web.replace("/well", "/ill"), "503"),
        ("https-doubtful", "stranger", web.to_owned(), untrusted),
        ("https-believed", "stranger", format!("{web}\n {skip}"), ""),
        ("http-plain", "known", web.replace("https", "http"), "127.0.0.1"),
        ("grpc", "health", grpc.to_owned(), ""),
        ("grpc-named", "health", format!("{grpc}\n {}", named("server.global.nomad")), ""),
        ("grpc-misnamed", "health", format!("{grpc}\n {}", named("example.com")), "not for example.com"),
        ("grpc-doubtful", "foreign", grpc.to_owned(), untrusted),
        ("grpc-believed", "foreign", format!("{grpc}\n {skip}"), ""),
        ("grpc-open", "open", "type = \"grpc\"".to_owned(), ""),
        ("grpc-no-tls", "open", grpc.to_owned(), "does not speak TLS"),
    ];
    let checks: String = table.iter().map(|(name, port, settings, _)| check(name, port, settings)).collect();
    run_job(&agent, "web", &job(&ports, &checks))?;
    let alloc = id_of(&agent.wait_alloc("web", "running")?)?;
    let found = eventually("all checks to be looked at", || {
        let checks = agent.get(&format!("/v1/client/allocation/{alloc}/checks"))?;
        let named: BTreeMap<String, (String, String)> = checks
            .as_object()
            .into_iter()
            .flat_map(|map| map.values())
            .map(|check| {
                let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
                let code = check["StatusCode"].as_u64().filter(|code| *code > 0).unwrap_or_default();
                (text("Check"), (text("Status"), format!("{code} {}", text("Output"))))
            })
            .collect();
        let pending = named.values().any(|(status, _)| status == "pending");
        if named.len() == table.len() && !pending { Ok(named) } else { bail!("{checks}") }
    })?;
    for (name, _, _, words) in &table {
        let (status, output) = &found[*name];
        let expected = if words.is_empty() { "success" } else { "failure" };
        ensure!(status == expected && output.contains(words), "{name}: {status}, {output}");
    }
    ensure!(health.asked().iter().all(|asked| asked.method == "POST"));
    Ok(())
}
