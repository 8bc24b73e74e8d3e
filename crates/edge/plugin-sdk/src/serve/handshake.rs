//! The handshake: the variables that the agent sets, and the line by which the plugin names its socket.

use super::ServeError;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The variable that proves that an agent, and not a user at a terminal, starts the program.
const COOKIE: (&str, &str) =
    ("NOMAD_PLUGIN_MAGIC_COOKIE", "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255");
/// The version of the services, one of those in `PLUGIN_PROTOCOL_VERSIONS`.
const VERSION: &str = "2";
/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The maximum number of attempts to find a free name.
const TRIES: u32 = 16;

/// Reads the environment by `variable`, and returns the directory for the socket.
pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, ServeError> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if set(COOKIE.0).as_deref() != Some(COOKIE.1) {
        return Err(ServeError::NotAnAgent);
    }
    if let Some(versions) = set("PLUGIN_PROTOCOL_VERSIONS")
        && !versions.split(',').any(|version| version.trim() == VERSION)
    {
        return Err(ServeError::Version { versions });
    }
    if set("PLUGIN_CLIENT_CERT").is_some() {
        return Err(ServeError::Tls);
    }
    let dir = set("PLUGIN_UNIX_SOCKET_DIR").or_else(|| set("TMPDIR"));
    Ok(dir.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from))
}

/// Returns the line for standard output that ends the handshake.
pub(super) fn line(socket: &Path) -> String {
    format!("1|{VERSION}|unix|{}|grpc|\n", socket.display())
}

/// A socket in the file system, which is removed at the end.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    pub(super) path: PathBuf,
}

impl Socket {
    /// Listens on a new socket with a random name.
    pub(super) fn open(dir: &Path) -> Result<Self, ServeError> {
        let failed = |errno: Errno| ServeError::Socket { dir: dir.to_owned(), source: errno.into() };
        let mut last = Errno::ADDRINUSE;
        for _ in 0..TRIES {
            let mut random = [0; 8];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(failed)?;
            let path = dir.join(format!("plugin{}", u64::from_ne_bytes(random)));
            match listen_at(&path) {
                Ok(listener) => return Ok(Self { listener, path }),
                Err(Errno::ADDRINUSE) => last = Errno::ADDRINUSE,
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(last))
    }
}

fn listen_at(path: &Path) -> Result<UnixListener, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // bind(2) gives the file the mode of the socket, so that the file never has another mode (unix(7)).
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn with(more: &[(&str, &str)]) -> Result<PathBuf, ServeError> {
        read(|name| {
            let all = [COOKIE].into_iter().chain(more.iter().copied());
            all.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).next_back()
        })
    }

    #[test]
    fn only_an_agent_starts_plugins() {
        assert!(matches!(with(&[("NOMAD_PLUGIN_MAGIC_COOKIE", "x")]), Err(ServeError::NotAnAgent)));
        assert!(matches!(read(|_| None), Err(ServeError::NotAnAgent)));
    }

    #[test]
    fn one_common_version_is_enough() {
        assert!(with(&[("PLUGIN_PROTOCOL_VERSIONS", "1,2")]).is_ok());
        assert!(matches!(with(&[("PLUGIN_PROTOCOL_VERSIONS", "1,22")]), Err(ServeError::Version { .. })));
        assert!(matches!(with(&[("PLUGIN_CLIENT_CERT", "pem")]), Err(ServeError::Tls)));
    }

    #[test]
    fn the_socket_directory_has_an_order() {
        let both = [("TMPDIR", "/t"), ("PLUGIN_UNIX_SOCKET_DIR", "/s")];
        assert_eq!(with(&both).unwrap(), Path::new("/s"));
        assert_eq!(with(&both[..1]).unwrap(), Path::new("/t"));
        assert_eq!(with(&[("PLUGIN_UNIX_SOCKET_DIR", "")]).unwrap(), Path::new("/tmp"));
    }

    #[test]
    fn only_the_owner_uses_the_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = Socket::open(dir.path()).unwrap();
        let mode = std::fs::metadata(&socket.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&socket.path).unwrap();
        assert_eq!(line(Path::new("/a")), "1|2|unix|/a|grpc|\n");
        let error = Socket::open(Path::new("/missing")).unwrap_err();
        assert_eq!(error.to_string(), "cannot listen on a socket in /missing");
    }
}
