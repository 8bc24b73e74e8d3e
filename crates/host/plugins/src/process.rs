//! One process of a plugin: start with handshake, re-attachment after a restart of the agent, and end.

mod record;

use crate::PluginError;
use crate::handshake::{self, Address, PROTOCOL_VERSION};
use crate::instance::Timing;
use crate::output::{self, LastLine, Lines};
use caravan_proto::plugins::health::{HealthCheckRequest, health_client::HealthClient};
use caravan_proto::plugins::host::grpc_broker_client::GrpcBrokerClient;
use caravan_proto::plugins::host::grpc_controller_client::GrpcControllerClient;
use caravan_proto::plugins::host::grpc_stdio_client::GrpcStdioClient;
use caravan_sys::dir::{Access, Dir, Mounts};
use caravan_sys::process::{PidFd, ProcessIdentity};
use hyper_util::rt::TokioIo;
use record::Record;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// The variable of the protocol without which plugins refuse to run.
const COOKIE: (&str, &str) =
    ("NOMAD_PLUGIN_MAGIC_COOKIE", "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255");
/// The longest time from the start to the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for the end of a plugin after the request to shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time until the exit code of a process that ended is known.
const END_REASON_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest time until the last line of a program that ended is read.
const LAST_LINE_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest time for the first call on a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest path of a directory for sockets; the plugin appends up to 24 bytes, and unix(7) allows 107.
const MAX_SOCKET_DIR: usize = 80;
/// The environment that a plugin inherits from the agent.
const INHERITED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "SSL_CERT_DIR"];

/// The greatest size of a message in bytes, as in go-plugin.
pub(crate) const MAX_MESSAGE: usize = i32::MAX as usize;

/// The exit status of a process in words; `None` until it is known.
type End = watch::Sender<Option<String>>;

/// A plugin's program, and the directory that belongs to the plugin.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The name of the program's file, which is the label of the `plugin` block.
    pub(crate) name: String,
    /// The path of the program.
    pub(crate) path: PathBuf,
    /// The `args` of the `plugin` block.
    pub(crate) args: Vec<String>,
    /// The plugin's own directory (0700): sockets, pipes, and the record of the process.
    pub(crate) dir: PathBuf,
    /// A hash of the plugin's configuration: a process with another configuration is replaced.
    pub(crate) config: String,
    /// The times after which a process that does not answer is replaced.
    pub(crate) timing: Timing,
}

/// The program's file, as it was checked before a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// SHA-256 of the content, in hex.
    pub(crate) checksum: String,
    /// The permission bits.
    pub(crate) mode: u32,
}

/// A running process of a plugin, connected.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) identity: ProcessIdentity,
    /// Whether this agent started the process. Otherwise the process is configured already.
    pub(crate) is_new: bool,
    channel: Channel,
    handle: PidFd,
    ended: CancellationToken,
    how: End,
    /// The token that ends the calls that are kept open, and the readers of the pipes.
    companions: CancellationToken,
}

impl Program {
    /// Checks the program's file and returns its checksum. The file must belong to root or to the agent's user, and
    /// must not be writable by every user.
    pub(crate) fn check(&self) -> Result<Checked, PluginError> {
        let refuse = |reason| PluginError::File { path: self.path.clone(), reason };
        let mut file = std::fs::File::open(&self.path).map_err(PluginError::io("open the program"))?;
        let found = file.metadata().map_err(PluginError::io("read the program's attributes"))?;
        let mode = found.permissions().mode() & 0o7777;
        if !found.is_file() {
            return Err(refuse("is not a regular file"));
        }
        if mode & 0o111 == 0 {
            return Err(refuse("is not executable"));
        }
        if mode & 0o002 != 0 {
            return Err(refuse("can be written by every user"));
        }
        let own = rustix::process::geteuid().as_raw();
        if found.uid() != 0 && found.uid() != own {
            return Err(refuse("belongs neither to root nor to the agent's user"));
        }
        let mut hash = Sha256::new();
        let mut chunk = vec![0; 256 * 1024];
        loop {
            match file.read(&mut chunk).map_err(PluginError::io("read the program"))? {
                0 => break,
                length => hash.update(&chunk[..length]),
            }
        }
        Ok(Checked { checksum: hex(&hash.finalize()), mode })
    }

