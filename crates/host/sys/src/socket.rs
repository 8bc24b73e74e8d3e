//! Unix sockets: in directories with long names, and as carriers of descriptors.
//!
//! A socket address has at most 107 bytes (unix(7)); paths of allocation directories are longer. The directory is
//! opened, and the address begins with its path in `/proc/self/fd`, so that only the last name counts.

use crate::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs::{File, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Maximum number of descriptors in one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// Sends one byte with copies of descriptors (`SCM_RIGHTS` of unix(7)), at most [`MAX_DESCRIPTORS`].
pub fn send_descriptors(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the descriptors that [`send_descriptors`] sent; `None` if the other side has closed the socket. The
/// descriptors are closed when a program is executed.
pub fn receive_descriptors(socket: impl AsFd) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Some(descriptors))
}

/// A path of a socket that fits in an address while this value exists.
#[derive(Debug)]
pub struct ShortPath {
    _dir: File,
    path: PathBuf,
}

impl ShortPath {
    /// Opens the socket's directory.
    pub fn new(socket: &Path) -> Result<Self> {
        let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "the path has no directory");
            return Err(Error::path("open", socket)(source));
        };
        let handle = File::open(dir).map_err(Error::path("open", dir))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd())).join(name);
        Ok(Self { _dir: handle, path })
    }

    /// Returns the path to bind or connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Listens on a socket that only its owner may use (0600), and replaces the socket of an earlier process. The
/// directory should be 0700, because the mode is set after the socket exists.
pub fn listen(socket: &Path) -> Result<UnixListener> {
    let short = ShortPath::new(socket)?;
    match std::fs::remove_file(short.path()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::path("remove", socket)(e)),
        _ => {}
    }
    let listener = UnixListener::bind(short.path()).map_err(Error::path("listen on", socket))?;
    std::fs::set_permissions(short.path(), Permissions::from_mode(0o600))
        .map_err(Error::path("set mode of", socket))?;
    Ok(listener)
}

/// Connects to a socket.
pub fn connect(socket: &Path) -> Result<UnixStream> {
    let short = ShortPath::new(socket)?;
    UnixStream::connect(short.path()).map_err(Error::path("connect to", socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn descriptors_arrive_in_order_and_the_end_is_seen() {
        let (near, far) = UnixStream::pair().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        send_descriptors(&near, &[reader.as_fd(), writer.as_fd()]).unwrap();
        drop((near, reader, writer));
        let received = receive_descriptors(&far).unwrap().unwrap();
        let [reader, writer]: [OwnedFd; 2] = received.try_into().unwrap();
        File::from(writer).write_all(b"hello").unwrap();
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(receive_descriptors(&far).unwrap().is_none());
    }

    #[test]
    fn long_directories_are_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("control.sock");
        std::fs::write(&socket, b"left over").unwrap();
        let listener = listen(&socket).unwrap();
        assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = connect(&socket).unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        drop(listener);
        let error = connect(&socket).unwrap_err().to_string();
        assert!(error.contains("cannot connect to") && error.contains("control.sock"), "{error}");
    }
}
