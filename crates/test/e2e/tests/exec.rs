//! Programs run in tasks over the API: output, input, exit codes, terminals, actions.

use crate::{DRIVERS, id_of, run_job};
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::{Agent, AgentOptions, Output, eventually};
use std::io::Write;
use std::process::{Command, Stdio};

fn talker(driver: &str) -> String {
    format!(
        r#"
job "talk-{name}" {{
  group "g" {{
    task "talker" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "exec sleep 600"]
      }}
      env {{
        GREETING = "hello"
      }}
      action "greet" {{
        command = "/bin/echo"
        args    = ["hello from", "${{NOMAD_JOB_ID}}"]
      }}
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#,
        name = driver.replace('_', "-")
    )
}

/// Runs the program with standard input.
fn with_input(agent: &Agent, args: &[&str], input: &str) -> Result<Output> {
    let mut child = Command::new(caravan_testkit::program())
        .args(args)
        .env("CARAVAN_ADDR", format!("http://{}", agent.address()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let input = input.as_bytes().to_vec();
    // The input is written in a thread, because the output may fill its pipe before the input is complete.
    let written = std::thread::spawn(move || stdin.write_all(&input));
    let done = child.wait_with_output()?;
    // A program may read less than its input.
    let _ = written.join();
    Ok(Output {
        code: done.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
    })
}

#[test]
fn programs_run_in_the_task_and_answer_as_if_they_ran_here() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    for driver in DRIVERS {
        let job = format!("talk-{}", driver.replace('_', "-"));
        run_job(&agent, &job, &talker(driver))?;
        let alloc = id_of(&agent.wait_alloc(&job, "running")?)?;
        let exec = |args: &[&str]| {
            let mut all = vec!["alloc", "exec", "-i=false", "-t=false", alloc.as_str()];
            all.extend(args);
            agent.caravan(&all)
        };
        let reported = exec(&["/bin/sh", "-c", "echo $GREETING; echo bad >&2; exit 7"])?;
        ensure!(
            (reported.code, reported.stdout.as_str(), reported.stderr.as_str()) == (7, "hello\n", "bad\n"),
            "{reported:?}"
        );
        let missing = exec(&["/no/such"])?;
        ensure!(
            missing.code == 1
                && missing.stderr.contains(
                    "failed to exec into task: rpc error: code = Unknown desc = failed to start command: fork/exec /no/such: no such file or directory"
                ),
            "{missing:?}"
        );
        let echoed = with_input(&agent, &["alloc", "exec", "-t=false", &alloc, "/bin/cat"], "typed\n")?;
        ensure!((echoed.code, echoed.stdout.as_str()) == (0, "typed\n"), "{echoed:?}");
        let much = "0123456789abcdef\n".repeat(120_000);
        let back = with_input(&agent, &["alloc", "exec", "-t=false", &alloc, "/bin/cat"], &much)?;
        ensure!(
            back.code == 0 && back.stdout == much,
            "{} bytes came back: {}",
            back.stdout.len(),
            back.stderr
        );
        // A terminal carries errors too, ends lines with CR LF, and ends input with Ctrl-D.
        let script = "test -t 0 && test -t 1 && echo yes; echo oops >&2; cat; exit 4";
        let tty = with_input(&agent, &["alloc", "exec", "-t=true", &alloc, "/bin/sh", "-c", script], "in\n")?;
        ensure!(tty.code == 4 && tty.stderr.is_empty(), "{tty:?}");
        ensure!(["yes\r\n", "oops\r\n", "in\r\n"].iter().all(|text| tty.stdout.contains(text)), "{tty:?}");
        let action =
            agent.caravan(&["job", "action", "-i=false", "-t=false", "-job", &job, "greet"])?.ok()?;
        ensure!(action.stdout == format!("hello from {job}\n"), "{action:?}");
    }
    let nope = agent.caravan(&["alloc", "exec", "-task", "nope", "-job", "talk-exec", "true"])?;
    ensure!(
        nope.code == 1 && nope.stderr.contains("Could not find task named: nope, found:\ntalker"),
        "{nope:?}"
    );
    Ok(())
}

#[test]
fn programs_run_on_other_nodes_through_any_agent() -> Result<()> {
    let server = Agent::with(AgentOptions { client: false, ..AgentOptions::default() })?;
    let client = || Agent::with(AgentOptions::client_of(&server));
    let (one, two) = (client()?, client()?);
    run_job(&server, "talk-raw-exec", &talker("raw_exec"))?;
    let alloc = id_of(&server.wait_alloc("talk-raw-exec", "running")?)?;
    for agent in [&server, &one, &two] {
        let reported = with_input(
            agent,
            &["alloc", "exec", "-t=false", &alloc, "/bin/sh", "-c", "cat; exit 3"],
            "far\n",
        )?;
        ensure!((reported.code, reported.stdout.as_str()) == (3, "far\n"), "{reported:?}");
    }
    let unknown =
        server.request("GET", "/v1/client/allocation/11111111-2222-3333-4444-555555555555/exec", None)?;
    ensure!(
        unknown.status == 500 && unknown.text() == "websocket connection not found in context",
        "{}",
        unknown.text()
    );
    Ok(())
}

#[test]
fn a_program_ends_when_its_caller_goes_away() -> Result<()> {
    let agent = Agent::with(AgentOptions { dev: true, ..AgentOptions::default() })?;
    run_job(&agent, "talk-raw-exec", &talker("raw_exec"))?;
    let alloc = id_of(&agent.wait_alloc("talk-raw-exec", "running")?)?;
    let mut child = Command::new(caravan_testkit::program())
        .args(["alloc", "exec", "-t=false", &alloc, "/bin/sh", "-c", "touch local/runs; exec sleep 4242"])
        .env("CARAVAN_ADDR", format!("http://{}", agent.address()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let count = || -> Result<usize> {
        let mut found = 0;
        for entry in std::fs::read_dir("/proc")? {
            let Ok(line) = std::fs::read(entry?.path().join("cmdline")) else { continue };
            found += usize::from(line == b"sleep\x004242\x00");
        }
        Ok(found)
    };
    eventually("the program to run", || if count()? == 1 { Ok(()) } else { bail!("not yet") })?;
    child.kill()?;
    child.wait()?;
    eventually("the program to end", || if count()? == 0 { Ok(()) } else { bail!("it runs on") })
}
