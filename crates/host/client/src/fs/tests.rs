use super::*;
use crate::runner::users::TaskUser;
use futures::StreamExt;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::time::Duration;

fn alloc() -> (tempfile::TempDir, AllocFs) {
    let dir = tempfile::tempdir().unwrap();
    for part in ["alloc/logs", "web/local", "web/secrets", "web/private"] {
        std::fs::create_dir_all(dir.path().join(part)).unwrap();
    }
    std::fs::write(dir.path().join("web/secrets/token"), "t").unwrap();
    std::fs::write(dir.path().join("web/local/page"), "hello world").unwrap();
    let fs = AllocFs::new(dir.path(), vec!["web".to_owned()], Users::new(vec![TaskUser::Nobody]));
    (dir, fs)
}

#[test]
fn files_are_listed_described_and_read() {
    let (_dir, fs) = alloc();
    let names: Vec<_> = fs.ls("/").unwrap().into_iter().map(|f| (f.name, f.is_dir)).collect();
    assert_eq!(names, [("alloc".to_owned(), true), ("web".to_owned(), true)]);
    let page = fs.stat("web/local/page").unwrap();
    assert_eq!((page.size, page.content_type), (11, Some("text/plain; charset=utf-8")));
    assert_eq!(fs.read_at("/web/local/page", 6, Some(3)).unwrap(), b"wor");
    assert!(matches!(fs.stat("nope"), Err(FsError::NotFound(_))));
    let error = fs.read_at("web/local", 0, None).unwrap_err();
    assert_eq!(error.to_string(), "file \"web/local\" is a directory");
}

#[test]
fn nothing_leads_out_and_secrets_stay_secret() {
    let (dir, fs) = alloc();
    let local = dir.path().join("web/local");
    symlink("/etc", local.join("etc")).unwrap();
    symlink("../secrets/token", local.join("mine")).unwrap();
    symlink("../../..", local.join("up")).unwrap();
    for path in ["../x", "web/../../x", "web/local/etc/passwd", "web/local/up"] {
        assert!(matches!(fs.read_at(path, 0, None), Err(FsError::Escapes)), "{path}");
    }
    for path in ["web/secrets/token", "web/local/mine", "/web/./secrets/token"] {
        assert!(matches!(fs.read_at(path, 0, None), Err(FsError::Secret(_))), "{path}");
    }
    assert_eq!(fs.ls("web/secrets").unwrap().len(), 1);
    assert_eq!(fs.stat("web/secrets/token").unwrap().content_type, None);
}

#[test]
fn what_a_task_plants_is_not_opened() {
    let (dir, fs) = alloc();
    let local = dir.path().join("web/local");
    let canary = dir.path().join("canary");
    std::fs::write(&canary, "precious content").unwrap();
    std::fs::hard_link(&canary, local.join("hard")).unwrap();
    let node = |name: &str, kind| {
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(rustix::fs::CWD, local.join(name), kind, rustix::fs::Mode::RWXU, null).unwrap();
    };
    node("fifo", rustix::fs::FileType::Fifo);
    node("device", rustix::fs::FileType::CharacterDevice);
    drop(std::os::unix::net::UnixListener::bind(local.join("socket")).unwrap());
    for name in ["fifo", "device", "socket"] {
        let error = fs.read_at(&format!("web/local/{name}"), 0, None).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }
    let error = fs.read_at("web/local/hard", 0, None).unwrap_err().to_string();
    assert!(error.contains("hard link"), "{error}");
    // A task's own file may have several names.
    std::fs::write(local.join("own"), "own").unwrap();
    std::os::unix::fs::chown(local.join("own"), Some(65534), Some(65534)).unwrap();
    std::fs::hard_link(local.join("own"), local.join("second")).unwrap();
    assert_eq!(fs.read_at("web/local/second", 0, None).unwrap(), b"own");
}

#[tokio::test]
async fn log_files_are_those_that_the_agent_wrote() {
    let (dir, fs) = alloc();
    let log = |n: u32| dir.path().join(format!("alloc/logs/web.stdout.{n}"));
    std::fs::write(log(3), "ours\n").unwrap();
    std::fs::write(log(9), "planted\n").unwrap();
    std::os::unix::fs::chown(log(9), Some(65534), Some(65534)).unwrap();
    symlink("../../web/local/page", log(10)).unwrap();
    std::fs::create_dir(log(11)).unwrap();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, log(12), fifo, mode, 0).unwrap();
    let mut frames = fs.logs("web", LogKind::Stdout, LogStart::Offset(0, Origin::Start), true).unwrap();
    assert_eq!(text(&mut frames, "ours\n").await, "ours\n");
    std::fs::write(log(4), "more\n").unwrap();
    assert_eq!(text(&mut frames, "more\n").await, "more\n");
}

async fn text(frames: &mut Frames, until: &str) -> String {
    let mut all = Vec::new();
    let reading = async {
        while !all.ends_with(until.as_bytes()) {
            all.extend(frames.next().await.expect("the stream goes on").unwrap().data);
        }
    };
    tokio::time::timeout(Duration::from_secs(10), reading).await.expect("the log is followed");
    String::from_utf8(all).unwrap()
}

#[tokio::test]
async fn logs_are_followed_across_rotations() {
    let (dir, fs) = alloc();
    let log = |n: u32| dir.path().join(format!("alloc/logs/web.stdout.{n}"));
    assert!(matches!(
        fs.logs("web", LogKind::Stdout, LogStart::Offset(0, Origin::Start), false),
        Err(FsError::NoLogs(_))
    ));
    assert!(matches!(
        fs.logs("db", LogKind::Stdout, LogStart::Offset(0, Origin::Start), false),
        Err(FsError::UnknownTask(_))
    ));
    std::fs::write(log(0), "one\n").unwrap();
    let mut frames = fs.logs("web", LogKind::Stdout, LogStart::Offset(0, Origin::Start), true).unwrap();
    assert_eq!(text(&mut frames, "one\n").await, "one\n");
    let mut file = std::fs::OpenOptions::new().append(true).open(log(0)).unwrap();
    file.write_all(b"two\n").unwrap();
    assert_eq!(text(&mut frames, "two\n").await, "two\n");
    file.write_all(b"three\n").unwrap();
    std::fs::write(log(1), "four\n").unwrap();
    assert_eq!(text(&mut frames, "four\n").await, "three\nfour\n");
    let tail = fs.logs("web", LogKind::Stdout, LogStart::Offset(7, Origin::End), false).unwrap();
    let tail: Vec<_> = tail.map(|f| f.unwrap().data).collect().await;
    assert_eq!(tail.concat(), b"e\nfour\n");
}

#[tokio::test]
async fn a_followed_file_tells_of_truncation_and_deletion() {
    let (dir, fs) = alloc();
    let path = dir.path().join("web/local/page");
    let mut frames = fs.stream("web/local/page", 5, Origin::End, true).unwrap();
    assert_eq!(text(&mut frames, "world").await, "world");
    std::fs::write(&path, "new").unwrap();
    let event = frames.next().await.unwrap().unwrap();
    assert_eq!((event.event, event.offset), (Some(FileEvent::Truncated), 0));
    assert_eq!(text(&mut frames, "new").await, "new");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(frames.next().await.unwrap().unwrap().event, Some(FileEvent::Deleted));
    assert!(frames.next().await.is_none());
}

#[test]
fn modes_are_written_as_in_go() {
    assert_eq!(mode_text(0o10_0644), "-rw-r--r--");
    assert_eq!(mode_text(0o04_1777), "dtrwxrwxrwx");
}
