//! Errors about bad input, which name the faulty field or object.

use crate::{create_volume, id_of, run_job, run_plugin};
use anyhow::{Result, ensure};
use caravan_testkit::{Agent, AgentOptions, Writer, eventually, program, volume_spec, writer_job};
use std::fs;
use std::net::TcpListener;
use std::process::Command;

#[test]
fn without_an_agent_the_address_is_named() -> Result<()> {
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let out = Command::new(program())
        .args(["job", "status"])
        .env("CARAVAN_ADDR", format!("http://{free}"))
        .output()?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(!out.status.success() && text.contains(&free.to_string()), "{text}");
    ensure!(!text.contains("panicked"), "{text}");
    Ok(())
}

#[test]
fn a_port_in_use_and_a_directory_that_cannot_be_written_are_named() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port();
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("agent.hcl");
    fs::write(&config, format!("bind_addr = \"127.0.0.1\"\nports {{\n http = {port}\n}}\n"))?;
    let out = Command::new(program()).args(["agent", "-dev", "-config"]).arg(&config).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(!out.status.success() && text.contains(&port.to_string()) && text.contains("in use"), "{text}");

    // Root can write anywhere except below a file.
    let file = dir.path().join("file");
    fs::write(&file, "")?;
    fs::write(
        &config,
        format!(
            "bind_addr = \"127.0.0.1\"\ndata_dir = \"{}/data\"\nserver {{\n enabled = true\n bootstrap_expect = 1\n}}\nadvertise {{\n http = \"127.0.0.1\"\n rpc = \"127.0.0.1\"\n}}\n",
            file.display()
        ),
    )?;
    let out = Command::new(program()).args(["agent", "-config"]).arg(&config).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(!out.status.success() && text.contains(&*file.to_string_lossy()), "{text}");
    ensure!(!text.contains("panicked"), "{text}");
    Ok(())
}

#[test]
fn configuration_mistakes_are_shown_with_their_place() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("agent.hcl");
    fs::write(&config, "data_dri = \"/tmp/x\"\n")?;
    let out = Command::new(program()).args(["agent", "-dev", "-config"]).arg(&config).output()?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    ensure!(!out.status.success() && text.contains("data_dri") && text.contains("data_dir"), "{text}");
    Ok(())
}

#[test]
fn job_file_errors_point_at_the_place() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let path = agent.dir().join("bad.nomad.hcl");
    fs::write(&path, "job \"x\" {\n  group \"g\" {\n    cuont = 2\n  }\n}\n")?;
    let out = agent.caravan(&["job", "run", &path.to_string_lossy()])?.failed()?;
    ensure!(out.stderr.contains("bad.nomad.hcl") && out.stderr.contains("cuont"), "{}", out.stderr);
    ensure!(out.stderr.contains("count"), "the nearest known name is suggested: {}", out.stderr);
    ensure!(out.stderr.contains('3'), "the line is named: {}", out.stderr);
    Ok(())
}

const REFUSED: &str = "job \"x\" {\n  type = \"strange\"\n  group \"g\" {\n    task \"t\" {\n      driver = \"mock_driver\"\n      \
                       resources {\n        memory = 1\n      }\n    }\n  }\n}\n";

