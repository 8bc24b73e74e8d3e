//! Checks of the output of tasks, with variables, signals and mounts as input.

use super::{Behaviour, Check, FLOOD, Fixture, TIMEOUT, end, expect, leave, read, soon, stored, until};
use crate::task::{LogConfig, Mount, Propagation};
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a log file of the suite.
const FILE_SIZE: usize = 1 << 20;

pub(super) fn file(logs: &LogConfig, number: usize) -> PathBuf {
    logs.dir.join(format!("{}.{number}", logs.stdout))
}

pub(super) async fn environment(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(mut config) = fixture.task("variable", Behaviour::Variable) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let value = "a b=c \u{e9}'\"$x";
    config.env.insert("CONFORMANCE".into(), value.into());
    let id = config.id.clone();
    soon("start", driver.start(config)).await?;
    soon("wait", driver.wait(&id)).await?;
    let text = read(&file(&logs, 0)).await;
    expect(text == format!("{value}\n"), || format!("the variable is {text:?}"))?;
    let errors = read(&logs.dir.join(format!("{}.0", logs.stderr))).await;
    expect(errors == "error\n", || format!("the standard error is {errors:?}"))?;
    end(&driver, &id).await
}

pub(super) async fn rotation(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    let Some(config) = fixture.task("flood", Behaviour::Flood) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let id = config.id.clone();
    soon("start", driver.start(config)).await?;
    soon("wait", driver.wait(&id)).await?;
    let mut files = Vec::new();
    // More files than there can be: the first ones are removed.
    for number in 0..=FLOOD {
        match tokio::fs::read_to_string(file(&logs, number)).await {
            Ok(text) => files.push((number, text)),
            Err(_) if files.is_empty() => {}
            Err(_) => break,
        }
    }
    let sizes: Vec<_> = files.iter().map(|(number, text)| (*number, text.len())).collect();
    expect(files.len() == 3 && sizes.iter().all(|(_, size)| *size <= FILE_SIZE), || {
        format!("the files have the sizes {sizes:?}")
    })?;
    let text: String = files.iter().map(|(_, text)| text.as_str()).collect();
    // The first line may be cut by the removal of a file.
    let (mut next, mut before) = (None, "");
    for line in text.lines().skip(1) {
        let number = line.split(' ').nth(1).and_then(|number| number.parse::<usize>().ok());
        expect(number.is_some() && (next.is_none() || number == next), || {
            format!("line {next:?} is {line:?}, after {before:?}")
        })?;
        before = line;
        next = number.map(|number| number + 1);
    }
    expect(next == Some(FLOOD), || format!("the last line is before {next:?}"))?;
    end(&driver, &id).await
}

pub(super) async fn delivery(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().send_signals {
        return Ok(());
    }
    let Some(config) = fixture.task("counted", Behaviour::Counted) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let (id, path) = (config.id.clone(), file(&logs, 0));
    soon("start", driver.start(config)).await?;
    let mut expected = "ready\n".to_owned();
    soon("its first output", until(&path, |text| text == expected)).await?;
    for _ in 0..2 {
        soon("signal", driver.signal(&id, "SIGUSR1")).await?;
        expected.push_str("usr1\n");
        soon("its answer to SIGUSR1", until(&path, |text| text == expected)).await?;
    }
    end(&driver, &id).await
}

pub(super) async fn mounts(fixture: &dyn Fixture) -> Check {
    let driver = fixture.driver();
    if !driver.capabilities().mounts {
        return Ok(());
    }
    let Some(mut config) = fixture.task("copy", Behaviour::Copy) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let io = |error: std::io::Error| format!("the volumes cannot be made: {error}");
    let mut volumes = Vec::new();
    for (path, read_only) in [("/srv", false), ("/srv2", true)] {
        let host = config.dirs.task_dir.join(format!("volume{}", path.replace('/', "-")));
        std::fs::create_dir_all(&host).map_err(io)?;
        // The task may run as any user.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&host, open).map_err(io)?;
        volumes.push(host.clone());
        config.mounts.push(Mount {
            host_path: host,
            task_path: path.into(),
            read_only,
            propagation: Propagation::Private,
        });
    }
    std::fs::write(volumes[0].join("in"), "kept\n").map_err(io)?;
    let id = config.id.clone();
    soon("start", driver.start(config)).await?;
    soon("wait", driver.wait(&id)).await?;
    let copied = read(&volumes[0].join("out")).await;
    expect(copied == "kept\n", || format!("the copy holds {copied:?}"))?;
    let text = read(&file(&logs, 0)).await;
    expect(text == "denied\n", || format!("a read-only mount can be written to: {text:?}"))?;
    end(&driver, &id).await
}

/// Returns whether the text is the first lines of [`Behaviour::Count`], without gap and repetition.
pub(super) fn counts(text: &str) -> Check {
    // The last line may still be incomplete.
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    for (number, line) in complete.lines().enumerate() {
        expect(line == format!("line {number}"), || format!("line {number} is {line:?}"))?;
    }
    Ok(())
}

pub(super) async fn recovery(fixture: &dyn Fixture) -> Check {
    let first = fixture.driver();
    if !first.capabilities().survives_agent {
        return Ok(());
    }
    let Some(config) = fixture.task("count", Behaviour::Count) else { return Ok(()) };
    let Some(logs) = config.logs.clone() else { return Ok(()) };
    let (id, path) = (config.id.clone(), file(&logs, 0));
    let handle = stored(&soon("start", first.start(config)).await?)?;
    soon("some output", until(&path, |text| text.lines().count() > 10)).await?;
    leave(first).await;
    let second = fixture.driver();
    soon("recover", second.recover(handle)).await?;
    let before = read(&path).await.lines().count();
    soon("more output", until(&path, |text| text.lines().count() > before + 10)).await?;
    counts(&read(&path).await)?;
    soon("stop", second.stop(&id, TIMEOUT.min(Duration::from_secs(1)), None)).await?;
    counts(&read(&path).await)?;
    end(&second, &id).await
}
