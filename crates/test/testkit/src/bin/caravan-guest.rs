//! The helper in a virtual machine of tests.
//!
//! `serve` executes the requests of a test that arrive over the machine's channel (`caravan_testkit::vm`). `nosync
//! PROGRAM ARGUMENTS` runs a program whose flushes of files succeed without an effect, which plants the fault that
//! the power-cut story must find.

use anyhow::{Context, Result, bail};
use caravan_sys::seccomp::{self, Policy, Rule, Verdict};
use caravan_testkit::vm::protocol::{DIAL, FAILED, Frame, GET, PORT, PUT, RUN};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The pause of the helper while no test is connected.
const IDLE: Duration = Duration::from_millis(20);
/// The timeout for connecting to a server.
const DIAL_TIMEOUT: Duration = Duration::from_secs(120);
/// The directory of files with the output of commands.
const OUTPUTS: &str = "/run/caravan-guest";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((verb, [])) if verb == "serve" => serve(),
        Some((verb, [program, rest @ ..])) if verb == "nosync" => nosync(program, rest),
        _ => bail!("usage: caravan-guest serve | nosync PROGRAM [ARGUMENT...]"),
    }
}

/// Responds to requests for ever, each in a separate thread.
fn serve() -> Result<()> {
    fs::create_dir_all(OUTPUTS).context("create the directory of outputs")?;
    let path = port()?;
    let mut port = File::options().read(true).write(true).open(&path).context("open the channel")?;
    let out = Arc::new(Mutex::new(port.try_clone().context("clone the channel")?));
    loop {
        match Frame::read_from(&mut port) {
            Ok(request) => {
                let out = Arc::clone(&out);
                std::thread::spawn(move || {
                    let response = execute(&request);
                    if let Ok(mut out) = out.lock() {
                        // The test may have ended: no other process reads the error.
                        let _ = response.write_to(&mut *out);
                    }
                });
            }
            // No test is connected.
            Err(_) => std::thread::sleep(IDLE),
        }
    }
}

/// Returns the device of the channel, which the kernel lists by its name.
fn port() -> Result<PathBuf> {
    for entry in fs::read_dir("/sys/class/virtio-ports").context("list the ports of virtio-serial")? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("name")).unwrap_or_default().trim() == PORT {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    bail!("there is no port {PORT}")
}

fn execute(request: &Frame) -> Frame {
    let (code, parts) = match perform(request) {
        Ok(response) => response,
        Err(error) => (FAILED, vec![format!("{error:#}").into_bytes()]),
    };
    Frame { id: request.id, code, parts }
}

fn perform(request: &Frame) -> Result<(i32, Vec<Vec<u8>>)> {
    let text = |part: &Vec<u8>| String::from_utf8(part.clone()).context("a part that is no text");
    match (request.code, request.parts.as_slice()) {
        (RUN, [input, program, arguments @ ..]) => {
            let arguments = arguments.iter().map(text).collect::<Result<Vec<_>>>()?;
            run(request.id, input, &text(program)?, &arguments)
        }
        (PUT, [path, mode, content]) => {
            let mode = u32::from_str_radix(&text(mode)?, 8).context("a mode that is no number")?;
            put(Path::new(&text(path)?), mode, content)?;
            Ok((0, Vec::new()))
        }
        (GET, [path]) => {
            let path = text(path)?;
            Ok((0, vec![fs::read(&path).with_context(|| format!("read {path}"))?]))
        }
        (DIAL, [address, bytes]) => Ok((0, vec![dial(&text(address)?, bytes)?])),
        (kind, parts) => bail!("no request has kind {kind} and {} parts", parts.len()),
    }
}

/// Runs a program to its end. Its output is written to files, because a daemon that outlives it would keep
/// pipes open.
fn run(id: u32, input: &[u8], program: &str, arguments: &[String]) -> Result<(i32, Vec<Vec<u8>>)> {
    let file = |kind: &str| {
        let path = Path::new(OUTPUTS).join(format!("{id}.{kind}"));
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.with_context(|| format!("create {}", path.display()))?;
        fs::remove_file(&path)?;
        Ok::<_, anyhow::Error>(file)
    };
    let (mut out, mut err) = (file("out")?, file("err")?);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
            _ => (),
        }
    }
    let status = child.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
    Ok((code, vec![whole(&mut out)?, whole(&mut err)?]))
}

fn whole(file: &mut File) -> Result<Vec<u8>> {
    use std::io::Seek;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file, so that a reader never reads a partial file.
fn put(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let write = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&next, content)?;
        fs::set_permissions(&next, fs::Permissions::from_mode(mode))?;
        fs::rename(&next, path)
    };
    write().with_context(|| format!("write {}", path.display()))
}

fn dial(address: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(DIAL_TIMEOUT))?;
    stream.write_all(bytes)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("read from {address}"))?;
    Ok(answer)
}

/// Replaces this process by a program for which fsync(2), fdatasync(2), sync(2), syncfs(2), msync(2) and
/// sync_file_range(2) have no effect. Its child processes inherit the rules.
fn nosync(program: &str, arguments: &[String]) -> Result<()> {
    // The numbers of these calls on x86-64, where the machines of tests run.
    const CALLS: [u32; 6] = [26, 74, 75, 162, 277, 306];
    let rules = CALLS.into_iter().map(|call| (call, Rule::Always(Verdict::Errno(0))));
    let policy = Policy {
        rules: rules.collect(),
        other: Verdict::Allow,
        newest: 450,
        newer: Verdict::Allow,
        foreign: Verdict::Allow,
    };
    seccomp::load(&policy.compile()).context("load the filter")?;
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("start {program}"))
}
