//! Connections of the gossip port. Each is a stream of frames in both directions; [`crate::session`]
//! defines their form.

use crate::frame::Message;
use crate::key::NONCE;
use crate::keys::Keys;
use crate::session::{self, Broken, GREETING, LOT, MAX_FRAME_BYTES, Refusal, Session, Side};
use parking_lot::Mutex;
use rand::TryRngCore as _;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// The timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of the greetings, and of writing one frame.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time after which unacknowledged data ends the connection (tcp(7), `TCP_USER_TIMEOUT`). Without the limit, a
/// connection that was cut stays silent for minutes after the cut has ended.
const USER_TIMEOUT_MILLIS: u32 = 5000;
/// The size above which a frame needs a permit, so that strangers cannot fill the memory with frames.
const SMALL_FRAME: usize = 64 << 10;
/// The number of larger frames at a time.
const LARGE_FRAMES: usize = 16;
/// The interval at which the same refusal of the same host is logged again.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// The number of remembered reports.
const MAX_REPORTS: usize = 256;

/// The reasons for which a call to a server failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The system's error.
    Io(io::Error),
    /// The time ran out.
    Timeout,
    /// The other side ended the connection.
    Closed,
    /// The other side speaks another protocol.
    Foreign,
    /// The other side refused a frame.
    Refused(Refusal),
    /// This side refused a frame.
    Refuses(Refusal),
    /// The other side sent a frame that is not valid.
    Invalid,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Closed => f.write_str("the server ended the connection"),
            Self::Foreign => f.write_str("no Caravan server answers there"),
            Self::Refused(reason) => f.write_str(&reason.other_side()),
            Self::Refuses(reason) => f.write_str(&reason.own_side()),
            Self::Invalid => f.write_str("the server's answer is not valid"),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Net {
    pub(crate) keys: Keys,
    large: Semaphore,
    reports: Mutex<HashMap<(IpAddr, Refusal, bool), Instant>>,
}

impl Net {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, large: Semaphore::new(LARGE_FRAMES), reports: Mutex::default() }
    }

    /// Logs a refusal, but the same refusal only once per interval.
    pub(crate) fn report(&self, peer: SocketAddr, error: &CallError) {
        let (reason, is_own) = match error {
            CallError::Refuses(reason) => (*reason, true),
            CallError::Refused(reason) => (*reason, false),
            error => {
                tracing::debug!(%peer, %error, "a gossip connection ended");
                return;
            }
        };
        let now = Instant::now();
        let mut reports = self.reports.lock();
        if reports.len() >= MAX_REPORTS {
            reports.retain(|_, at| now.duration_since(*at) < REPORT_INTERVAL);
        }
        let is_known = |at: &Instant| now.duration_since(*at) < REPORT_INTERVAL;
        if reports.len() >= MAX_REPORTS || reports.get(&(peer.ip(), reason, is_own)).is_some_and(is_known) {
            return;
        }
        reports.insert((peer.ip(), reason, is_own), now);
        drop(reports);
        tracing::warn!(%peer, reason = %error, "a gossip message was refused");
    }
}

pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// The reading half of a connection.
#[derive(Debug)]
pub(crate) struct Reader {
    half: OwnedReadHalf,
    direction: session::Direction,
}

/// The writing half of a connection.
#[derive(Debug)]
pub(crate) struct Writer {
    half: OwnedWriteHalf,
    direction: session::Direction,
    /// Whether frames are sent unsealed although this server has a key.
    plain: bool,
}

/// Opens a connection. With `plain`, frames of this side are not sealed.
pub(crate) async fn connect(to: SocketAddr, plain: bool) -> Result<(Reader, Writer), CallError> {
    let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await.map_err(|_| CallError::Timeout)??;
    greet(stream, Side::Opener, plain).await
}

