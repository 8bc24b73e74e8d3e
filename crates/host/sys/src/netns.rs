//! Network namespaces that outlive their processes: each is held by a mount of its file (network_namespaces(7)).

use crate::mount::{self, Unmount};
use crate::{Error, Result};
use nix::libc;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The type of a namespace's file in statfs(2).
const NSFS_MAGIC: i64 = 0x6e73_6673;

/// Creates a network namespace with only the loopback interface up, and holds it at a path. A namespace that an
/// earlier process holds there is kept.
///
/// # Errors
/// If a step fails; then no namespace is held at the path.
pub fn hold(path: &Path) -> Result<()> {
    if is_held(path)? {
        return Ok(());
    }
    File::create(path).map_err(Error::path("create", path))?;
    // A namespace belongs to a thread, so a separate thread leaves the caller's namespaces unchanged.
    let thread = std::thread::scope(|scope| scope.spawn(|| make(path)).join());
    let made = thread.unwrap_or_else(|_| Err(lost("the thread that makes it died")));
    if made.is_err() {
        // Ignore this error, because the caller receives the first one.
        let _left = let_go(path);
    }
    made
}

/// Holds at a path the network namespace of another file, such as one that a container engine keeps. The same
/// namespace that an earlier process holds there is kept, another one is released.
///
/// # Errors
/// If the file is no network namespace, or a step fails.
pub fn hold_other(source: &Path, path: &Path) -> Result<()> {
    let namespace = File::open(source).map_err(Error::path("open", source))?;
    let identity = |found: &std::fs::Metadata| (found.dev(), found.ino());
    let own = namespace.metadata().map_err(Error::path("look at", source))?;
    if is_held(path)? {
        let held = std::fs::metadata(path).map_err(Error::path("look at", path))?;
        if identity(&held) == identity(&own) {
            return Ok(());
        }
    }
    // Only a thread inside proves that the file is a namespace of this kind.
    let entered = std::thread::scope(|scope| scope.spawn(|| enter_file(&namespace, source)).join());
    entered.unwrap_or_else(|_| Err(lost("the thread that examines it died")))?;
    let_go(path)?;
    File::create(path).map_err(Error::path("create", path))?;
    let opened = format!("/proc/thread-self/fd/{}", namespace.as_raw_fd());
    mount::bind(Path::new(&opened), path, false).inspect_err(|_| {
        // Ignore this error, because the caller receives the first one.
        let _left = let_go(path);
    })
}

/// Returns the number of the namespace that is held at a path, which no other namespace has at the same time.
///
/// # Errors
/// If the path cannot be examined.
pub fn number(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(Error::path("look at", path))?.ino())
}

/// Returns whether a namespace is held at a path.
///
/// # Errors
/// If the path cannot be examined.
pub fn is_held(path: &Path) -> Result<bool> {
    match rustix::fs::statfs(path) {
        Ok(found) => Ok(found.f_type == NSFS_MAGIC),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(errno) => Err(Error::errno("look at", path)(errno)),
    }
}

/// Releases the namespace at a path and removes the file. The namespace ends with its last process. Without a
/// namespace at the path, this is no error.
///
/// # Errors
/// If the mount or the file cannot be removed.
pub fn let_go(path: &Path) -> Result<()> {
    while mount::unmount(path, Unmount::Lazy)? {}
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::path("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Moves the calling thread and its later children into the namespace held at a path.
///
/// # Errors
/// If no namespace is held there, or the caller lacks the privilege.
pub fn enter(path: &Path) -> Result<()> {
    let namespace = File::open(path).map_err(Error::path("open", path))?;
    enter_file(&namespace, path)
}

fn enter_file(namespace: &File, path: &Path) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(Error::errno("enter the network of", path))
}

/// Runs a function in the namespace held at a path, on a separate thread.
///
/// # Errors
/// If the namespace cannot be entered, or the thread dies.
pub fn within<T: Send>(path: &Path, run: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(path)?;
            Ok(run())
        });
        thread.join().unwrap_or_else(|_| Err(lost("the thread within it died")))
    })
}