    /// Returns the directory for the plugin's sockets.
    fn socket_dir(&self) -> PathBuf {
        let own = self.dir.join("run");
        if own.as_os_str().len() <= MAX_SOCKET_DIR {
            return own;
        }
        let name = hex(&Sha256::digest(own.as_os_str().as_encoded_bytes()));
        Path::new("/run/caravan/plugins").join(&name[..16])
    }

    /// Returns the process that an earlier agent left, if it runs and answers. Ends a process whose program,
    /// arguments or configuration differ from the current ones, or that must not be kept.
    pub(crate) async fn attach(&self, keep: bool) -> Result<Option<Process>, PluginError> {
        let Some(record) = Record::read(&self.dir)? else { return Ok(None) };
        let Some(handle) = record.open()? else { return Ok(None) };
        let current = self.check().map(|checked| checked.checksum);
        if keep && current.is_ok_and(|checksum| record.belongs_to(&checksum, &self.args, &self.config)) {
            match self.connect(record.identity(), handle, record.address(), false, End::default()).await {
                Ok(process) => return Ok(Some(process)),
                Err(error) => {
                    tracing::warn!(plugin = self.name, %error, "the plugin's earlier process does not answer");
                }
            }
        } else {
            tracing::info!(plugin = self.name, "the plugin's earlier process is replaced");
        }
        self.end_recorded().await?;
        Ok(None)
    }

    /// Kills the process that the record names, if it still runs.
    pub(crate) async fn end_recorded(&self) -> Result<(), PluginError> {
        let Some(record) = Record::read(&self.dir)? else { return Ok(()) };
        if let Some(handle) = record.open()? {
            handle.send_signal(libc_kill())?;
            wait_for(&handle).await?;
        }
        Record::remove(&self.dir)
    }

    /// Starts the program and waits for its handshake.
    pub(crate) async fn start(&self) -> Result<Process, PluginError> {
        let checked = self.check()?;
        caravan_sys::files::durable_private_dir(&self.dir)?;
        let sockets = self.socket_dir();
        caravan_sys::files::private_dir(&sockets)?;
        clear(&Dir::open(&sockets)?)?;
        let dir = Dir::open(&self.dir)?;
        let mut command = tokio::process::Command::new(&self.path);
        command.args(&self.args).env_clear().current_dir(&self.dir).process_group(0);
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env(COOKIE.0, COOKIE.1)
            .env("PLUGIN_MIN_PORT", "10000")
            .env("PLUGIN_MAX_PORT", "25000")
            .env("PLUGIN_PROTOCOL_VERSIONS", PROTOCOL_VERSION)
            .env("PLUGIN_UNIX_SOCKET_DIR", &sockets)
            .env("TMPDIR", &sockets);
        // The pipes of an earlier process may hold an earlier handshake.
        dir.remove_file(OsStr::new("stdout"))?;
        let mut lines = Lines::new(output::open(&dir, "stdout")?)?;
        let log = Lines::new(output::open(&dir, "stderr")?)?;
        command
            .stdin(Stdio::null())
            .stdout(output::for_plugin(&dir, "stdout")?)
            .stderr(output::for_plugin(&dir, "stderr")?);
        let mut child = command.spawn().map_err(PluginError::io("start the program"))?;
        // The child is not reaped before `wait` is called below, so the id belongs to it.
        let pid = child.id().ok_or_else(|| ended_early("at once".into(), &LastLine::default()))?;
        let identity = ProcessIdentity::read(pid)?;
        let handle = PidFd::open(pid)?;
        let (Some(identity), Some(handle)) = (identity, handle) else {
            return Err(ended_early("at once".into(), &LastLine::default()));
        };
        tracing::info!(
            plugin = self.name,
            pid,
            checksum = checked.checksum,
            mode = format!("{:o}", checked.mode),
            "plugin started"
        );
        let last = LastLine::default();
        let companions = CancellationToken::new();
        let copied = companions.clone().run_until_cancelled_owned(output::copy_log(
            self.name.clone(),
            log,
            last.clone(),
        ));
        tokio::spawn(copied);
        let how = End::default();
        let ended = tokio::select! {
            line = tokio::time::timeout(HANDSHAKE_TIMEOUT, lines.next()) => Err(match line {
                Ok(line) => line.map_err(PluginError::io("read the handshake")),
                Err(_) => Err(PluginError::Late(HANDSHAKE_TIMEOUT)),
            }),
            status = child.wait() => Ok(status),
        };
        let first = match ended {
            Err(first) => first,
            // The first line may still be in the pipe. A line that is no handshake is the reason of the end.
            Ok(status) => match tokio::time::timeout(LAST_LINE_TIMEOUT, lines.next()).await {
                Ok(Ok(line)) if handshake::parse(&line).is_err() => Ok(line),
                _ => {
                    let _silent = tokio::time::timeout(LAST_LINE_TIMEOUT, last.some()).await;
                    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                    Err(ended_early(how, &last))
                }
            },
        };
        let address = match first.and_then(|line| handshake::parse(&line).map_err(PluginError::from)) {
            Ok(address) => address,
            Err(error) => {
                let _gone = handle.send_signal(libc_kill());
                let _reaped = child.wait().await;
                companions.cancel();
                return Err(error);
            }
        };
        let reaped = how.clone();
        tokio::spawn(async move {
            let status =
                child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
            reaped.send_replace(Some(status));
        });
        // Later output on standard output is not used, but must not fill the pipe.
        let drain = async move { while lines.next().await.is_ok() {} };
        tokio::spawn(companions.clone().run_until_cancelled_owned(drain));
        Record::new(identity, &address, checked.checksum, &self.args, &self.config)?.write(&self.dir)?;
        let connected = self.connect(identity, handle, address, true, how).await;
        match connected {
            Ok(process) => {
                let ended = process.ended.clone();
                tokio::spawn(async move {
                    ended.cancelled().await;
                    companions.cancel();
                });
                Ok(process)
            }
            Err(error) => {
                companions.cancel();
                self.end_recorded().await?;
                Err(error)
            }
        }
    }

