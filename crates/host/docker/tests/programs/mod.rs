//! Programs that run in a container next to its task.

use crate::*;

async fn collect(stream: &mut ExecStream) -> (String, String, i32) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match tokio::time::timeout(TIMEOUT, stream.output.recv()).await.unwrap().unwrap().unwrap() {
            ExecEvent::Stdout(data) => out.extend(data),
            ExecEvent::Stderr(data) => err.extend(data),
            ExecEvent::StdoutClosed | ExecEvent::StderrClosed => {}
            ExecEvent::Exited(code) => {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
                return (text(out), text(err), code);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_run_beside_a_task() {
    let world = World::new();
    let driver = world.docker();
    let config = world.script("t", FOREVER);
    let id = config.id.clone();
    driver.start(config).await.unwrap();
    let request =
        |script: &str, tty| ExecRequest { command: ["sh", "-c", script].map(str::to_owned).into(), tty };
    let both = "echo out; echo err >&2; exit 43";
    let mut stream = driver.exec_stream(&id, request(both, false)).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("out\n".into(), "err\n".into(), 43));
    let mut stream = driver.exec_stream(&id, request("head -n1", false)).await.unwrap();
    stream.input.send(ExecInput::Data(b"typed\n".into())).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("typed\n".into(), String::new(), 0));
    let mut stream = driver.exec_stream(&id, request("cat", false)).await.unwrap();
    stream.input.send(ExecInput::Data(b"all".into())).await.unwrap();
    stream.input.send(ExecInput::Close).await.unwrap();
    assert_eq!(collect(&mut stream).await, ("all".into(), String::new(), 0));
    let mut stream = driver.exec_stream(&id, request("sleep 1; stty size", true)).await.unwrap();
    for (rows, columns) in [(50, 40), (100, 100)] {
        stream.input.send(ExecInput::Resize { rows, columns }).await.unwrap();
    }
    assert_eq!(collect(&mut stream).await.0, "100 100\r\n");
    // A program in the background does not hold the end of a terminal.
    let background = "(sleep 1000 &) ; echo main";
    let mut stream = driver.exec_stream(&id, request(background, true)).await.unwrap();
    assert_eq!(collect(&mut stream).await.0, "main\r\n");
    let command = ["sleep", "1000"].map(str::to_owned);
    let error = driver.exec(&id, &command, Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let name = format!("t-{}", world.alloc);
    until("the program to be killed", || {
        let listed = world.engine.docker(&["top", &name, "-eo", "pid,args"]).unwrap();
        listed.lines().filter(|line| line.ends_with(" sleep 1000")).count() <= 1
    })
    .await;
    driver.destroy(&id, true).await.unwrap();
}
