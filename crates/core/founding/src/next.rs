//! The next step of a server without a log.

use crate::{Answer, Candidate, ClusterId, Founding, Own, Promise, Refusal, ServerUuid};
use std::collections::{BTreeMap, BTreeSet};

/// The next step of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The server has a log, so the founding has ended. Delete the promise: a server that loses its log must not take
    /// part again under its old number.
    Done,
    /// The server can do nothing before the named change.
    Wait(Wait),
    /// Generate a new cluster id, and store the promise to this founding of the server itself.
    Propose {
        /// The servers of the founding.
        servers: BTreeSet<ServerUuid>,
    },
    /// Request promises from the missing servers.
    Ask {
        /// The proposed founding.
        founding: Founding,
        /// The servers that have not promised.
        missing: BTreeSet<ServerUuid>,
    },
    /// Delete the server's own promise, and never again propose its cluster.
    Withdraw {
        /// The refusal that causes the withdrawal.
        because: Refusal,
    },
    /// Ask the proposer whether the founding still stands ([`crate::stands`]); if not, delete the promise.
    Inquire {
        /// The founding that is promised.
        founding: Founding,
    },
    /// All servers have promised. Write the first entry of the log, durably, with all servers as voters, unless the
    /// log has entries. Then delete the promise; before that, a restarted server repeats this step.
    Found(Founding),
}

/// The reason of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Wait {
    /// `bootstrap_expect` is 0.
    #[error("bootstrap_expect is 0: this server waits until a cluster admits it")]
    Admission,
    /// The region has a cluster.
    #[error("cluster {0} exists: this server waits until it is admitted")]
    Cluster(ClusterId),
    /// Too few servers are known.
    #[error("{found} of {expect} expected servers are known")]
    Few {
        /// The number of known servers without a log, this one included.
        found: usize,
        /// The number of servers that this one expects.
        expect: usize,
    },
    /// A server expects another number.
    #[error("server {server} has bootstrap_expect {theirs}, this one has {own}")]
    Expect {
        /// The server.
        server: ServerUuid,
        /// Its expected number.
        theirs: usize,
        /// The number of this server.
        own: usize,
    },
    /// Another server proposes.
    #[error("server {0} has the smallest id and proposes the cluster")]
    Proposer(ServerUuid),
    /// The cluster of the promise is founded, and its log has not arrived yet.
    #[error("cluster {0} is founded: this server waits for its log")]
    Log(ClusterId),
}

/// Returns the next step of a server. `answers` are the answers to its current proposal, since its start.
pub fn next(own: &Own, members: &[Candidate], answers: &BTreeMap<ServerUuid, Answer>) -> Step {
    if let Some(cluster) = own.cluster {
        // A crash between the write of the proposer's identity and that of the first entry leaves an empty log. Only
        // the proposer writes the first entry.
        let unfinished = own.promise.as_ref().map(|promise| &promise.founding);
        let unfinished = unfinished.filter(|f| f.proposer == own.server && f.cluster == cluster);
        return unfinished.map_or(Step::Done, |founding| Step::Found(founding.clone()));
    }
    let members = || members.iter().filter(|member| member.server != own.server);
    let foreign = members().find_map(|member| member.cluster.map(|cluster| (member.server, cluster)));
    match &own.promise {
        Some(Promise { founding }) if founding.proposer == own.server => proposed(founding, foreign, answers),
        Some(Promise { founding }) => match foreign {
            Some((_, cluster)) if cluster == founding.cluster => Step::Wait(Wait::Log(cluster)),
            _ => Step::Inquire { founding: founding.clone() },
        },
        None if own.expect == 0 => Step::Wait(Wait::Admission),
        None => match foreign {
            Some((_, cluster)) => Step::Wait(Wait::Cluster(cluster)),
            None => propose(own, members()),
        },
    }
}

/// Returns the next step of a proposer, which has not founded its cluster.
fn proposed(
    founding: &Founding,
    foreign: Option<(ServerUuid, ClusterId)>,
    answers: &BTreeMap<ServerUuid, Answer>,
) -> Step {
    if let Some((server, cluster)) = foreign {
        return Step::Withdraw { because: Refusal::Founded { server, cluster } };
    }
    let of = |server: &ServerUuid| answers.get(server);
    for refusal in founding.servers.iter().filter_map(of).filter_map(Answer::refusal) {
        // A proposer with a larger id withdraws, and then its servers promise themselves to this one.
        let is_passing = matches!(refusal, Refusal::Promised(other) if other.proposer > founding.proposer);
        if !is_passing {
            return Step::Withdraw { because: refusal.clone() };
        }
    }
    let missing: BTreeSet<ServerUuid> = (founding.servers.iter())
        .filter(|server| **server != founding.proposer && of(server) != Some(&Answer::Promised))
        .copied()
        .collect();
    if missing.is_empty() {
        return Step::Found(founding.clone());
    }
    Step::Ask { founding: founding.clone(), missing }
}

/// Returns the next step of a server without a promise, in a region without a cluster.
fn propose<'a>(own: &Own, members: impl Iterator<Item = &'a Candidate>) -> Step {
    let mut servers = BTreeSet::from([own.server]);
    for member in members.filter(|member| member.expect != 0) {
        if member.expect != own.expect {
            let (server, theirs) = (member.server, member.expect);
            return Step::Wait(Wait::Expect { server, theirs, own: own.expect });
        }
        servers.insert(member.server);
    }
    if servers.len() < own.expect {
        return Step::Wait(Wait::Few { found: servers.len(), expect: own.expect });
    }
    let first = servers.first().copied().unwrap_or(own.server);
    if first != own.server {
        return Step::Wait(Wait::Proposer(first));
    }
    // The surplus is admitted after the founding.
    Step::Propose { servers: servers.into_iter().take(own.expect).collect() }
}