/// Exchanges the greetings of both sides.
pub(crate) async fn greet(
    mut stream: TcpStream,
    side: Side,
    plain: bool,
) -> Result<(Reader, Writer), CallError> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(&stream, USER_TIMEOUT_MILLIS).map_err(io::Error::from)?;
    let own: [u8; LOT] = random()?;
    let mut bytes = [0; GREETING];
    let exchange = async {
        stream.write_all(&session::greeting(own)).await?;
        stream.read_exact(&mut bytes).await
    };
    timeout(STEP_TIMEOUT, exchange).await.map_err(|_| CallError::Timeout)??;
    let other = session::read_greeting(&bytes).ok_or(CallError::Foreign)?;
    let Session { outgoing, incoming } = Session::new(side, own, other);
    let (reader, writer) = stream.into_split();
    let reader = Reader { half: reader, direction: incoming };
    Ok((reader, Writer { half: writer, direction: outgoing, plain }))
}

impl Reader {
    /// Reads the next message, and returns whether it was sealed. Waits for the message without limit.
    pub(crate) async fn read(&mut self, net: &Net) -> Result<(Message, bool), CallError> {
        let length = self.half.read_u32().await?;
        let length = usize::try_from(length).map_err(|_| CallError::Invalid)?;
        if length > MAX_FRAME_BYTES {
            return Err(CallError::Invalid);
        }
        let permit = if length > SMALL_FRAME { net.large.acquire().await.ok() } else { None };
        let mut frame = vec![0; length];
        let read = timeout(STEP_TIMEOUT, self.half.read_exact(&mut frame));
        read.await.map_err(|_| CallError::Timeout)??;
        let opened = self.direction.open(&net.keys.ring(), net.keys.accepts_plain(), &frame);
        drop(permit);
        opened.map_err(|broken| match broken {
            Broken::Refuses(reason) => CallError::Refuses(reason),
            Broken::Refused(reason) => CallError::Refused(reason),
            Broken::Invalid(_) => CallError::Invalid,
        })
    }

    /// Reads until the other side ends the connection, so that it can read a last frame of this side.
    async fn drain(&mut self) {
        let mut bytes = [0; 1024];
        let end = async { while matches!(self.half.read(&mut bytes).await, Ok(1..)) {} };
        drop(timeout(Duration::from_secs(1), end).await);
    }
}

impl Writer {
    /// Writes a message.
    pub(crate) async fn write(&mut self, net: &Net, message: &Message) -> Result<(), CallError> {
        let nonce: [u8; NONCE] = random()?;
        let frame = self.direction.seal(&net.keys.ring(), self.plain, nonce, message);
        self.write_frame(&frame.map_err(|_| CallError::Invalid)?).await
    }

    async fn write_frame(&mut self, frame: &[u8]) -> Result<(), CallError> {
        let length = u32::try_from(frame.len()).map_err(|_| CallError::Invalid)?;
        let bytes = [&length.to_be_bytes()[..], frame].concat();
        timeout(STEP_TIMEOUT, self.half.write_all(&bytes)).await.map_err(|_| CallError::Timeout)??;
        Ok(())
    }
}

/// Ends a connection. The other side receives the reason if this side refused a frame.
pub(crate) async fn end(mut reader: Reader, mut writer: Writer, error: &CallError) {
    if let CallError::Refuses(reason) = error {
        let told = writer.write_frame(&session::refusal(*reason)).await;
        if told.is_ok() && writer.half.shutdown().await.is_ok() {
            reader.drain().await;
        }
    }
}

/// Sends a message over a separate connection and waits for the first response. `limit` bounds the whole call.
/// If the other side has no keys, the call is repeated unsealed where that is allowed.
pub(crate) async fn call(
    net: &Net,
    to: SocketAddr,
    message: &Message,
    limit: Duration,
) -> Result<(Message, Writer), CallError> {
    let attempt = async |plain| {
        let (mut reader, mut writer) = connect(to, plain).await?;
        let exchanged = async {
            writer.write(net, message).await?;
            reader.read(net).await
        };
        match exchanged.await {
            Ok((answer, _)) => Ok((answer, writer)),
            Err(error) => {
                end(reader, writer, &error).await;
                Err(error)
            }
        }
    };
    let both = async {
        match attempt(false).await {
            Err(CallError::Refused(Refusal::NoKeys)) if net.keys.accepts_plain() => attempt(true).await,
            result => result,
        }
    };
    let result = timeout(limit, both).await.unwrap_or(Err(CallError::Timeout));
    if let Err(error) = &result {
        net.report(to, error);
    }
    result
}