    /// Connects to a process, and keeps the calls open that go-plugin's hosts keep open.
    async fn connect(
        &self,
        identity: ProcessIdentity,
        handle: PidFd,
        address: Address,
        is_new: bool,
        how: End,
    ) -> Result<Process, PluginError> {
        if let Address::Unix(socket) = &address {
            open_socket(socket)?.set_mode(0o600)?;
        }
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(
            tower::service_fn(move |_| {
                let address = address.clone();
                async move { dial(&address).await }
            }),
        );
        let ended = CancellationToken::new();
        let watched = PidFd::open_identity(identity)?
            .ok_or_else(|| ended_early("at once".into(), &LastLine::default()))?;
        let token = ended.clone();
        tokio::spawn(async move {
            if let Err(error) = wait_for(&watched).await {
                tracing::warn!(%error, "the end of a plugin cannot be observed");
            }
            token.cancel();
        });
        let companions = ended.child_token();
        if !is_new {
            let dir = Dir::open(&self.dir)?;
            for (name, is_log) in [("stdout", false), ("stderr", true)] {
                let mut lines = Lines::new(output::open(&dir, name)?)?;
                let plugin = self.name.clone();
                let copied = async move {
                    if is_log {
                        output::copy_log(plugin, lines, LastLine::default()).await;
                    } else {
                        while lines.next().await.is_ok() {}
                    }
                };
                tokio::spawn(companions.clone().run_until_cancelled_owned(copied));
            }
        }
        let process = Process {
            identity,
            is_new,
            channel: channel.clone(),
            handle,
            ended,
            how,
            companions: companions.clone(),
        };
        process.ping(CONNECT_TIMEOUT).await?;
        tokio::spawn(companions.run_until_cancelled_owned(keep_open(channel)));
        Ok(process)
    }
}

/// Keeps the calls open by which a plugin would address its host. Drivers and devices send nothing on them. A plugin
/// that does not serve these calls is accepted.
async fn keep_open(channel: Channel) {
    let mut broker = GrpcBrokerClient::new(channel.clone());
    let mut stdio = GrpcStdioClient::new(channel);
    let broker = async {
        if let Ok(stream) = broker.start_stream(tokio_stream::pending()).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(_)) = stream.message().await {}
        }
    };
    let stdio = async {
        if let Ok(stream) = stdio.stream_stdio(caravan_proto::plugins::host::Empty {}).await {
            let mut stream = stream.into_inner();
            while let Ok(Some(_)) = stream.message().await {}
        }
    };
    tokio::join!(broker, stdio);
}

impl Drop for Process {
    fn drop(&mut self) {
        self.companions.cancel();
    }
}

