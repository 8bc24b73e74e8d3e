//! Commands next to a task.

use crate::host::{Alloc, Plugin, driver, within};
use caravan_proto::plugins::driver::exec_task_streaming_request::{Setup, TerminalSize};
use caravan_proto::plugins::driver::{
    ExecTaskRequest, ExecTaskStreamingIoOperation as Operation, ExecTaskStreamingRequest as Request,
    ExitResult,
};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

type Responses = Streaming<caravan_proto::plugins::driver::ExecTaskStreamingResponse>;

/// A running command.
struct Session {
    /// The caller's side of the input, which stays open.
    _input: mpsc::Sender<Request>,
    responses: Responses,
}

/// The output and the end of a command.
#[derive(Debug, Default, PartialEq)]
struct Left {
    stdout: String,
    stderr: String,
    closed: (bool, bool),
    result: Option<ExitResult>,
}

fn data(text: &str) -> Request {
    let stdin = Some(Operation { data: text.as_bytes().to_vec(), close: false });
    Request { stdin, ..Request::default() }
}

fn size(height: i32, width: i32) -> Request {
    Request { tty_size: Some(TerminalSize { height, width }), ..Request::default() }
}

fn close() -> Request {
    Request { stdin: Some(Operation { data: Vec::new(), close: true }), ..Request::default() }
}

impl Session {
    async fn start(plugin: &Plugin, id: &str, script: &str, tty: bool, first: Vec<Request>) -> Self {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let setup = Some(Setup { task_id: id.into(), command, tty });
        let (input, requests) = mpsc::channel(16);
        input.send(Request { setup, ..Request::default() }).await.unwrap();
        for request in first {
            input.send(request).await.unwrap();
        }
        let mut driver = plugin.driver();
        let responses = driver.exec_task_streaming(ReceiverStream::new(requests));
        Self { _input: input, responses: within(responses).await.unwrap().into_inner() }
    }

    async fn finish(mut self) -> Result<Left, Status> {
        let mut left = Left::default();
        while let Some(response) = within(self.responses.message()).await? {
            if let Some(stdout) = response.stdout {
                left.stdout += std::str::from_utf8(&stdout.data).unwrap();
                left.closed.0 |= stdout.close;
            }
            if let Some(stderr) = response.stderr {
                left.stderr += std::str::from_utf8(&stderr.data).unwrap();
                left.closed.1 |= stderr.close;
            }
            if response.exited {
                left.result = response.result;
            }
        }
        Ok(left)
    }
}

async fn run(plugin: &Plugin, id: &str, script: &str, tty: bool, first: Vec<Request>) -> Left {
    Session::start(plugin, id, script, tty, first).await.finish().await.unwrap()
}

fn left(stdout: &str, stderr: &str, exit_code: i32) -> Left {
    let result = Some(ExitResult { exit_code, ..ExitResult::default() });
    Left { stdout: stdout.into(), stderr: stderr.into(), closed: (true, true), result }
}

