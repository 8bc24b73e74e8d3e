//! The founding of a cluster together with other servers that have no log (`bootstrap_expect` above 1).
//!
//! `caravan-founding` decides; this module stores promises and carries messages. Changes of the member table and of
//! the promise wake the founder, as does a timer while another server's answer is missing.

use super::promise::Promised;
use super::{Cluster, Lane};
use crate::error::ServerError;
use crate::runtime::{self, select};
use caravan_consensus::{ClusterId, Peer, ServerId};
use caravan_founding::{Answer, Candidate, Founding, Promise, ServerUuid, Step, Wait, next};
use caravan_members::{Member, View};
use caravan_messages::cluster::{AskFounding, AskPromise, ClusterKey};
use caravan_rpc::{Channel, Credential, methods};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Pause between questions to servers that did not answer.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Timeout of a server's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The service that founds the cluster; it ends once this server belongs to a cluster.
#[derive(Debug)]
pub(crate) struct Founder {
    cluster: Cluster,
    /// The answers to the current proposal of this server.
    answers: BTreeMap<ServerUuid, Answer>,
    answered: Option<Founding>,
    said: Option<Wait>,
}

/// The time of the next decision.
enum Again {
    /// Immediately, because something changed.
    Now,
    /// After a change, or after a pause.
    Later,
    /// After a change.
    Changed,
    /// The server belongs to a cluster.
    Never,
}

impl Founder {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, answers: BTreeMap::new(), answered: None, said: None }
    }

    /// Runs until this server belongs to a cluster, or until cancelled.
    pub(crate) async fn run(mut self, cancel: CancellationToken) {
        let mut view = self.cluster.config.directory.changes();
        let mut promise = self.cluster.promises.changes();
        let mut leadership = self.cluster.log.leadership();
        loop {
            let _ = view.borrow_and_update();
            promise.borrow_and_update();
            leadership.borrow_and_update();
            let again = match self.step().await {
                Ok(again) => again,
                Err(error) => {
                    tracing::error!(%error, "a step of founding the cluster failed; retrying");
                    Again::Later
                }
            };
            let pause = async {
                match again {
                    Again::Later => runtime::sleep(ASK_INTERVAL).await,
                    _ => std::future::pending().await,
                }
            };
            match again {
                Again::Never => return,
                Again::Now => continue,
                Again::Later | Again::Changed => {}
            }
            select! {
                () = cancel.cancelled() => return,
                Ok(()) = view.changed() => {}
                Ok(()) = promise.changed() => {}
                Ok(()) = leadership.changed() => {}
                () = pause => {}
            }
        }
    }

    async fn step(&mut self) -> Result<Again, ServerError> {
        let promises = self.cluster.promises.clone();
        let turn = promises.turn().await;
        let identity = self.cluster.identity();
        let cluster = identity.cluster.map(|id| caravan_founding::ClusterId(id.0));
        let own = promises.own(cluster);
        let view = self.cluster.config.directory.changes().borrow().clone();
        let members = candidates(&view, &self.cluster.region);
        let proposal = own.promise.as_ref().map(|promise| promise.founding.clone());
        if self.answered != proposal {
            self.answers.clear();
            self.answered = proposal;
        }
        match next(&own, &members, &self.answers) {
            Step::Done => {
                // If the log is lost, this server must not take part again under its old number.
                promises.store(None)?;
                Ok(Again::Never)
            }
            Step::Wait(wait) => {
                self.say(wait, &view);
                Ok(Again::Changed)
            }
            Step::Propose { servers } => {
                let (cluster, proposer) =
                    (caravan_founding::ClusterId(runtime::random_uuid()), promises.server());
                let founding = Founding { cluster, proposer, servers };
                let key = runtime::random_bytes()
                    .map_err(|error| crate::keyring::KeyringFault::Random(std::sync::Arc::new(error)))?;
                tracing::info!(%cluster, "this server proposes to found a cluster");
                self.promise(founding, ClusterKey::new(key))?;
                Ok(Again::Now)
            }
            Step::Ask { founding, missing } => {
                let Some(promised) = promises.promised() else { return Ok(Again::Now) };
                drop(turn);
                let before = self.answers.len();
                self.ask(&view, &founding, &promised.key, missing).await;
                Ok(if self.answers.len() > before { Again::Now } else { Again::Later })
            }
            Step::Withdraw { because } => {
                tracing::info!(%because, "this server withdraws its proposal to found a cluster");
                self.withdraw()?;
                self.answers.clear();
                Ok(Again::Later)
            }
            Step::Inquire { founding } => {
                drop(turn);
                self.inquire(&view, &founding).await
            }
            Step::Found(founding) => {
                self.found(&view, &founding).await?;
                // If the log is lost, this server must not take part again under its old number.
                promises.store(None)?;
                Ok(Again::Now)
            }
        }
    }

    fn say(&mut self, wait: Wait, view: &View) {
        if self.said.as_ref() == Some(&wait) {
            return;
        }
        match &wait {
            // Nothing changes before a user corrects one of the configurations.
            Wait::Expect { server, theirs, own } => {
                let name = view.by_id(server.0).map(|member| member.name.as_str()).unwrap_or_default();
                tracing::error!(
                    "no cluster is founded: server {name} has bootstrap_expect = {theirs}, and this server has {own}"
                );
            }
            _ => tracing::info!(reason = %wait, "this server waits for a cluster"),
        }
        self.said = Some(wait);
    }

    fn promise(&self, founding: Founding, key: ClusterKey) -> Result<(), ServerError> {
        promise(&self.cluster, founding, key)
    }

    /// Deletes the promise, and the credential of its cluster: with the credential, this server would refuse the
    /// cluster that admits it.
    fn withdraw(&self) -> Result<(), ServerError> {
        self.cluster.promises.store(None)?;
        self.cluster.config.own.credential.clear();
        Ok(())
    }

    /// Requests the promises of servers concurrently.
    async fn ask(
        &mut self,
        view: &View,
        founding: &Founding,
        key: &ClusterKey,
        missing: BTreeSet<ServerUuid>,
    ) {
        let questions = missing.into_iter().filter_map(|server| {
            let channel = self.channel(view, server)?;
            let question = AskPromise { founding: founding.clone(), key: key.clone() };
            Some(async move {
                let answer =
                    runtime::call::<methods::ServerPromise>(&channel, question, ANSWER_TIMEOUT).await;
                (server, answer)
            })
        });
        for (server, answer) in futures::future::join_all(questions).await {
            match answer {
                Ok(answer) => drop(self.answers.insert(server, answer.answer)),
                Err(error) => {
                    tracing::info!(server = %server.0, %error, "a server does not answer the proposal")
                }
            }
        }
        // A temporary refusal is removed, so that the server is asked again.
        let is_passing = |answer: &Answer| {
            matches!(answer.refusal(), Some(caravan_founding::Refusal::Promised(other))
                if other.proposer > founding.proposer)
        };
        self.answers.retain(|_, answer| !is_passing(answer));
    }

    /// Asks the proposer whether the founding to which this server is promised is still proposed.
    async fn inquire(&mut self, view: &View, founding: &Founding) -> Result<Again, ServerError> {
        let Some(channel) = self.channel(view, founding.proposer) else { return Ok(Again::Later) };
        let question = AskFounding { founding: founding.clone() };
        match runtime::call::<methods::ServerFounding>(&channel, question, ANSWER_TIMEOUT).await {
            Ok(answer) if answer.stands => Ok(Again::Later),
            Ok(_) => {
                let promises = self.cluster.promises.clone();
                let _turn = promises.turn().await;
                let is_same = |promised: Promised| promised.promise.founding == *founding;
                if promises.promised().is_some_and(is_same) && self.cluster.identity().cluster.is_none() {
                    tracing::info!(cluster = %founding.cluster, "the proposed cluster will not be founded");
                    self.withdraw()?;
                }
                Ok(Again::Now)
            }
            Err(error) => {
                tracing::debug!(proposer = %founding.proposer, %error, "the proposer does not answer");
                Ok(Again::Later)
            }
        }
    }

    /// Writes the first entry of the log, with all founders as voters.
    async fn found(&self, view: &View, founding: &Founding) -> Result<(), ServerError> {
        let Some(promised) = self.cluster.promises.promised() else { return Ok(()) };
        let mut members = BTreeMap::new();
        for server in &founding.servers {
            let Some(number) = founding.number(*server) else { continue };
            members.insert(ServerId(number), peer(view, server.0));
        }
        let Some(own) = founding.number(self.cluster.promises.server()) else { return Ok(()) };
        let cluster = ClusterId(founding.cluster.0);
        tracing::info!(%cluster, servers = members.len(), "this server founds the cluster");
        self.cluster.keyring.set_cluster_key(&promised.key)?;
        self.cluster.log.admit(cluster, ServerId(own)).await?;
        self.cluster.log.found(cluster, members).await?;
        self.cluster.show(cluster, own);
        Ok(())
    }

    fn channel(&self, view: &View, server: ServerUuid) -> Option<Channel> {
        view.by_id(server.0)?;
        Some(self.cluster.config.channels.channel(&peer(view, server.0), Lane::Calls))
    }
}

