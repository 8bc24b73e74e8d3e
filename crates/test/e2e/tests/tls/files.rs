//! Downloads over TLS: artifacts, and job files.

use super::Certificates;
use crate::{batch_job, id_of};
use anyhow::{Result, ensure};

fn with_artifact(name: &str, artifact: &str) -> String {
    let artifact = format!("artifact {{\n {artifact}\n }}");
    batch_job(name, "raw_exec", "cat local/greeting", &artifact)
}

#[test]
fn files_come_over_tls() -> Result<()> {
    let (certificates, others) = (Certificates::make()?, Certificates::make()?);
    let agent = certificates.trusting_agent()?;
    let known = certificates.serve("good morning\n")?;
    let stranger = others.serve("good evening\n")?;
    let address = format!("http://{}", agent.address());
    let ca = certificates.ca();
    let env = [("CARAVAN_ADDR", address.as_str()), ("SSL_CERT_FILE", ca.as_str())];
    for (name, artifact, reported) in [
        ("trusted", format!("source = \"https://127.0.0.1:{}/greeting\"", known.port()), "good morning\n"),
        (
            "believed",
            format!("source = \"https://localhost:{}/greeting\"\n insecure = true", stranger.port()),
            "good evening\n",
        ),
    ] {
        // The job files are fetched over TLS too.
        let jobs = certificates.serve(with_artifact(name, &artifact))?;
        let url = format!("https://{}/job.nomad.hcl", jobs.address());
        certificates.run(&env, &["job", "run", "-detach", &url])?.ok()?;
        let alloc = id_of(&agent.wait_alloc(name, "complete")?)?;
        let found = agent.logs(&alloc, "t", "stdout")?;
        ensure!(found == reported, "{found:?}");
    }
    let doubtful =
        with_artifact("doubtful", &format!("source = \"https://{}/greeting\"", stranger.address()));
    crate::run_job(&agent, "doubtful", &doubtful)?;
    let alloc = agent.wait_alloc("doubtful", "failed")?;
    let events = alloc["TaskStates"]["t"]["Events"].to_string();
    ensure!(events.contains("signed by an authority that is not trusted here"), "{events}");
    let url = format!("https://{}/job.nomad.hcl", stranger.address());
    let reported = certificates.run(&env, &["job", "run", "-detach", &url])?.failed()?.stderr;
    ensure!(
        reported.contains("Error getting jobfile") && reported.contains("not trusted here"),
        "{reported}"
    );
    Ok(())
}