impl Process {
    /// Returns the connection, for the clients of the plugin's services.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Calls the plugin's health service. Each answer shows that the plugin is alive, except codes of a broken
    /// connection.
    pub(crate) async fn ping(&self, limit: Duration) -> Result<(), PluginError> {
        let mut client = HealthClient::new(self.channel());
        let request = HealthCheckRequest { service: "plugin".into() };
        let failed = match tokio::time::timeout(limit, client.check(request)).await {
            Err(_) => return Err(PluginError::Timeout { call: "Check", limit }),
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(status)) => status,
        };
        match failed.code() {
            tonic::Code::Unavailable | tonic::Code::Unknown | tonic::Code::Cancelled => {
                Err(PluginError::call("Check")(failed))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Returns the exit status of the process in words, if it is known.
    pub(crate) async fn end_reason(&self) -> String {
        let mut how = self.how.subscribe();
        let known = tokio::time::timeout(END_REASON_TIMEOUT, how.wait_for(Option::is_some)).await;
        let known = known.ok().and_then(Result::ok).and_then(|how| how.clone());
        known.unwrap_or_else(|| "its exit code is not known".into())
    }

    /// Kills the process and waits for its end.
    pub(crate) async fn kill(&self) {
        if let Err(error) = self.handle.send_signal(libc_kill()) {
            tracing::warn!(%error, pid = self.identity.pid, "a plugin cannot be killed");
            return;
        }
        self.ended().await;
    }

    /// Requests the end of the process, kills it if it does not end, and removes its record.
    pub(crate) async fn shut_down(&self, program: &Program) {
        // A plugin that ends in an orderly way waits for its open calls first.
        self.companions.cancel();
        let mut controller = GrpcControllerClient::new(self.channel());
        let asked = async {
            let _answer = controller.shutdown(caravan_proto::plugins::host::Empty {}).await;
            self.ended().await;
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, asked).await.is_err() {
            self.kill().await;
        }
        if let Err(error) = Record::remove(&program.dir) {
            tracing::warn!(plugin = program.name, %error, "the record of a plugin cannot be removed");
        }
    }
}

/// Returns the number of SIGKILL.
fn libc_kill() -> i32 {
    rustix::process::Signal::KILL.as_raw()
}

fn ended_early(how: String, last: &LastLine) -> PluginError {
    PluginError::Ended { how, output: last.get() }
}

/// Waits until a process has ended.
pub(crate) async fn wait_for(handle: &PidFd) -> Result<(), PluginError> {
    #[expect(deprecated, reason = "its successor is unsafe, and OwnedFd has the I/O safety that it asks for")]
    let register = |fd: OwnedFd| AsyncFd::new(fd);
    let watched = rustix::io::dup(handle).map_err(std::io::Error::from).and_then(register);
    let watched = watched.map_err(PluginError::io("watch a process"))?;
    let _readable = watched.readable().await.map_err(PluginError::io("watch a process"))?;
    Ok(())
}

/// Opens a socket by descriptor, so that no link leads elsewhere between check and use.
fn open_socket(socket: &Path) -> Result<caravan_sys::dir::Handle, PluginError> {
    let invalid =
        || PluginError::Io { what: "open the socket", source: std::io::ErrorKind::InvalidInput.into() };
    let (dir, name) = socket.parent().zip(socket.file_name()).ok_or_else(invalid)?;
    Ok(Dir::open(dir)?.handle(Path::new(name), Mounts::Refuse)?)
}

/// A connection to a plugin.
type Connection = Box<dyn Duplex>;

trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Duplex for T {}

async fn dial(address: &Address) -> std::io::Result<TokioIo<Connection>> {
    let connection: Connection = match address {
        Address::Unix(socket) => {
            let handle = open_socket(socket).map_err(std::io::Error::other)?;
            Box::new(UnixStream::connect(handle.proc_path()).await?)
        }
        Address::Tcp(address) => Box::new(TcpStream::connect(address).await?),
    };
    Ok(TokioIo::new(connection))
}

/// Removes the sockets of earlier processes.
fn clear(dir: &Dir) -> Result<(), PluginError> {
    for name in dir.names()? {
        if dir.kind(&name)?.is_some_and(|kind| kind == caravan_sys::dir::Kind::Other) {
            dir.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Writes a file of the plugin's directory (0600).
pub(crate) fn put(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), PluginError> {
    Dir::open(dir)?.replace(OsStr::new(name), bytes, Access::mode(0o600))?;
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}
