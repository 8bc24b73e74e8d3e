//! The handle of the membership.

use crate::error::Stopped;
use crate::frame::{KeyList, KeyOperation, MAX_TAG_BYTES, Message};
use crate::key::KeyError;
use crate::member::{CLUSTER_TAG, Event, Member, ServerTags, Status, View};
use crate::net::{CallError, Net, call};
use crate::resolve::{AddressError, JoinAddress};
use crate::service::Input;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

/// The timeout of a join and of an operation on the key ring of a server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The time in which other members receive that this server leaves, before it has left, and again afterwards.
const LEAVE_PAUSE: Duration = Duration::from_millis(500);

/// The state that all handles of one server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: Uuid,
    pub(crate) addr: SocketAddr,
    pub(crate) net: Arc<Net>,
    pub(crate) views: watch::Receiver<Arc<View>>,
    pub(crate) events: broadcast::Sender<Event>,
}

/// The interface to the membership of this server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    inputs: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

/// The result of a join.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinResult {
    /// The number of servers that responded.
    pub joined: usize,
    /// The addresses that failed, with the reasons.
    pub failures: Vec<JoinFailure>,
}

/// An address that a join could not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinFailure {
    /// The address as the user wrote it.
    pub address: String,
    /// The reason, as one sentence.
    pub reason: String,
}

impl fmt::Display for JoinFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to join {}: {}", self.address, self.reason)
    }
}

impl JoinResult {
    /// Returns the failures as one text; `None` without failures.
    pub fn error(&self) -> Option<String> {
        let texts: Vec<String> = self.failures.iter().map(JoinFailure::to_string).collect();
        if texts.is_empty() { None } else { Some(texts.join("; ")) }
    }
}

/// The results of an operation on the key rings of all alive servers (docs/reference/cluster.md, section 11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyringAnswer {
    /// The errors by the name of the server.
    pub errors: BTreeMap<String, String>,
    /// The number of servers that have each key, by base64 of the key.
    pub keys: BTreeMap<String, usize>,
    /// The number of servers that have each key as the primary one, by base64 of the key.
    pub primary_keys: BTreeMap<String, usize>,
    /// The number of servers that received the operation, including this server.
    pub nodes: usize,
}

impl KeyringAnswer {
    /// Returns whether all servers executed the operation.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty()
    }

    fn add(&mut self, name: &str, answer: Result<KeyList, String>) {
        self.nodes += 1;
        match answer {
            Ok(KeyList(keys)) => {
                if let Some(primary) = keys.first() {
                    *self.primary_keys.entry(primary.clone()).or_default() += 1;
                }
                for key in keys {
                    *self.keys.entry(key).or_default() += 1;
                }
            }
            Err(reason) => drop(self.errors.insert(name.to_owned(), reason)),
        }
    }
}

/// Figures of the membership (the group `serf` of docs/reference/cluster.md, section 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// The number of all members, including failed members and members that left.
    pub members: usize,
    /// The number of failed members.
    pub failed: usize,
    /// The number of members that left.
    pub left: usize,
    /// The number of changes since the start.
    pub changes: u64,
    /// Whether gossip is encrypted.
    pub encrypted: bool,
}

impl Handle {
    pub(crate) fn new(inputs: mpsc::Sender<Input>, shared: Shared) -> Self {
        Self { inputs, shared: Arc::new(shared) }
    }

    /// Returns the current members with their version.
    pub fn view(&self) -> Arc<View> {
        self.shared.views.borrow().clone()
    }

    /// Returns the current members, sorted by name.
    pub fn members(&self) -> Vec<Member> {
        self.view().members.to_vec()
    }

    /// Returns this server as a member; `None` if its row is not shown.
    pub fn own(&self) -> Option<Member> {
        self.view().by_id(self.shared.id).cloned()
    }

    /// Returns this server's UUID.
    pub fn id(&self) -> Uuid {
        self.shared.id
    }

    /// Returns the advertised address of this server's gossip port.
    pub fn addr(&self) -> SocketAddr {
        self.shared.addr
    }

