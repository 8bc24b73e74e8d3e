//! Members in the form for users of this crate (docs/reference/cluster.md, section 5.1).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use uuid::Uuid;

/// The tags of a member: names and values.
pub type Tags = BTreeMap<String, String>;

/// Status of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The status is unknown. Tables contain no such member; agents without a server report it.
    #[default]
    None,
    /// The member responds to probes.
    Alive,
    /// The member announced that it leaves, or a user forced an alive member to leave, which has not refuted yet.
    Leaving,
    /// The member left, or a user forced a failed member to leave.
    Left,
    /// The member does not respond to probes.
    Failed,
}

impl Status {
    /// Returns the word that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alive => "alive",
            Self::Leaving => "leaving",
            Self::Left => "left",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The protocol numbers that clients of the API expect for each member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The lowest supported protocol.
    pub min: u8,
    /// The highest supported protocol.
    pub max: u8,
    /// The protocol in use.
    pub current: u8,
    /// The lowest supported delegate protocol.
    pub delegate_min: u8,
    /// The highest supported delegate protocol.
    pub delegate_max: u8,
    /// The delegate protocol in use.
    pub delegate_current: u8,
}

/// The tag with the cluster's UUID.
pub(crate) const CLUSTER_TAG: &str = "caravan_cluster";

/// The protocol numbers of all members (docs/reference/cluster.md, section 5.1).
pub const PROTOCOL: Protocol =
    Protocol { min: 1, max: 5, current: 2, delegate_min: 2, delegate_max: 5, delegate_current: 4 };

/// A server in the table of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The server's UUID, which also is the tag `id`.
    pub id: Uuid,
    /// The name, `<node>.<region>`.
    pub name: String,
    /// The advertised address of the gossip port.
    pub addr: SocketAddr,
    /// The status according to the row and failure detection.
    pub status: Status,
    /// The tags that the member set.
    pub tags: Tags,
}

impl Member {
    /// Returns the value of a tag by its name.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.get(name).map(String::as_str)
    }

    /// Returns the region; empty without the tag.
    pub fn region(&self) -> &str {
        self.tag("region").unwrap_or_default()
    }

    /// Returns whether the member and another one are servers of one region, but of two clusters. A server
    /// without a cluster is not foreign to any server.
    pub fn is_foreign(&self, other: &Self) -> bool {
        let (cluster, its) = (self.tag(CLUSTER_TAG), other.tag(CLUSTER_TAG));
        self.region() == other.region() && cluster.is_some() && its.is_some() && cluster != its
    }

    /// Returns whether the member is alive.
    pub fn is_alive(&self) -> bool {
        self.status == Status::Alive
    }

    /// Returns the tags in their typed form.
    pub fn server_tags(&self) -> ServerTags {
        ServerTags::read(&self.tags)
    }

    /// Returns the protocol numbers.
    pub fn protocol(&self) -> Protocol {
        PROTOCOL
    }

    /// Returns the address for calls between servers: the IP address of the gossip port with the port of the tag
    /// `port`. `None` without a valid tag.
    pub fn server_rpc_addr(&self) -> Option<SocketAddr> {
        let port = self.tag("port")?.parse().ok()?;
        Some(SocketAddr::new(self.addr.ip(), port))
    }
}

/// The members at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// A number that grows with each change.
    pub version: u64,
    /// The members, sorted by name, then by id.
    pub members: Arc<[Member]>,
}

impl View {
    /// Returns the sorted names of the regions with at least one alive member.
    pub fn regions(&self) -> Vec<String> {
        let alive = self.members.iter().filter(|member| member.is_alive());
        let mut names: Vec<String> = alive.map(|member| member.region().to_owned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the members of a region, with any status.
    pub fn in_region<'a>(&'a self, region: &'a str) -> impl Iterator<Item = &'a Member> {
        self.members.iter().filter(move |member| member.region() == region)
    }

    /// Returns the alive servers of a region, without servers of another cluster than server `own`.
    pub fn peers<'a>(&'a self, own: Uuid, region: &'a str) -> impl Iterator<Item = &'a Member> {
        let own = self.by_id(own);
        let is_foreign = move |member: &Member| own.is_some_and(|own| member.is_foreign(own));
        self.in_region(region).filter(move |member| member.is_alive() && !is_foreign(member))
    }

    /// Returns a member by the server's UUID.
    pub fn by_id(&self, id: Uuid) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    /// Returns the number of members with a status.
    pub fn count(&self, status: Status) -> usize {
        self.members.iter().filter(|member| member.status == status).count()
    }
}

/// A change of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The member is new, or alive again.
    Joined(Member),
    /// The name, the address or the tags of a member changed.
    Updated(Member),
    /// The member is about to leave, or a user forced an alive member to leave.
    Leaving(Member),
    /// The member left, or a user forced a failed member to leave.
    Left(Member),
    /// The member does not respond to probes.
    Failed(Member),
    /// The member is removed from the list: pruned by a user, replaced by another server of its name, or absent for
    /// too long. The event has the last status.
    Reaped(Member),
}

impl Event {
    /// Returns the member of the event.
    pub fn member(&self) -> &Member {
        match self {
            Self::Joined(member)
            | Self::Updated(member)
            | Self::Leaving(member)
            | Self::Left(member)
            | Self::Failed(member)
            | Self::Reaped(member) => member,
        }
    }

    /// Returns the word for logs and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Joined(_) => "joined",
            Self::Updated(_) => "updated",
            Self::Leaving(_) => "leaving",
            Self::Left(_) => "left",
            Self::Failed(_) => "failed",
            Self::Reaped(_) => "reaped",
        }
    }
}