/// Checks that every problem is shown with its path and line, whether a server or the command line finds it.
#[test]
fn refused_jobs_are_shown_with_their_lines() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let path = agent.dir().join("refused.nomad.hcl");
    fs::write(&path, REFUSED)?;
    let path = path.to_string_lossy();
    let alone = |verb: &str| -> Result<String> {
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let out = Command::new(program())
            .args(["job", verb, &path])
            .env("CARAVAN_ADDR", format!("http://{free}"))
            .output()?;
        ensure!(!out.status.success());
        Ok(String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let reported = ["run", "plan", "validate"].map(|verb| agent.caravan(&["job", verb, &path]));
    let mut texts = vec![alone("validate")?];
    for out in reported {
        texts.push(out?.stderr);
    }
    for text in &texts {
        for part in [
            "2 errors occurred:\n\t* Invalid job type: \"strange\"",
            "[E0701] Error: job \"x\" > group \"g\" > task \"t\"",
            "refused.nomad.hcl:7:9",
            "minimum MemoryMB value is 10; got 1",
            "refused.nomad.hcl:2:3",
        ] {
            ensure!(text.contains(part), "{part} is not in {text}");
        }
    }
    ensure!(texts[0].contains("without an agent"), "{}", texts[0]);
    let json = agent.caravan(&["job", "validate", "-diagnostics", "json", &path])?.failed()?.stderr;
    let found: serde_json::Value = serde_json::from_str(&json)?;
    ensure!(found["diagnostics"][1]["range"]["start"]["line"] == 7, "{json}");
    Ok(())
}

const THREE_FAULTS: &str = "job \"x\" {\n  update {\n    min_healthy_time = \"20m\"\n  }\n  group \"g\" {\n    volume \"data\" {\n      type            = \"csi\"\n      \
                            source          = \"data\"\n      attachment_mode = \"file-system\"\n      access_mode     = \"single-node-writer\"\n    }\n    \
                            count = 2\n    task \"t\" {\n      driver = \"mock_driver\"\n      env {\n        A = 1\n      }\n      \
                            volume_mount {\n        volume = \"dta\"\n      }\n    }\n  }\n}\n";

/// Checks that the data of the answer gives the places of three errors whose sentences name no place.
#[test]
fn three_faults_of_a_job_are_shown_where_they_were_written() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let path = agent.dir().join("three.nomad.hcl");
    fs::write(&path, THREE_FAULTS)?;
    let path = path.to_string_lossy();
    let job = agent.caravan(&["job", "run", "-output", &path])?.ok()?.stdout;
    let body: serde_json::Value = serde_json::from_str(&job)?;
    let plain = agent.request("PUT", "/v1/jobs", Some(&body))?;
    let asked = agent.request("PUT", "/v1/jobs?caravan_problems=true", Some(&body))?;
    let asked: serde_json::Value = serde_json::from_str(&asked.text())?;
    let sentence = plain.text();
    ensure!(plain.status == 500 && asked["Error"] == sentence, "the text is the same: {sentence}");
    ensure!(sentence.starts_with("1 error occurred:\n\t* Task group g validation failed: "), "{sentence}");
    let paths: Vec<_> =
        asked["CaravanProblems"].as_array().into_iter().flatten().map(|one| &one["Path"]).collect();
    ensure!(
        paths
            == [
                "Update.MinHealthyTime",
                "TaskGroups[0].Volumes[\"data\"].AccessMode",
                "TaskGroups[0].Tasks[0].VolumeMounts[0].Volume",
            ],
        "{paths:?}"
    );
    for verb in ["run", "plan", "validate"] {
        let text = agent.caravan(&["job", verb, &path])?.failed()?.stderr;
        ensure!(text.contains(sentence.trim_end()), "the text comes first: {text}");
        for part in ["three.nomad.hcl:3:5", "three.nomad.hcl:10:7", "three.nomad.hcl:19:9"] {
            ensure!(text.contains(part), "{part} is not in {text}");
        }
    }
    Ok(())
}

/// Runs a job file from a web server. URLs of schemes other than HTTP and HTTPS are refused.
#[test]
fn jobs_come_from_urls() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let server = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/jobs/x.nomad.hcl", server.local_addr()?);
    let text = REFUSED.replace("strange", "batch").replace("memory = 1", "memory = 16");
    let serving = std::thread::spawn(move || -> std::io::Result<String> {
        use std::io::{Read as _, Write as _};
        let (mut stream, _) = server.accept()?;
        let mut head = [0; 1024];
        let read = stream.read(&mut head)?;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
        Ok(String::from_utf8_lossy(&head[..read]).into_owned())
    });
    agent.caravan(&["job", "run", "-detach", &url])?.ok()?;
    let asked = serving.join().map_err(|_| anyhow::anyhow!("the server failed"))??;
    ensure!(asked.starts_with("GET /jobs/x.nomad.hcl HTTP/1.1\r\n"), "{asked}");
    ensure!(agent.get("/v1/job/x")?["Type"] == "batch");
    let out = agent.caravan(&["job", "run", "ftp://127.0.0.1/x.nomad.hcl"])?.failed()?;
    ensure!(out.stderr.contains("only http:// and https:// are supported"), "{}", out.stderr);
    Ok(())
}

