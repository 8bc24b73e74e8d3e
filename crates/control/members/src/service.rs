//! The service: one task owns the state machine, and other tasks carry its messages.

mod actor;
mod links;

use crate::core::{Core, Own, Timing};
use crate::error::Error;
use crate::frame::{MAX_MESSAGE_BYTES, Message, Row};
use crate::handle::{Handle, Shared};
use crate::key::Key;
use crate::keys::Keys;
use crate::member::{ServerTags, View};
use crate::net::{Net, random};
use crate::remembered::{self, Remembered};
use actor::Actor;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Number of inputs that wait for the actor.
const INPUTS: usize = 1024;
/// Number of events that a slow subscriber may lag behind.
const EVENTS: usize = 1024;
/// The first pause between two attempts to reach remembered members.
const REJOIN_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two such attempts.
const MAX_REJOIN_PAUSE: Duration = Duration::from_secs(30);

/// The settings of the membership.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's UUID.
    pub id: Uuid,
    /// The name of the node, without the region.
    pub node: String,
    /// The address of the gossip port for other servers (`advertise.serf`). Port 0 means the port of the listener.
    pub advertise: SocketAddr,
    /// The tags. Their region is the second part of the member's name.
    pub tags: ServerTags,
    /// The server's data directory, for the key ring and the remembered members. `None`: both exist in memory only.
    pub dir: Option<PathBuf>,
    /// The configured gossip key (`server.encrypt`).
    pub encrypt: Option<Key>,
    /// Whether gossip without encryption is accepted together with encrypted gossip (`server.encrypt_accept_plain`).
    pub accept_plain: bool,
    /// Whether remembered members are used also after this server has left (`server.rejoin_after_leave`).
    pub rejoin_after_leave: bool,
    /// The times of the state machine.
    pub timing: Timing,
}

/// A message from a connection, or a request of a handle.
#[derive(Debug)]
pub(crate) enum Input {
    /// A message, and the sender of responses to its connection.
    Message {
        message: Message,
        answers: mpsc::Sender<Message>,
    },
    /// A request for the message that begins a sync.
    Sync(oneshot::Sender<Message>),
    /// The response to a sync that a join began. The replies are for the other side.
    Joined {
        answer: Message,
        reply: oneshot::Sender<Vec<Message>>,
    },
    /// The beginning of leaving.
    Leave(oneshot::Sender<()>),
    /// The end of leaving; the reply follows when the file records it.
    Left(oneshot::Sender<()>),
    ForceLeave {
        name: String,
        prune: bool,
        reply: oneshot::Sender<bool>,
    },
    SetTags(ServerTags, oneshot::Sender<()>),
}

/// The membership, ready to run.
#[derive(Debug)]
pub struct Service {
    actor: Actor,
    listener: TcpListener,
    handle: Handle,
    inputs: mpsc::Sender<Input>,
    net: Arc<Net>,
    /// Addresses of members of the earlier run.
    rejoin: Vec<SocketAddr>,
    /// The task that writes the remembered members, until the actor has ended.
    saver: Option<JoinHandle<()>>,
}

impl Service {
    /// Reads the files and prepares the membership. The listener belongs to `ports.serf`. Must be called within a
    /// runtime; the call reads and writes small files.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(config: Config, listener: TcpListener) -> Result<(Handle, Self), Error> {
        let bound = listener.local_addr().map_err(Error::Listen)?;
        let mut advertise = config.advertise;
        if advertise.port() == 0 {
            advertise.set_port(bound.port());
        }
        if advertise.ip().is_unspecified() {
            return Err(Error::Advertise(advertise));
        }
        let keys = Keys::open(config.dir.as_deref(), config.encrypt, config.accept_plain)?;
        let before = config.dir.as_deref().map(remembered::read).transpose()?.unwrap_or_default();
        let is_used = !before.left || config.rejoin_after_leave;
        let known = if is_used { before.members } else { Vec::new() };
        let rejoin = known.iter().map(|known| known.addr).filter(|addr| *addr != advertise).collect();
        let epoch = wall_millis().max(before.epoch.saturating_add(1));
        let remembered = Remembered { epoch, left: false, members: known };
        if let Some(dir) = &config.dir {
            remembered::write(dir, &remembered)?;
        }
        let name = format!("{}.{}", config.node, config.tags.region);
        let tags = config.tags.to_tags();
        let own = Own { id: config.id, name, addr: advertise, tags, epoch };
        if !is_valid(&own) {
            return Err(Error::Tags);
        }
        let seed = u64::from_le_bytes(random().map_err(|_| Error::Random)?);
        let core = Core::new(own, config.timing, seed, Duration::ZERO);
        let net = Arc::new(Net::new(keys));
        let (inputs, received) = mpsc::channel(INPUTS);
        let (view, views) = watch::channel(Arc::new(View::default()));
        let (events, _) = broadcast::channel(EVENTS);
        let shared =
            Shared { id: config.id, addr: advertise, net: Arc::clone(&net), views, events: events.clone() };
        let handle = Handle::new(inputs.clone(), shared);
        let saves = config.dir.map(|dir| {
            let (saves, contents) = mpsc::unbounded_channel();
            (saves, remembered::save(dir, contents))
        });
        let (saves, saver) = saves.unzip();
        let saver = saver.map(tokio::spawn);
        let links = links::Links::new(Arc::clone(&net), inputs.downgrade());
        let mut actor =
            Actor { core, inputs: received, start: Instant::now(), links, view, events, saves, remembered };
        actor.carry_out();
        Ok((handle.clone(), Self { actor, listener, handle, inputs, net, rejoin, saver }))
    }

    /// Runs until `cancel`. The end is not a leave: other servers show this server as failed.
    pub async fn run(self, cancel: CancellationToken) {
        let Self { actor, listener, handle, inputs, net, rejoin, saver } = self;
        let listening = links::listen(listener, Arc::clone(&net), inputs, cancel.clone());
        let rejoining = async {
            rejoin_members(&handle, rejoin).await;
            std::future::pending::<()>().await
        };
        // All four parts end with `cancel` only. The actor does not outlive this statement.
        tokio::select! {
            () = actor.run(cancel.clone()) => {}
            () = listening => {}
            () = rejoining => {}
            () = cancel.cancelled() => {}
        }
        cancel.cancelled().await;
        if let Some(saver) = saver {
            // The task ends, because the actor had its only sender.
            let _ = saver.await;
        }
    }
}

/// Joins members of an earlier run until one other member is alive.
async fn rejoin_members(handle: &Handle, addresses: Vec<SocketAddr>) {
    let mut pause = REJOIN_PAUSE;
    if addresses.is_empty() {
        return;
    }
    loop {
        let is_alone = handle.view().members.iter().filter(|member| member.is_alive()).count() < 2;
        if !is_alone {
            return;
        }
        let joined = handle.join_at(&addresses).await;
        if joined.joined > 0 {
            tracing::info!(members = joined.joined, "joined members of the earlier run");
            return;
        }
        tracing::debug!(?pause, "no member of the earlier run answers");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_REJOIN_PAUSE);
    }
}

fn is_valid(own: &Own) -> bool {
    let Own { id, name, addr, tags, .. } = own.clone();
    let row = Row { id, name, addr, tags, version: 0, intent: Default::default() };
    let message = Message::Rows { claims: Vec::new(), rows: vec![row.clone()] };
    row.is_valid() && message.encode().is_ok_and(|bytes| bytes.len() < MAX_MESSAGE_BYTES)
}

fn wall_millis() -> u64 {
    let since = caravan_sys::time::wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
