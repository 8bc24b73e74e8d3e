//! Checks of programs that run next to a task and exchange input and output with their caller.

use super::{Behaviour, Check, Fixture, begin, end, expect, soon};
use crate::Error;
use crate::driver::Driver;
use crate::session::{ExecEvent, ExecInput, ExecRequest};
use crate::task::TaskId;
use std::sync::Arc;
use std::time::Duration;

/// The output and the exit code of a program.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    out: String,
    err: String,
    code: i32,
}

fn seen(out: &str, err: &str, code: i32) -> Seen {
    Seen { out: out.to_owned(), err: err.to_owned(), code }
}

/// Runs a script and sends it messages. The last one needs no reader.
async fn run(
    driver: &Arc<dyn Driver>,
    id: &TaskId,
    script: &str,
    tty: bool,
    input: &[ExecInput],
) -> Result<Seen, String> {
    let command = ["sh", "-c", script].map(str::to_owned).into();
    let mut stream = soon("exec", driver.exec_stream(id, ExecRequest { command, tty })).await?;
    for message in input {
        let sent = stream.input.send(message.clone()).await;
        sent.map_err(|_| format!("{script:?} takes no input"))?;
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = async {
        while let Some(event) = stream.output.recv().await {
            match event? {
                ExecEvent::Stdout(data) => out.extend(data),
                ExecEvent::Stderr(data) => err.extend(data),
                ExecEvent::StdoutClosed | ExecEvent::StderrClosed => {}
                ExecEvent::Exited(code) => return Ok(code),
            }
        }
        Err(Error::Refused("the stream ended without an exit code".into()))
    };
    let code = soon(script, ended).await?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Seen { out: text(out), err: text(err), code })
}

fn same(what: &str, found: Seen, expected: &Seen) -> Check {
    expect(found == *expected, || format!("{what}: {found:?}, not {expected:?}"))
}

pub(super) async fn streams(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().exec {
        return Ok(());
    }
    let Some(handle) = begin(fixture, &driver, "streams", Behaviour::Shell).await? else { return Ok(()) };
    let id = handle.task_id;
    let both = "echo hello stdout; echo hello stderr >&2; exit 43";
    let found = run(&driver, &id, both, false, &[]).await?;
    same("both outputs", found, &seen("hello stdout\n", "hello stderr\n", 43))?;
    let typed = ExecInput::Data(b"hello from stdin\n".into());
    let found = run(&driver, &id, "head -n1", false, std::slice::from_ref(&typed)).await?;
    same("input", found, &seen("hello from stdin\n", "", 0))?;
    let found = run(&driver, &id, "cat", false, &[typed, ExecInput::Close]).await?;
    same("the end of the input", found, &seen("hello from stdin\n", "", 0))?;
    let found = run(&driver, &id, "stty size", false, &[]).await?;
    expect(found.code == 1 && !found.err.is_empty(), || format!("a terminal without request: {found:?}"))?;
    let command = ["/no/such/program".to_owned()];
    let output = driver.exec(&id, &command, super::TIMEOUT).await;
    let refused = output.map_or(true, |output| output.exit_code != 0);
    expect(refused, || "a program that does not exist runs".into())?;
    let command = ["sleep", "100000"].map(str::to_owned);
    let answer = driver.exec(&id, &command, Duration::from_millis(200)).await;
    expect(matches!(answer, Err(Error::Timeout { .. })), || format!("{answer:?}"))?;
    end(&driver, &id).await
}

pub(super) async fn terminals(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().exec {
        return Ok(());
    }
    let Some(handle) = begin(fixture, &driver, "terminals", Behaviour::Shell).await? else { return Ok(()) };
    let id = handle.task_id;
    let both = "echo hello stdout; echo hello stderr >&2; exit 43";
    let found = run(&driver, &id, both, true, &[]).await?;
    same("one output", found, &seen("hello stdout\r\nhello stderr\r\n", "", 43))?;
    let sizes = [(50, 40), (100, 100)].map(|(rows, columns)| ExecInput::Resize { rows, columns });
    // The size may change after the start of the program.
    let found = run(
        &driver,
        &id,
        "until [ \"$(stty size 2>/dev/null)\" = \"100 100\" ]; do sleep 0.02; done; stty size",
        true,
        &sizes,
    );
    same("the size", found.await?, &seen("100 100\r\n", "", 0))?;
    let typed = ExecInput::Data(b"typed\n".into());
    let found = run(&driver, &id, "head -n1", true, &[typed]).await?;
    same("the echo of input", found, &seen("typed\r\ntyped\r\n", "", 0))?;
    // A program in the background does not hold the end of a terminal.
    let found = run(&driver, &id, "(sleep 1000 &); echo from main", true, &[]).await?;
    same("a background program", found, &seen("from main\r\n", "", 0))?;
    end(&driver, &id).await
}