/// The tags of a server in typed form. [`ServerTags::to_tags`] writes exactly the tags of docs/reference/cluster.md,
/// section 5.1, and Caravan's own tags, whose names begin with `caravan_`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTags {
    /// The region (`region`).
    pub region: String,
    /// The datacenter (`dc`).
    pub datacenter: String,
    /// The version without `v` (`build`).
    pub build: String,
    /// The revision of the source (`revision`).
    pub revision: String,
    /// The server's UUID (`id`).
    pub id: Uuid,
    /// IP address for calls of clients (`rpc_addr`).
    pub rpc_addr: String,
    /// The port of calls (`port`).
    pub port: u16,
    /// The number of servers that found the cluster (`expect`; 1 adds `bootstrap`). 0: the tag is absent.
    pub expect: u32,
    /// Whether the server never votes (`nonvoter`).
    pub nonvoter: bool,
    /// The redundancy zone (`ap_zone`).
    pub zone: Option<String>,
    /// The version for upgrades (`ap_version`).
    pub upgrade_version: Option<String>,
    /// The cluster's UUID (`caravan_cluster`); absent before founding.
    pub cluster: Option<Uuid>,
    /// The number in the log's membership (`caravan_number`).
    pub number: Option<u64>,
    /// The highest level of commands that the server reads (`caravan_level`).
    pub level: Option<u32>,
    /// All other tags.
    pub other: Tags,
}

impl ServerTags {
    /// Returns the tags as names and values.
    pub fn to_tags(&self) -> Tags {
        let mut tags = self.other.clone();
        let mut set = |name: &str, value: String| tags.insert(name.to_owned(), value);
        set("role", ROLE.to_owned());
        set("region", self.region.clone());
        set("dc", self.datacenter.clone());
        set("build", self.build.clone());
        set("revision", self.revision.clone());
        set("vsn", "1".to_owned());
        set("raft_vsn", "3".to_owned());
        set("id", self.id.to_string());
        set("rpc_addr", self.rpc_addr.clone());
        set("port", self.port.to_string());
        if self.expect == 1 {
            set("bootstrap", "1".to_owned());
        }
        if self.expect > 0 {
            set("expect", self.expect.to_string());
        }
        if self.nonvoter {
            set("nonvoter", "1".to_owned());
        }
        let optional = [
            ("ap_zone", self.zone.clone()),
            ("ap_version", self.upgrade_version.clone()),
            (CLUSTER_TAG, self.cluster.map(|id| id.to_string())),
            ("caravan_number", self.number.map(|number| number.to_string())),
            ("caravan_level", self.level.map(|level| level.to_string())),
        ];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                set(name, value);
            }
        }
        tags
    }

    /// Reads the tags of a member. A value that is not valid counts as absent.
    pub fn read(tags: &Tags) -> Self {
        let mut other = tags.clone();
        let mut take = |name: &str| other.remove(name);
        drop((take("role"), take("vsn"), take("raft_vsn"), take("bootstrap")));
        let mut text = |name: &str| take(name).unwrap_or_default();
        let (region, datacenter, build) = (text("region"), text("dc"), text("build"));
        let (revision, rpc_addr) = (text("revision"), text("rpc_addr"));
        Self {
            region,
            datacenter,
            build,
            revision,
            rpc_addr,
            id: take("id").and_then(|id| id.parse().ok()).unwrap_or_default(),
            port: take("port").and_then(|port| port.parse().ok()).unwrap_or_default(),
            expect: take("expect").and_then(|count| count.parse().ok()).unwrap_or_default(),
            nonvoter: take("nonvoter").is_some_and(|value| value == "1"),
            zone: take("ap_zone"),
            upgrade_version: take("ap_version"),
            cluster: take(CLUSTER_TAG).and_then(|id| id.parse().ok()),
            number: take("caravan_number").and_then(|number| number.parse().ok()),
            level: take("caravan_level").and_then(|level| level.parse().ok()),
            other,
        }
    }
}

/// The tag `role` of all servers. Members without it are refused.
pub(crate) const ROLE: &str = "nomad";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_the_reference() {
        let id = Uuid::from_u128(7);
        let tags = ServerTags {
            region: "global".into(),
            datacenter: "dc1".into(),
            build: "0.1.0".into(),
            id,
            rpc_addr: "10.0.0.1".into(),
            port: 4647,
            expect: 1,
            ..ServerTags::default()
        };
        let names: Vec<String> = tags.to_tags().into_keys().collect();
        // The recorded tags of a founding server (fixtures/http/agent.json).
        let expected = [
            "bootstrap",
            "build",
            "dc",
            "expect",
            "id",
            "port",
            "raft_vsn",
            "region",
            "revision",
            "role",
            "rpc_addr",
            "vsn",
        ];
        assert_eq!(names, expected);
        assert_eq!(ServerTags::read(&tags.to_tags()), tags);
    }

    #[test]
    fn optional_tags_are_absent_or_kept() {
        let tags = ServerTags {
            expect: 3,
            nonvoter: true,
            zone: Some("a".into()),
            upgrade_version: Some("2".into()),
            cluster: Some(Uuid::from_u128(9)),
            number: Some(1001),
            level: Some(4),
            other: Tags::from([("x".into(), "y".into())]),
            ..ServerTags::default()
        };
        let written = tags.to_tags();
        assert!(!written.contains_key("bootstrap"));
        assert_eq!(written["nonvoter"], "1");
        assert_eq!(written["caravan_number"], "1001");
        assert_eq!(ServerTags::read(&written), tags);
    }
}
