//! The monitor of an emulator: a socket that takes commands.

use caravan_sys::dir::{Dir, Mounts};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// The time that the monitor may take to accept a command.
const LIMIT: Duration = Duration::from_secs(5);

/// The command that presses the machine's power button.
const POWER_DOWN: &[u8] = b"system_powerdown\n";

/// Presses the power button of a virtual machine. Returns the connection, which must stay open until the emulator has
/// read the command.
///
/// The task's user can replace the socket, so it is opened without following links.
pub(super) async fn power_down(task_dir: &Path, name: &str) -> io::Result<UnixStream> {
    let (dir, name) = (task_dir.to_owned(), PathBuf::from(name));
    let opened = tokio::task::spawn_blocking(move || Dir::open(&dir)?.handle(&name, Mounts::Refuse));
    let socket = opened.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    let ask = async {
        let mut connection = UnixStream::connect(socket.proc_path()).await?;
        connection.write_all(POWER_DOWN).await?;
        Ok(connection)
    };
    tokio::time::timeout(LIMIT, ask).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn the_command_reaches_the_socket_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        // The name of a socket has at most 107 bytes, the path to it does not.
        let short = caravan_sys::socket::ShortPath::new(&deep.join("m.sock")).unwrap();
        let listener = UnixListener::bind(short.path()).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let client = power_down(&deep, "m.sock").await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        drop(client);
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.as_bytes(), POWER_DOWN);

        std::os::unix::fs::symlink("m.sock", deep.join("link.sock")).unwrap();
        std::fs::write(deep.join("file.sock"), "").unwrap();
        for wrong in ["link.sock", "file.sock", "absent.sock"] {
            assert!(power_down(&deep, wrong).await.is_err(), "{wrong}");
        }
    }
}
