//! The channels between servers, and the member table.

use super::relay;
use super::world::{REGION, Sim, address, uuid};
use crate::net::host_of;
use caravan_consensus::Peer;
use caravan_consensus::sim::HostId;
use caravan_members::{Member, ServerTags, Status, View};
use caravan_rpc::Channel;
use caravan_server::{Directory, FEATURE_LEVEL, Lane, PeerChannels};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;
use uuid::Uuid;

/// The channels of one server.
#[derive(Debug)]
pub(super) struct Wires {
    sim: Sim,
    from: HostId,
    open: Mutex<BTreeMap<HostId, Channel>>,
}

impl Wires {
    pub(super) fn new(sim: Sim, from: HostId) -> Self {
        Self { sim, from, open: Mutex::default() }
    }
}

impl PeerChannels for Wires {
    fn channel(&self, peer: &Peer, _lane: Lane) -> Channel {
        let to = host_of(peer);
        let mut open = self.open.lock();
        open.entry(to).or_insert_with(|| relay::to_server(&self.sim, self.from, to)).clone()
    }

    fn foreign(&self, _region: &str, peer: &Peer) -> Channel {
        self.channel(peer, Lane::Calls)
    }
}

/// The member table, which all servers share: it has every server as alive.
#[derive(Debug)]
pub(super) struct Table(watch::Sender<Arc<View>>);

impl Table {
    pub(super) fn new(hosts: impl Iterator<Item = HostId>, expect: usize) -> Self {
        let member = |host: HostId| {
            let tags = ServerTags {
                region: REGION.to_owned(),
                datacenter: "dc1".to_owned(),
                build: "0.1.0".to_owned(),
                id: uuid(host),
                rpc_addr: address(host),
                port: 4647,
                expect: u32::try_from(expect).unwrap_or(u32::MAX),
                level: Some(FEATURE_LEVEL),
                ..ServerTags::default()
            };
            Member {
                id: uuid(host),
                name: format!("s{}.{REGION}", host.0),
                addr: SocketAddr::new(Ipv4Addr::new(10, 0, 0, host.0 as u8).into(), 4648),
                status: Status::Alive,
                tags: tags.to_tags(),
            }
        };
        let members: Arc<[Member]> = hosts.map(member).collect();
        Self(watch::Sender::new(Arc::new(View { version: 1, members })))
    }
}

/// The member table in the form for one server.
#[derive(Debug)]
pub(super) struct Place {
    table: Arc<Table>,
    host: HostId,
}

impl Place {
    pub(super) fn new(table: Arc<Table>, host: HostId) -> Self {
        Self { table, host }
    }
}

impl Directory for Place {
    fn changes(&self) -> watch::Receiver<Arc<View>> {
        self.table.0.subscribe()
    }

    fn announce(&self, cluster: Uuid, number: u64) {
        self.table.0.send_if_modified(|view| {
            let mut members: Vec<Member> = view.members.to_vec();
            let Some(own) = members.iter_mut().find(|member| member.id == uuid(self.host)) else {
                return false;
            };
            let mut tags = own.server_tags();
            if (tags.cluster, tags.number) == (Some(cluster), Some(number)) {
                return false;
            }
            (tags.cluster, tags.number) = (Some(cluster), Some(number));
            own.tags = tags.to_tags();
            *view = Arc::new(View { version: view.version + 1, members: members.into() });
            true
        });
    }

    fn force_leave(&self, _name: String) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
