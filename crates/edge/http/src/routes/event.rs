//! The event stream: one line of JSON for each index with events for the subscriber (docs/reference/http-api.md,
//! section 4.3).

mod lines;
mod reasons;
mod render;

use crate::access;
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply::{JSON, Reply};
use bytes::Bytes;
use caravan_server::{Caller, Handle};
use caravan_state::{Event, Root, Table};
use caravan_types::Nanos;
use caravan_types::duration::parse as go_duration;
use futures::stream::{self, BoxStream};
use http::{Method, StatusCode};
use lines::{alive, line};
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The limits of `heartbeat`. With a short interval, a reader notices a frozen agent soon.
const HEARTBEATS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(60));
/// The time for which an empty stream stays open. The end of the stream informs clients that wait for the first line.
const SILENCE: Duration = Duration::from_secs(10);
/// The limits of `coalesce`. Below, a stream costs as much as a stream of each change; above, a list is as current.
const COALESCE: (Nanos, Nanos) = (Nanos::from_millis(10), Nanos::from_secs(60));
/// The topics that Nomad does not have. Only a caller who names them, or `caravan=true`, receives them.
const OWN_TOPICS: [&str; 1] = ["Namespace"];

/// The events that a subscriber selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Filter {
    /// The keys by topic; empty for all topics.
    topics: BTreeMap<String, Vec<String>>,
    /// The namespace; `None` for all namespaces.
    namespace: Option<String>,
    /// Whether all topics include the topics that only Caravan has.
    own_topics: bool,
}

impl Filter {
    fn read(call: &Call) -> Result<Self, ApiError> {
        let mut topics: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for text in call.query.all("topic") {
            let (topic, key) = text.split_once(':').unwrap_or((text, "*"));
            if key.contains(':') {
                return Err(ApiError::bad_request(format!(
                    "error parsing topics: Invalid key value pair for topic, topic: {text}"
                )));
            }
            topics.entry(topic.to_owned()).or_default().push(key.to_owned());
        }
        Ok(Self {
            topics,
            namespace: call.list_namespace().map(|name| name.to_string()),
            own_topics: call.query.flag("caravan")?.unwrap_or(false),
        })
    }

    fn takes(&self, event: &Event) -> bool {
        let namespace = event.row.namespace();
        if !namespace.is_empty() && self.namespace.as_ref().is_some_and(|own| own != namespace) {
            return false;
        }
        let topic = event.row.topic();
        if !self.own_topics && OWN_TOPICS.contains(&topic) && !self.topics.contains_key(topic) {
            return false;
        }
        if self.topics.is_empty() {
            return true;
        }
        let of = |topic: &str| self.topics.get(topic).into_iter().flatten();
        of("*").chain(of(topic)).any(|desired| {
            desired == "*"
                || *desired == event.row.key()
                || event.row.filter_keys().is_some_and(|keys| keys.contains(desired))
        })
    }
}

pub(crate) fn stream(call: &Call) -> Result<Reply, ApiError> {
    call.only(&Method::GET)?;
    let index: u64 = match call.query.text("index") {
        "" => 0,
        text => text.parse().map_err(|_| {
            ApiError::bad_request(format!(
                "Unable to parse index: strconv.Atoi: parsing \"{text}\": invalid syntax"
            ))
        })?,
    };
    let filter = Filter::read(call)?;
    let coalesce = interval(call, "coalesce", COALESCE)?;
    let asked = interval(call, "heartbeat", HEARTBEATS)?;
    let heartbeat = asked.unwrap_or(HEARTBEAT);
    let server = call.server()?;
    let who = Who {
        server: server.clone(),
        secret: access::secret(&call.headers),
        namespace: call.namespace.to_string(),
        topics: call.query.all("topic").map(str::to_owned).collect(),
        rows: call.query.flag("caravan")?.unwrap_or(false),
        heartbeat: asked,
    };
    if !who.may(&call.caller()) {
        return match who.rows {
            true => Err(ApiError::new(StatusCode::FORBIDDEN, "Permission denied")),
            false => Ok(silent(call)),
        };
    }
    // The first line names the newest changes, so older events, which can be hundreds of megabytes, are not needed.
    let is_new = who.rows && call.query.text("index").is_empty();
    let from = if is_new { server.store().snapshot().index().saturating_add(1) } else { index };
    let events = server.store().events();
    let lines: BoxStream<'static, Result<Bytes, Infallible>> = match coalesce {
        None => Box::pin(lines::each(events.follow(from), filter, who, heartbeat)),
        Some(pause) => {
            let filter = Arc::new(filter);
            let selects = filter.clone();
            let reader = events.follow_coalesced(from, move |event| selects.takes(event));
            Box::pin(lines::newest(reader, filter, who, from, pause, heartbeat))
        }
    };
    let body = Body::from_stream(futures::StreamExt::take_until(
        lines,
        call.state.stopping.clone().cancelled_owned(),
    ));
    Ok(Reply::raw(JSON, body).header("cache-control", "no-cache"))
}