    /// Returns a receiver of the newest members. A reader that compares [`View::version`] misses no change,
    /// but may receive several changes together.
    pub fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.shared.views.clone()
    }

    /// Returns a receiver of single changes from now on. A receiver that lags more than a thousand changes
    /// behind loses some, and must read [`Handle::view`].
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Returns the sorted names of the regions with at least one alive member.
    pub fn regions(&self) -> Vec<String> {
        self.view().regions()
    }

    /// Returns the figures of the membership.
    pub fn stats(&self) -> Stats {
        let view = self.view();
        Stats {
            members: view.members.len(),
            failed: view.count(Status::Failed),
            left: view.count(Status::Left),
            changes: view.version,
            encrypted: self.is_encrypted(),
        }
    }

    /// Returns whether this server has a gossip key.
    pub fn is_encrypted(&self) -> bool {
        !self.shared.net.keys.ring().is_empty()
    }

    /// Joins the servers at these addresses: `host`, `host:port`, IP address or `[v6]:port`. The default
    /// port is the port of this server's gossip. A name with several records is several addresses. Joining
    /// one member joins all members.
    pub async fn join(&self, addresses: &[String]) -> JoinResult {
        let mut result = JoinResult::default();
        let port = self.shared.addr.port();
        let mut targets = Vec::new();
        for address in addresses {
            match resolve(address, port).await {
                Ok(found) => targets.extend(found.into_iter().map(|target| (address.clone(), target))),
                Err(error) => {
                    result.failures.push(JoinFailure { address: address.clone(), reason: error.to_string() });
                }
            }
        }
        self.join_all(targets, result).await
    }

    /// Joins the servers at these addresses.
    pub async fn join_at(&self, addresses: &[SocketAddr]) -> JoinResult {
        let targets = addresses.iter().map(|target| (target.to_string(), *target)).collect();
        self.join_all(targets, JoinResult::default()).await
    }

    async fn join_all(&self, targets: Vec<(String, SocketAddr)>, mut result: JoinResult) -> JoinResult {
        let mut calls = JoinSet::new();
        for (address, target) in targets {
            let handle = self.clone();
            calls.spawn(async move {
                let joined = handle.join_one(target).await;
                let shown =
                    if address == target.to_string() { address } else { format!("{address} ({target})") };
                joined.map_err(|reason| JoinFailure { address: shown, reason })
            });
        }
        for joined in calls.join_all().await {
            match joined {
                Ok(()) => result.joined += 1,
                Err(failure) => result.failures.push(failure),
            }
        }
        result.failures.sort_by(|a, b| a.address.cmp(&b.address));
        result
    }

    async fn join_one(&self, target: SocketAddr) -> Result<(), String> {
        if self.own().is_none_or(|own| own.status == Status::Left) {
            return Err(Stopped::Left.to_string());
        }
        let sync = self.ask(Input::Sync).await.map_err(text)?;
        let net = &self.shared.net;
        let (answer, mut writer) = call(net, target, &sync, CALL_TIMEOUT).await.map_err(text)?;
        if !matches!(answer, Message::SyncAnswer { .. }) {
            return Err(CallError::Invalid.to_string());
        }
        let answers = self.ask(|reply| Input::Joined { answer, reply }).await.map_err(text)?;
        for answer in answers {
            writer.write(net, &answer).await.map_err(text)?;
        }
        self.refuse_foreign(target)
    }

    /// Refuses a server of the own region that belongs to another cluster. The table shows the server, but
    /// the log does not admit it.
    fn refuse_foreign(&self, target: SocketAddr) -> Result<(), String> {
        let (Some(own), view) = (self.own(), self.view()) else { return Ok(()) };
        let joined = view.members.iter().find(|member| member.addr == target && member.is_foreign(&own));
        let Some(joined) = joined else { return Ok(()) };
        let cluster = |member: &Member| member.tag(CLUSTER_TAG).unwrap_or_default().to_owned();
        Err(format!(
            "server {} belongs to cluster {}, and this server to cluster {}: they stay apart",
            joined.name,
            cluster(joined),
            cluster(&own)
        ))
    }

    /// Leaves the cluster: the other servers show this server as left. It joins again only after a restart.
    ///
    /// # Errors
    /// [`Stopped::Ended`].
    pub async fn leave(&self) -> Result<(), Stopped> {
        let is_alone = self.view().count(Status::Alive) < 2;
        let pause = if is_alone { Duration::ZERO } else { LEAVE_PAUSE };
        self.ask(Input::Leave).await?;
        tokio::time::sleep(pause).await;
        // Without a file, the reply ends without a message.
        let (reply, remembered) = oneshot::channel();
        self.inputs.send(Input::Left(reply)).await.map_err(|_| Stopped::Ended)?;
        drop(remembered.await);
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Forces the members of a name (`<node>.<region>`) to leave; with `prune`, also removes them from the
    /// list. Returns whether the name has a member; an unknown name is no error.
    ///
    /// # Errors
    /// [`Stopped::Ended`].
    pub async fn force_leave(&self, name: &str, prune: bool) -> Result<bool, Stopped> {
        let name = name.to_owned();
        self.ask(|reply| Input::ForceLeave { name, prune, reply }).await
    }

    /// Replaces the tags of this server.
    ///
    /// # Errors
    /// [`SetTagsError`].
    pub async fn set_tags(&self, tags: ServerTags) -> Result<(), SetTagsError> {
        let size: usize = tags.to_tags().iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > MAX_TAG_BYTES {
            return Err(SetTagsError::TooLong);
        }
        self.ask(|reply| Input::SetTags(tags, reply)).await.map_err(SetTagsError::Stopped)
    }

    /// Returns the keys of all alive servers.
    pub async fn keyring_list(&self) -> KeyringAnswer {
        self.keyring(KeyOperation::List).await
    }

    /// Adds a key, in base64, to the key rings of all alive servers.
    pub async fn keyring_install(&self, key: &str) -> KeyringAnswer {
        self.keyring(KeyOperation::Install(key.to_owned())).await
    }

    /// Sets an installed key, in base64, as the primary key of all alive servers.
    pub async fn keyring_use(&self, key: &str) -> KeyringAnswer {
        self.keyring(KeyOperation::Use(key.to_owned())).await
    }

    /// Removes a key, in base64, from the key rings of all alive servers. The primary key cannot be removed.
    pub async fn keyring_remove(&self, key: &str) -> KeyringAnswer {
        self.keyring(KeyOperation::Remove(key.to_owned())).await
    }

    async fn keyring(&self, operation: KeyOperation) -> KeyringAnswer {
        let mut answer = KeyringAnswer::default();
        let view = self.view();
        let name = self.own().map(|own| own.name).unwrap_or_default();
        let own = self.own_keys(operation.clone()).await;
        let is_refused = own.is_err();
        answer.add(&name, own.map_err(|error| error.to_string()));
        // If this server refuses an operation, the others would refuse it too. A partial change must not happen.
        if is_refused {
            return answer;
        }
        let mut calls = JoinSet::new();
        let others = view.members.iter().filter(|member| member.is_alive() && member.id != self.shared.id);
        for Member { name, addr, .. } in others.cloned() {
            let (handle, message) = (self.clone(), Message::Keys(operation.clone()));
            calls.spawn(async move {
                let called = call(&handle.shared.net, addr, &message, CALL_TIMEOUT).await;
                let answer = match called {
                    Ok((Message::KeysAnswer(answer), _)) => answer,
                    Ok(_) => Err(CallError::Invalid.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                (name, answer)
            });
        }
        for (name, keys) in calls.join_all().await {
            answer.add(&name, keys);
        }
        answer
    }

    async fn own_keys(&self, operation: KeyOperation) -> Result<KeyList, KeyError> {
        let net = Arc::clone(&self.shared.net);
        let applied = tokio::task::spawn_blocking(move || net.keys.apply(&operation)).await;
        applied.unwrap_or_else(|error| Err(KeyError::File(error.to_string())))
    }

    async fn ask<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> Result<T, Stopped> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(input(reply)).await.map_err(|_| Stopped::Ended)?;
        answer.await.map_err(|_| Stopped::Ended)
    }
}

/// The reasons for which tags are not replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetTagsError {
    /// The tags exceed [`MAX_TAG_BYTES`].
    #[error("the tags exceed {MAX_TAG_BYTES} bytes")]
    TooLong,
    /// The membership has ended.
    #[error(transparent)]
    Stopped(Stopped),
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

async fn resolve(address: &str, port: u16) -> Result<Vec<SocketAddr>, AddressError> {
    JoinAddress::parse(address)?.resolve(port).await
}