/// Runs a function in a new network namespace with only the loopback interface up, on a separate thread. The
/// namespace ends with the function.
///
/// # Errors
/// If the namespace cannot be created, or the thread dies.
pub fn in_new<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare()?;
            Ok(run())
        });
        thread.join().unwrap_or_else(|_| Err(lost("the thread within it died")))
    })
}

fn lost(what: &'static str) -> Error {
    Error::Call { operation: "make a network", source: io::Error::other(what) }
}

/// Moves the calling thread into a new namespace with only the loopback interface up.
fn unshare() -> Result<()> {
    // SAFETY: UnshareFlags::FILES is not among the flags, which is all that the function requires.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Error::call("make a network"))?;
    raise_loopback()
}

fn make(path: &Path) -> Result<()> {
    unshare()?;
    mount::bind(Path::new("/proc/thread-self/ns/net"), path, false)
}

/// Requests of netdevice(7). The C libraries disagree on the type of such constants.
const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCSIFFLAGS: libc::Ioctl = 0x8914;

/// Sets the loopback interface up (netdevice(7)); the kernel assigns its addresses.
fn raise_loopback() -> Result<()> {
    let failed =
        || Error::Call { operation: "set the loopback interface up", source: io::Error::last_os_error() };
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .map_err(Error::call("open a socket"))?;
    // SAFETY: all bytes zero is an empty name and an empty union of plain numbers and addresses.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    // SAFETY: the request lives through the call, its name ends with a zero, and the call reads and writes nothing
    // else.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFFLAGS, &raw mut request) } != 0 {
        return Err(failed());
    }
    // SAFETY: the call before wrote the flags, and they are a plain number.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = flags | libc::c_short::try_from(up).expect("two of the lowest bits");
    // SAFETY: as above.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFFLAGS, &raw const request) } != 0 {
        return Err(failed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_network_of_its_own_has_a_loopback_and_outlives_its_maker() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        assert!(!is_held(&path).unwrap());
        hold(&path).unwrap();
        assert!(is_held(&path).unwrap());
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = outside.local_addr().unwrap();
        let inside = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(&path).unwrap();
                let own = TcpListener::bind("127.0.0.1:0").unwrap();
                let names = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
                TcpStream::connect(own.local_addr().unwrap()).unwrap();
                (TcpStream::connect(address).is_err(), names.lines().count())
            });
            thread.join().unwrap()
        });
        assert!(inside.0, "what listens outside is not reached");
        TcpStream::connect(address).unwrap();
        hold(&path).unwrap();
        let_go(&path).unwrap();
        assert!(!path.exists());
        let_go(&path).unwrap();
    }

    #[test]
    fn a_namespace_of_another_holder_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second, path) =
            (dir.path().join("first"), dir.path().join("second"), dir.path().join("own"));
        hold(&first).unwrap();
        hold(&second).unwrap();
        let node = |path: &Path| std::fs::metadata(path).unwrap().ino();
        hold_other(&first, &path).unwrap();
        let before = number(&path).unwrap();
        hold_other(&first, &path).unwrap();
        assert_eq!(number(&path).unwrap(), before);
        assert_eq!(node(&path), node(&first));
        // The holder created another namespace.
        hold_other(&second, &path).unwrap();
        assert_ne!(number(&path).unwrap(), before);
        assert_eq!(node(&path), node(&second));
        let_go(&second).unwrap();
        assert!(is_held(&path).unwrap(), "the namespace outlives its first holder");
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(hold_other(&file, &path).is_err());
        assert!(hold_other(&dir.path().join("absent"), &path).unwrap_err().is_not_found());
        for path in [&first, &path] {
            let_go(path).unwrap();
        }
    }

    #[test]
    fn what_is_no_namespace_is_not_entered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net");
        assert!(enter(&path).unwrap_err().is_not_found());
        std::fs::write(&path, "").unwrap();
        assert!(!is_held(&path).unwrap());
        assert!(enter(&path).is_err());
    }
}