/// Parses a parameter that is a duration within limits: `coalesce` is the shortest time between two transmissions,
/// without which the stream has each change, and `heartbeat` the longest one.
fn interval(call: &Call, name: &str, (least, most): (Nanos, Nanos)) -> Result<Option<Duration>, ApiError> {
    let Some(text) = call.query.get(name) else { return Ok(None) };
    match go_duration(text) {
        Some(found) if (least..=most).contains(&found) => Ok(Some(found.to_std())),
        Some(_) => Err(ApiError::bad_request(format!("`{name}` is {text:?}; expected {least} to {most}"))),
        None => {
            Err(ApiError::bad_request(format!("`{name}` is {text:?}; expected a duration such as `500ms`")))
        }
    }
}

/// Returns the answer to a caller without the right: a stream without a line, as in Nomad
/// (docs/reference/http-api.md, section 4.3).
fn silent(call: &Call) -> Reply {
    let stopping = call.state.stopping.clone();
    let quiet = stream::once(async move {
        // The timeout and the cancellation have the same effect.
        let _ = tokio::time::timeout(SILENCE, stopping.cancelled()).await;
        Ok::<_, Infallible>(Bytes::new())
    });
    Reply::raw(JSON, Body::from_stream(quiet)).header("cache-control", "no-cache")
}

/// The subscriber and the requested topics. The right to the events may end during the stream.
struct Who {
    server: Handle,
    secret: String,
    namespace: String,
    /// The topics of the query; empty for all topics.
    topics: Vec<String>,
    /// The parameter `caravan=true`: the stream has the events that the caller may see, as lists have rows. The first
    /// line names the topics of which the caller may see none, and the index of the newest change of each topic. A
    /// caller who may see none at all is refused, instead of waiting for a first line.
    rows: bool,
    /// The interval of heartbeats that the subscriber requested. The first line confirms it, in milliseconds: servers
    /// of earlier versions ignore the parameter.
    heartbeat: Option<Duration>,
}

impl Who {
    /// Returns the first lines of the stream.
    fn opening(&self) -> Bytes {
        let heartbeat = self.heartbeat.map(|interval| line(&json!({"Heartbeat": interval.as_millis()})));
        let Some(caller) = self.server.admin().caller(&self.secret).ok().filter(|_| self.rows) else {
            return heartbeat.unwrap_or_else(alive);
        };
        let denied: Vec<&str> = self
            .topics
            .iter()
            .map(|topic| topic.split(':').next().unwrap_or_default())
            .filter(|topic| !access::any_event(&caller, topic, &self.namespace))
            .collect();
        // The reader exists already, so a change is either in its events or in these indexes.
        let indexes = indexes(&self.server.store().snapshot(), &self.topics);
        let opening = line(&json!({"Caravan": {"Denied": denied, "Indexes": indexes}}));
        Bytes::from([heartbeat.unwrap_or_default(), opening].concat())
    }

    /// Returns whether a caller may receive all topics that the query names, or some event with [`Who::rows`].
    fn may(&self, caller: &Caller) -> bool {
        if self.rows {
            return match self.topics.is_empty() {
                true => access::any_event(caller, "*", &self.namespace),
                false => self.topics.iter().any(|topic| access::any_event(caller, topic, &self.namespace)),
            };
        }
        let allowed = |topic: &str| access::event_topic(caller, topic, &self.namespace);
        match self.topics.is_empty() {
            true => allowed("*"),
            false => self.topics.iter().all(|topic| allowed(topic)),
        }
    }

    /// Returns the server if the caller requested rows with the facts that only Caravan has.
    fn facts(&self) -> Option<&Handle> {
        self.rows.then_some(&self.server)
    }

    /// Returns the caller with its current rights; `None` if the caller may no longer receive the events.
    fn now(&self) -> Option<Caller> {
        let caller = self.server.admin().caller(&self.secret).ok()?;
        self.may(&caller).then_some(caller)
    }

