//! Artifacts: fetched before a task starts, unpacked at the destination in the job, and nowhere else.

use crate::{DRIVERS, batch_job, id_of, run_job};
use anyhow::{Result, anyhow, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Answer, WebServer, eventually};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Serves files by their paths; `/moved` redirects to `/plain`, `/closed` requires a header.
fn serve(files: BTreeMap<String, Vec<u8>>) -> Result<WebServer> {
    WebServer::start(None, move |asked| {
        let opened = asked.headers.get("x-key").is_some_and(|key| key == "sesame");
        // The query string is for the downloader.
        let path = asked.path.split('?').next().unwrap_or_default();
        match (path, files.get(path)) {
            ("/moved", _) => {
                Answer { headers: vec![("location", "/plain".to_owned())], ..Answer::status(302) }
            }
            ("/closed", _) if !opened => Answer::status(403),
            (_, Some(body)) => Answer::good(body.clone()),
            (_, None) => Answer::status(404),
        }
    })
}

/// Creates a tar.gz with a directory `top` and a file in it; with `evil`, also entries outside it.
fn archive(dir: &std::path::Path, evil: bool) -> Result<Vec<u8>> {
    let top = dir.join("top");
    fs::create_dir_all(top.join("sub"))?;
    fs::write(top.join("sub/inside"), "from the archive\n")?;
    let name = if evil { "evil.tar.gz" } else { "good.tar.gz" };
    let mut tar = Command::new("tar");
    tar.current_dir(dir).args(["-czf", name]);
    if evil {
        tar.args(["-P", "--transform", "s,^top,../../../../evil,"]);
    }
    ensure!(tar.arg("top").status()?.success(), "tar fails");
    Ok(fs::read(dir.join(name))?)
}

fn job(name: &str, driver: &str, artifacts: &str) -> String {
    let script =
        "cd $NOMAD_TASK_DIR; find . -type f | sort; cat plain other/renamed whole/top/sub/inside part/inside";
    batch_job(name, driver, script, artifacts)
}

#[test]
fn artifacts_are_there_when_the_task_starts() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let plain = b"plain text\n".to_vec();
    let files = [
        ("/plain", plain.clone()),
        ("/closed", b"closed text\n".to_vec()),
        ("/good.tar.gz", archive(agent.dir(), false)?),
    ];
    let server = serve(files.map(|(path, body)| (path.to_owned(), body)).into())?;
    let address = server.address();
    let sum = Command::new("sha256sum").arg(write(&agent, "plain", &plain)?).output()?;
    let sum = String::from_utf8(sum.stdout)?;
    let sum = sum.split(' ').next().unwrap_or_default();
    let artifacts = format!(
        r#"
      artifact {{
        source = "http://{address}/moved?filename=plain"
        options {{
          checksum = "sha256:{sum}"
        }}
      }}
      artifact {{
        source      = "http://{address}/closed"
        destination = "local/other/renamed"
        mode        = "file"
        headers {{
          X-Key = "sesame"
        }}
      }}
      artifact {{
        source      = "http://{address}/good.tar.gz"
        destination = "${{NOMAD_TASK_DIR}}/whole"
      }}
      artifact {{
        source      = "http://{address}/good.tar.gz//top/sub"
        destination = "local/part"
      }}
"#
    );
    for driver in DRIVERS {
        let name = format!("fetch-{}", driver.replace('_', "-"));
        run_job(&agent, &name, &job(&name, driver, &artifacts))?;
        let alloc = id_of(&agent.wait_alloc(&name, "complete")?)?;
        let out = agent.logs(&alloc, "t", "stdout")?;
        ensure!(
            out == "./other/renamed\n./part/inside\n./plain\n./whole/top/sub/inside\n\
                    plain text\nclosed text\nfrom the archive\nfrom the archive\n",
            "{out}"
        );
        expect_event(&agent, &alloc, "Downloading Artifacts", "Client is downloading artifacts")?;
    }
    Ok(())
}

#[test]
fn what_cannot_or_must_not_be_fetched_fails_the_task_with_a_sentence() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let files = [("/plain", b"x".to_vec()), ("/evil.tar.gz", archive(agent.dir(), true)?)];
    let server = serve(files.map(|(path, body)| (path.to_owned(), body)).into())?;
    let address = server.address();
    let zeros = "0".repeat(64);
    for (i, (artifact, words)) in [
        (format!("source = \"http://{address}/none\""), "bad response code: 404"),
        (
            format!("source = \"http://user:hunter2@{address}/plain\"\n options {{\n checksum = \"sha256:{zeros}\"\n }}"),
            "checksums do not match",
        ),
        (format!("source = \"http://{address}/evil.tar.gz\""), "leads out of the destination"),
        (format!("source = \"http://{address}/plain\"\n destination = \"../g/x\""), "leads out of the directories"),
        (format!("source = \"http://{address}/plain\"\n mode = \"dir\""), "needs an archive"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("bad-{i}");
        run_job(&agent, &name, &job(&name, "raw_exec", &format!("artifact {{\n {artifact}\n }}")))?;
        let alloc = id_of(&agent.wait_alloc(&name, "failed")?)?;
        expect_event(&agent, &alloc, "Failed Artifact Download", words)?;
    }
    ensure!(!agent.dir().join("evil").exists() && !agent.data_dir().join("evil").exists());
    let path = write(
        &agent,
        "git.nomad.hcl",
        job("git", "raw_exec", "artifact {\n source = \"git::https://x/y\"\n }").as_bytes(),
    )?;
    let refused = agent.caravan(&["job", "run", &path])?;
    ensure!(
        refused.code == 1 && refused.stderr.contains("artifacts from git are not supported yet"),
        "{refused:?}"
    );
    ensure!(!agent.log().contains("hunter2"), "the agent's log holds a password");
    Ok(())
}

fn write(agent: &Agent, name: &str, bytes: &[u8]) -> Result<String> {
    let path = agent.dir().join(name);
    fs::write(&path, bytes)?;
    path.to_str().map(str::to_owned).ok_or_else(|| anyhow!("a path that is no text"))
}

/// Waits for a task event with these words.
fn expect_event(agent: &Agent, alloc: &str, kind: &str, words: &str) -> Result<()> {
    eventually(&format!("the event {kind}: {words}"), || {
        let state = agent.get(&format!("/v1/allocation/{alloc}"))?["TaskStates"]["t"].clone();
        let is = |event: &Value| {
            event["Type"] == kind && event["DisplayMessage"].as_str().is_some_and(|text| text.contains(words))
        };
        if state["Events"].as_array().is_some_and(|all| all.iter().any(is)) {
            Ok(())
        } else {
            bail!("{state}")
        }
    })
}