#[test]
fn bidirectional_on_a_read_only_mount_is_refused() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    let text = writer_job(&writer("w", "data")).replace(
        "destination = ",
        "read_only = true\n propagation_mode = \"bidirectional\"\n destination = ",
    );
    let path = agent.dir().join("w.nomad.hcl");
    fs::write(&path, text)?;
    let out = agent.caravan(&["job", "run", &path.to_string_lossy()])?.failed()?;
    ensure!(out.stderr.contains("bidirectional") && out.stderr.contains("read-only"), "{}", out.stderr);
    Ok(())
}

fn writer(id: &str, volume: &str) -> Writer {
    Writer {
        id: id.into(),
        driver: "raw_exec".into(),
        volume: volume.into(),
        access_mode: "single-node-writer".into(),
        word: id.into(),
    }
}

fn waits_because(agent: &Agent, job: &str, words: &[&str]) -> Result<()> {
    eventually(&format!("job {job} to say why it waits"), || {
        let out = agent.caravan(&["job", "status", job])?.ok()?;
        for word in words {
            ensure!(out.stdout.contains(word), "no {word:?} in\n{}", out.stdout);
        }
        Ok(())
    })
}

#[test]
fn storage_mistakes_are_sentences() -> Result<()> {
    let agent = Agent::start()?;
    // A plugin that is not running.
    let spec = agent.dir().join("v.hcl");
    fs::write(&spec, volume_spec("lonely", "single-node-writer"))?;
    let out = agent.caravan(&["volume", "create", &spec.to_string_lossy()])?.failed()?;
    ensure!(out.stderr.contains("no CSI plugin named: hostpath"), "{}", out.stderr);
    // A volume that does not exist.
    run_job(&agent, "early", &writer_job(&writer("early", "missing")))?;
    waits_because(&agent, "early", &["missing"])?;
    // A mode that the volume does not have.
    run_plugin(&agent, "raw_exec", &[])?;
    create_volume(&agent, "readers", "multi-node-reader-only")?;
    let wrong = agent.dir().join("wrong.nomad.hcl");
    fs::write(&wrong, writer_job(&writer("wrong", "readers")))?;
    let out = agent.caravan(&["job", "run", "-detach", &wrong.to_string_lossy()])?.failed()?;
    ensure!(out.stderr.contains("volume \"readers\" cannot be used"), "{}", out.stderr);
    ensure!(out.stderr.contains("multi-node-reader-only"), "{}", out.stderr);
    // A second writer, and a volume in use.
    create_volume(&agent, "busy", "single-node-writer")?;
    run_job(&agent, "first", &writer_job(&writer("first", "busy")))?;
    let first = id_of(&agent.wait_alloc("first", "running")?)?;
    run_job(&agent, "second", &writer_job(&writer("second", "busy")))?;
    waits_because(&agent, "second", &["busy"])?;
    let out = agent.caravan(&["volume", "delete", "busy"])?.failed()?;
    ensure!(out.stderr.contains("volume in use: busy") && out.stderr.contains(&first[..8]), "{}", out.stderr);
    let out = agent.caravan(&["volume", "deregister", "busy"])?.failed()?;
    ensure!(out.stderr.contains("volume in use: busy"), "{}", out.stderr);
    // Commands on objects that do not exist.
    let out = agent.caravan(&["volume", "status", "nothing"])?.failed()?;
    ensure!(out.all().contains("nothing"), "{}", out.all());
    let out = agent.caravan(&["plugin", "status", "nothing"])?.failed()?;
    ensure!(out.all().contains("nothing"), "{}", out.all());
    Ok(())
}