    /// Waits until the caller may no longer receive the events.
    async fn lost(&self) {
        if !self.server.admin().acl_enabled() {
            return std::future::pending().await;
        }
        let found = |who: &Self| who.server.admin().caller(&who.secret).ok();
        while let Some(caller) = found(self) {
            let mut watched = access::watched(&self.server, &caller);
            if self.now().is_none() {
                return;
            }
            watched.changed().await;
        }
    }
}

/// Returns the index of the newest change of each topic. A list that was read at a lower index lacks changes.
fn indexes<'t>(root: &Root, topics: &'t [String]) -> BTreeMap<&'t str, u64> {
    let topics = topics.iter().map(|topic| topic.split(':').next().unwrap_or_default());
    let found = topics.map(|topic| (topic, root.tables_index(tables(topic))));
    found.filter(|(_, index)| *index > 0).collect()
}

/// Returns the tables whose changes are events of a topic.
fn tables(topic: &str) -> &'static [Table] {
    match topic {
        "Job" => &[Table::Jobs],
        "Evaluation" => &[Table::Evals],
        "Allocation" => &[Table::Allocs],
        "Deployment" => &[Table::Deployments],
        "Node" => &[Table::Nodes],
        "NodePool" => &[Table::NodePools],
        "Service" => &[Table::Services],
        "Variable" => &[Table::Variables],
        "CSIVolume" => &[Table::Volumes, Table::Claims],
        "CSIPlugin" => &[Table::Plugins],
        "HostVolume" => &[Table::HostVolumes],
        "Namespace" => &[Table::Namespaces],
        "ACLPolicy" => &[Table::AclPolicies],
        "ACLToken" => &[Table::AclTokens],
        "ACLRole" => &[Table::AclRoles],
        "ACLAuthMethod" => &[Table::AuthMethods],
        "ACLBindingRule" => &[Table::BindingRules],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_state::EventRow;
    use caravan_types::eval::Evaluation;
    use caravan_types::namespace::NamespaceSpec;
    use caravan_types::node::Node;

    fn filter(topics: &[&str], namespace: &str) -> Filter {
        let mut out = Filter::default();
        for text in topics {
            let (topic, key) = text.split_once(':').unwrap_or((text, "*"));
            out.topics.entry(topic.to_owned()).or_default().push(key.to_owned());
        }
        out.namespace = (namespace != "*").then(|| namespace.to_owned());
        out
    }

    #[test]
    fn events_are_found_by_their_keys_within_their_namespace() {
        let eval = Evaluation {
            id: "e1".into(),
            job_id: "web".into(),
            namespace: "default".into(),
            ..Default::default()
        };
        let eval = Event { kind: "EvaluationUpdated", row: EventRow::Evaluation(Arc::new(eval)) };
        for topics in
            [&[][..], &["*"], &["Evaluation"], &["Evaluation:e1"], &["Job", "Evaluation:web"], &["*:web"]]
        {
            assert!(filter(topics, "default").takes(&eval), "{topics:?}");
            assert!(filter(topics, "*").takes(&eval), "{topics:?}");
            assert!(!filter(topics, "team").takes(&eval), "{topics:?}");
        }
        for topics in [&["Job"][..], &["Evaluation:e2"], &["Evaluation:"], &["Bogus"]] {
            let empty_deployment = topics == ["Evaluation:"];
            assert_eq!(filter(topics, "*").takes(&eval), empty_deployment, "{topics:?}");
        }
        let node = Event { kind: "NodeRegistration", row: EventRow::Node(Arc::new(Node::default())) };
        assert!(filter(&[], "team").takes(&node), "what has no namespace is in all of them");
    }

    #[test]
    fn topics_that_nomad_does_not_have_are_asked_for() {
        let row = Arc::new(NamespaceSpec { name: "team".into(), ..NamespaceSpec::default() });
        let event = Event { kind: "NamespaceUpserted", row: EventRow::Namespace { row, deleted: false } };
        assert!(!filter(&[], "*").takes(&event) && !filter(&["*"], "*").takes(&event));
        assert!(
            filter(&["Namespace"], "*").takes(&event) && filter(&["Namespace:team"], "team").takes(&event)
        );
        assert!(!filter(&["Namespace"], "other").takes(&event));
        let all = Filter { own_topics: true, ..filter(&[], "*") };
        assert!(all.takes(&event));
    }
}