async fn task(alloc: &Alloc) -> (Plugin, String) {
    let plugin = driver(alloc.dir.path()).await;
    let task = alloc.script("web", "sleep 600");
    alloc.start(&plugin, &task.config).await.unwrap();
    (plugin, task.config.id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_once() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    let request = |script: &str, timeout: Duration| ExecTaskRequest {
        task_id: id.clone(),
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        timeout: Some(timeout.try_into().unwrap()),
    };
    let minute = Duration::from_secs(60);
    let call = request("echo $GREETING; echo problem >&2; exit 43", minute);
    let done = within(plugin.driver().exec_task(call)).await.unwrap().into_inner();
    assert_eq!((done.stdout.as_slice(), done.stderr.as_slice()), (&b"hello\n"[..], &b"problem\n"[..]));
    assert_eq!(done.result.unwrap().exit_code, 43);
    let call = request("sleep 600", Duration::from_millis(20));
    let error = within(plugin.driver().exec_task(call)).await.unwrap_err();
    assert!(error.message().contains("did not end within"), "{error}");
    let call = ExecTaskRequest { task_id: "none".into(), ..request("true", minute) };
    let error = within(plugin.driver().exec_task(call)).await.unwrap_err();
    assert_eq!(error.message(), "task not found for given id");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_have_no_limit() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    // The usual limit of gRPC is 4 MiB.
    let size = 6 << 20;
    let command = ["head", "-c", &size.to_string(), "/dev/zero"].map(str::to_owned).to_vec();
    let timeout = Some(Duration::from_secs(60).try_into().unwrap());
    let mut driver = plugin.driver().max_decoding_message_size(usize::MAX);
    let done = within(driver.exec_task(ExecTaskRequest { task_id: id, command, timeout })).await.unwrap();
    assert_eq!(done.into_inner().stdout.len(), size);
    let comment = "x".repeat(size);
    plugin.configure(&serde_json::json!({ "enabled": true, "comment": comment })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_pipes() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    let both = "echo hello stdout; echo hello stderr >&2; exit 43";
    assert_eq!(run(&plugin, &id, both, false, vec![]).await, left("hello stdout\n", "hello stderr\n", 43));
    let input = vec![Request::default(), data("hello from stdin\n")];
    assert_eq!(run(&plugin, &id, "head -n1", false, input).await, left("hello from stdin\n", "", 0));
    let input = vec![data("a"), data("b"), close()];
    assert_eq!(run(&plugin, &id, "cat", false, input).await, left("ab", "", 0));
    let much = run(&plugin, &id, "head -c 300000 /dev/zero | tr '\\0' x", false, vec![]).await;
    assert_eq!(much.stdout.len(), 300_000);
    let no_terminal = run(&plugin, &id, "stty size", false, vec![]).await;
    assert_eq!(no_terminal.result.unwrap().exit_code, 1);
    assert!(no_terminal.stderr.to_lowercase().contains("inappropriate ioctl"), "{no_terminal:?}");
    let behind = "(( sleep 600; echo from background ) & ); echo from main";
    let script = format!("{behind}; echo $$");
    let found = run(&plugin, &id, &script, false, vec![]).await;
    assert!(found.stdout.starts_with("from main\n"), "{found:?}");
    end_sleepers(alloc.dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_a_terminal() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    let both = "echo hello stdout; echo hello stderr >&2; exit 43";
    let expected = left("hello stdout\r\nhello stderr\r\n", "", 43);
    assert_eq!(run(&plugin, &id, both, true, vec![]).await, expected);
    // The command reads its size after it has read a line that follows the sizes.
    let sizes = vec![size(50, 40), size(100, 100), data("go\n")];
    let script = "stty -echo; read line; stty size";
    let found = run(&plugin, &id, script, true, sizes).await;
    assert!(found.stdout.ends_with("100 100\r\n"), "{found:?}");
    let found = run(&plugin, &id, "head -n1", true, vec![data("typed\n")]).await;
    assert_eq!(found, left("typed\r\ntyped\r\n", "", 0));
    let found = run(&plugin, &id, "cat", true, vec![data("line\n"), close()]).await;
    assert_eq!(found, left("line\r\nline\r\n", "", 0));
    let behind = "(( sleep 600; echo from background ) & ); echo from main";
    assert_eq!(run(&plugin, &id, behind, true, vec![]).await, left("from main\r\n", "", 0));
    let found = run(&plugin, &id, "kill -9 $$", true, vec![]).await;
    assert_eq!(found.result.map(|result| (result.exit_code, result.signal)), Some((137, 9)));
    end_sleepers(alloc.dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_and_commands_have_a_user() {
    let alloc = Alloc::new();
    let plugin = driver(alloc.dir.path()).await;
    let mut task = alloc.script("web", "id -u; exec sleep 600");
    task.config.user = "nobody".into();
    task.config.env.insert("LD_PRELOAD".into(), "/nonexistent.so".into());
    let id = task.config.id.clone();
    alloc.start(&plugin, &task.config).await.unwrap();
    task.stdout.wait_for("65534\n");
    let show = "id -u; echo $LD_PRELOAD";
    let found = run(&plugin, &id, show, false, vec![]).await;
    assert_eq!(found.stdout, "65534\n/nonexistent.so\n");
    let found = run(&plugin, &id, "exec 2>/dev/null; id -u; echo $LD_PRELOAD", true, vec![]).await;
    assert!(found.stdout.ends_with("65534\r\n/nonexistent.so\r\n"), "{found:?}");
    let mut unknown = alloc.script("unknown", "true");
    unknown.config.user = "no-such-user".into();
    let error = alloc.start(&plugin, &unknown.config).await.unwrap_err();
    assert!(error.message().contains("no-such-user"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_when_its_user_goes() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    let mut session = Session::start(&plugin, &id, "echo $$; exec sleep 600", false, vec![]).await;
    let first = within(session.responses.message()).await.unwrap().unwrap();
    let pid: u32 = String::from_utf8(first.stdout.unwrap().data).unwrap().trim().parse().unwrap();
    let process = caravan_sys::process::ProcessIdentity::read(pid).unwrap().unwrap();
    drop(session);
    caravan_testkit::eventually("the command ends", || {
        anyhow::ensure!(caravan_sys::process::PidFd::open_identity(process)?.is_none(), "it runs");
        Ok(())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_for_nothing_are_refused() {
    let alloc = Alloc::new();
    let (plugin, id) = task(&alloc).await;
    let missing = Session::start(&plugin, "none", "true", false, vec![]).await;
    assert_eq!(missing.finish().await.unwrap_err().message(), "task not found for given id");
    let empty = tokio_stream::once(Request::default());
    let error = within(plugin.driver().exec_task_streaming(empty)).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
    let setup = Some(Setup { task_id: id, command: Vec::new(), tty: false });
    let request = tokio_stream::once(Request { setup, ..Request::default() });
    let responses = within(plugin.driver().exec_task_streaming(request)).await.unwrap().into_inner();
    let (input, _) = mpsc::channel(1);
    let error = Session { _input: input, responses }.finish().await.unwrap_err();
    assert!(error.message().contains("empty"), "{error}");
}

/// Ends the processes that commands left behind, which have the task's directory as their own.
fn end_sleepers(alloc: &std::path::Path) {
    let dir = std::fs::canonicalize(alloc.join("web")).unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir)
            && let Ok(Some(process)) = caravan_sys::process::PidFd::open(pid)
        {
            process.send_signal(9).unwrap();
        }
    }
}