/// Stores the promise to take part in a founding, and sets the credential of its cluster.
pub(super) fn promise(cluster: &Cluster, founding: Founding, key: ClusterKey) -> Result<(), ServerError> {
    let number = founding.number(cluster.promises.server()).unwrap_or_default();
    let credential = Credential::new(founding.cluster.0.to_string(), number, *key.expose());
    cluster.promises.store(Some(Promised { promise: Promise { founding }, key }))?;
    cluster.config.own.credential.set(credential);
    Ok(())
}

/// Returns a server in the form that the log records.
pub(crate) fn peer(view: &View, server: Uuid) -> Peer {
    let member = view.by_id(server);
    let address = member.and_then(Member::server_rpc_addr).map(|address| address.to_string());
    Peer {
        server,
        name: member.map(|member| member.name.clone()).unwrap_or_default(),
        addr: address.unwrap_or_default(),
    }
}

fn candidates(view: &View, region: &str) -> Vec<Candidate> {
    let alive = view.in_region(region).filter(|member| member.is_alive());
    let candidate = |member: &Member| {
        let tags = member.server_tags();
        Candidate {
            server: ServerUuid(member.id),
            expect: if tags.nonvoter { 0 } else { usize::try_from(tags.expect).unwrap_or(usize::MAX) },
            cluster: tags.cluster.map(caravan_founding::ClusterId),
        }
    };
    alive.map(candidate).collect()
}
