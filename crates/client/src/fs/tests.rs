use super::*;
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
    let fs = AllocFs::new(dir.path(), vec!["web".to_owned()]);
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
    assert!(matches!(fs.logs("web", LogKind::Stdout, 0, Origin::Start, false), Err(FsError::NoLogs(_))));
    assert!(matches!(fs.logs("db", LogKind::Stdout, 0, Origin::Start, false), Err(FsError::UnknownTask(_))));
    std::fs::write(log(0), "one\n").unwrap();
    let mut frames = fs.logs("web", LogKind::Stdout, 0, Origin::Start, true).unwrap();
    assert_eq!(text(&mut frames, "one\n").await, "one\n");
    let mut file = std::fs::OpenOptions::new().append(true).open(log(0)).unwrap();
    file.write_all(b"two\n").unwrap();
    assert_eq!(text(&mut frames, "two\n").await, "two\n");
    file.write_all(b"three\n").unwrap();
    std::fs::write(log(1), "four\n").unwrap();
    assert_eq!(text(&mut frames, "four\n").await, "three\nfour\n");
    let tail = fs.logs("web", LogKind::Stdout, 7, Origin::End, false).unwrap();
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
