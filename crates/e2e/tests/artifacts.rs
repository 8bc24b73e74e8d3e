//! Artifacts: fetched before a task starts, unpacked where the job says, and nowhere else.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Context, Result, anyhow, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, eventually};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// Serves files by their paths; `/moved` sends on to `/plain`, `/closed` wants a header.
fn serve(files: BTreeMap<String, Vec<u8>>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let files = Arc::new(files);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = Arc::clone(&files);
            // A client that went away is its own affair.
            thread::spawn(move || answer(stream, &files).ok());
        }
    });
    Ok(address)
}

fn answer(mut stream: TcpStream, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().context("a request")??;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut opened = false;
    for line in lines {
        let line = line?.to_lowercase();
        if line.is_empty() {
            break;
        }
        opened |= line == "x-key: sesame";
    }
    let (status, more, body): (&str, &str, &[u8]) = match (path.as_str(), files.get(&path)) {
        ("/moved", _) => ("302 Found", "Location: /plain\r\n", b""),
        ("/closed", _) if !opened => ("403 Forbidden", "", b""),
        (_, Some(body)) => ("200 OK", "", body),
        (_, None) => ("404 Not Found", "", b""),
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{more}\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    Ok(stream.write_all(body)?)
}

/// A tar.gz with a directory `top`, a file in it, and more if asked for.
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
    format!(
        r#"
job "{name}" {{
  type = "batch"
  group "g" {{
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    task "t" {{
      driver = "{driver}"
      {artifacts}
      config {{
        command = "/bin/sh"
        args    = ["-c", "cd $NOMAD_TASK_DIR; find . -type f | sort; cat plain other/renamed whole/top/sub/inside part/inside"]
      }}
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#
    )
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
    let address = serve(files.map(|(path, body)| (path.to_owned(), body)).into())?;
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
        told(&agent, &alloc, "Downloading Artifacts", "Client is downloading artifacts")?;
    }
    Ok(())
}

#[test]
fn what_cannot_or_must_not_be_fetched_fails_the_task_with_a_sentence() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let files = [("/plain", b"x".to_vec()), ("/evil.tar.gz", archive(agent.dir(), true)?)];
    let address = serve(files.map(|(path, body)| (path.to_owned(), body)).into())?;
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
        told(&agent, &alloc, "Failed Artifact Download", words)?;
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

/// Waits for an event with these words.
fn told(agent: &Agent, alloc: &str, kind: &str, words: &str) -> Result<()> {
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
