//! The event stream: one line of JSON for each index with events for the subscriber (docs/reference/http-api.md,
//! section 4.3).

use super::{allocs, evals, volumes};
use crate::access;
use crate::call::Call;
use crate::error::ApiError;
use crate::http_body::Body;
use crate::reply::{JSON, Reply};
use bytes::Bytes;
use caravan_server::{Caller, Handle, VarCap};
use caravan_state::{Event, EventBatch, EventReader, EventRow, Root, Table};
use caravan_types::alloc::TIMED_OUT;
use caravan_types::node::Node;
use futures::stream;
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// The interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// How long an empty stream stays open. Its end informs clients that wait for the first line.
const SILENCE: Duration = Duration::from_secs(10);

/// The events that a subscriber selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Filter {
    /// The keys by topic; empty for all topics.
    topics: BTreeMap<String, Vec<String>>,
    /// The namespace; `None` for all namespaces.
    namespace: Option<String>,
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
        Ok(Self { topics, namespace: call.list_namespace().map(|name| name.to_string()) })
    }

    fn takes(&self, event: &Event) -> bool {
        let namespace = event.row.namespace();
        if !namespace.is_empty() && self.namespace.as_ref().is_some_and(|own| own != namespace) {
            return false;
        }
        if self.topics.is_empty() {
            return true;
        }
        let of = |topic: &str| self.topics.get(topic).into_iter().flatten();
        of("*").chain(of(event.row.topic())).any(|desired| {
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
    let server = call.server()?;
    let who = Who {
        server: server.clone(),
        secret: access::secret(&call.headers),
        namespace: call.namespace.to_string(),
        topics: call.query.all("topic").map(str::to_owned).collect(),
        rows: call.query.flag("caravan")?.unwrap_or(false),
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
    let reader = server.store().events().follow(from);
    let lines = lines(reader, filter, who, HEARTBEAT);
    let body = Body::from_stream(futures::StreamExt::take_until(
        lines,
        call.state.stopping.clone().cancelled_owned(),
    ));
    Ok(Reply::raw(JSON, body).header("cache-control", "no-cache"))
}

/// Answers a caller without the right as Nomad does: a stream without a line (docs/reference/http-api.md, section 4.3).
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
    /// The parameter `caravan=true`: the stream has the events that the caller may see, as lists have rows. The first line
    /// names the topics of which the caller may see none, and the index of the newest change of each topic. A caller who
    /// may see none at all is refused, instead of waiting for a first line.
    rows: bool,
}

impl Who {
    /// Returns the first line of the stream.
    fn opening(&self) -> Bytes {
        let Some(caller) = self.server.admin().caller(&self.secret).ok().filter(|_| self.rows) else {
            return alive();
        };
        let denied: Vec<&str> = self
            .topics
            .iter()
            .map(|topic| topic.split(':').next().unwrap_or_default())
            .filter(|topic| !access::any_event(&caller, topic, &self.namespace))
            .collect();
        // The reader exists already: a change is in its events, or its index is here.
        let indexes = indexes(&self.server.store().snapshot(), &self.topics);
        line(&json!({"Caravan": {"Denied": denied, "Indexes": indexes}}))
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

    /// Returns the caller with its current rights; `None` if it may no longer receive the events.
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
        _ => &[],
    }
}

fn hears(caller: &Caller, row: &EventRow) -> bool {
    match row {
        EventRow::Variable { row, .. } => {
            caller.variable(row.key.namespace.as_str(), row.key.path.as_str(), VarCap::List)
        }
        row => access::event_topic(caller, row.topic(), row.namespace()),
    }
}

/// The stage of a stream.
enum Stage {
    /// The first line, a heartbeat, is sent at once.
    Opening,
    Following,
    Over,
}

fn lines(
    reader: EventReader,
    filter: Filter,
    who: Who,
    heartbeat: Duration,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> + Send {
    let begin = (reader, filter, who, Stage::Opening);
    Box::pin(stream::unfold(begin, move |(mut reader, filter, who, stage)| async move {
        match stage {
            Stage::Opening => Some((Ok(who.opening()), (reader, filter, who, Stage::Following))),
            Stage::Over => None,
            Stage::Following => {
                let deadline = tokio::time::Instant::now() + heartbeat;
                loop {
                    let next = tokio::select! {
                        next = tokio::time::timeout_at(deadline, reader.next()) => next,
                        () = who.lost() => return None,
                    };
                    match next {
                        Err(_) => return Some((Ok(alive()), (reader, filter, who, Stage::Following))),
                        Ok(Err(missed)) => {
                            // Clients that do not know this key ignore the line as a heartbeat, and then see the end of
                            // the stream.
                            let line = line(&json!({"Error": missed.to_string()}));
                            return Some((Ok(line), (reader, filter, who, Stage::Over)));
                        }
                        Ok(Ok(batch)) => {
                            let caller = who.now()?;
                            if let Some(line) = render(&batch, &filter, &caller) {
                                return Some((Ok(line), (reader, filter, who, Stage::Following)));
                            }
                        }
                    }
                }
            }
        }
    }))
}

fn alive() -> Bytes {
    Bytes::from_static(b"{}\n")
}

fn line(value: &Value) -> Bytes {
    let mut text = crate::encode(value, false);
    text.push(b'\n');
    Bytes::from(text)
}

/// The type of events that get a line each. Nomad writes every updated evaluation on its own line, and clients
/// expect that.
const ALONE: &str = "EvaluationUpdated";

/// Returns the lines for a batch; `None` if no event concerns the subscriber.
fn render(batch: &Arc<EventBatch>, filter: &Filter, caller: &Caller) -> Option<Bytes> {
    let events: Vec<Value> = batch
        .events
        .iter()
        .filter(|event| filter.takes(event) && hears(caller, &event.row))
        .map(|event| {
            json!({
                "Topic": event.row.topic(),
                "Type": event.kind,
                "Key": event.row.key(),
                "Namespace": event.row.namespace(),
                "FilterKeys": event.row.filter_keys(),
                "Index": batch.index,
                "Payload": payload(&event.row),
            })
        })
        .collect();
    let mut out = Vec::new();
    for together in events.chunk_by(|one, next| one["Type"] != ALONE && next["Type"] != ALONE) {
        out.extend_from_slice(&line(&json!({"Index": batch.index, "Events": together})));
    }
    (!out.is_empty()).then(|| out.into())
}

fn shaped<T: Serialize + ?Sized>(row: &T) -> Value {
    // All shapes have string keys, so encoding cannot fail.
    serde_json::to_value(row).unwrap_or_default()
}

fn node(row: &Node) -> Value {
    let mut value = shaped(row);
    value["Drain"] = json!(row.drain_strategy.is_some());
    value
}

fn payload(row: &EventRow) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    match row {
        EventRow::Job { row, deleted } => {
            put("Job", shaped(&**row));
            if *deleted {
                put("Deleted", json!(true));
            }
        }
        EventRow::Evaluation(row) => {
            put("Evaluation", shaped(&*evals::shown(row)));
        }
        EventRow::Allocation(row) => {
            let mut value = allocs::full(row).unwrap_or_default();
            if let Value::Object(map) = &mut value {
                map.shift_remove("Job");
            }
            put("Allocation", value);
            if row.client_description == TIMED_OUT {
                put("Timeout", json!(true));
                put("TimeoutReason", json!(TIMED_OUT));
            }
        }
        EventRow::Deployment(row) => {
            put("Deployment", shaped(&**row));
        }
        EventRow::Node(row) => {
            put("Node", node(row));
        }
        EventRow::NodeReport { row, index } => {
            let mut value = node(row);
            value["LastAllocUpdateIndex"] = json!(index);
            put("Node", value);
        }
        EventRow::Service(row) => {
            put("Service", shaped(&**row));
        }
        EventRow::HostVolume(row) => {
            put("Volume", shaped(&**row));
        }
        EventRow::CsiVolume { row, root } => {
            put("Volume", shaped(&volumes::view(root, row)));
        }
        EventRow::CsiPlugin(row) => {
            put("Plugin", shaped(&**row));
        }
        EventRow::Variable { row, deleted } => {
            put("Metadata", shaped(&row.metadata()));
            put("Deleted", json!(deleted));
        }
        EventRow::NodePool(row) => {
            put("NodePool", shaped(&**row));
        }
        EventRow::AclPolicy(row) => {
            put("ACLPolicy", shaped(&**row));
        }
        EventRow::AclToken(row) => {
            let mut value = shaped(&**row);
            value["SecretID"] = json!("");
            put("ACLToken", value);
        }
        EventRow::AclRole(row) => {
            put("ACLRole", shaped(&**row));
        }
        EventRow::AclAuthMethod(row) => {
            put("AuthMethod", shaped(&row.shown()));
        }
        EventRow::AclBindingRule(row) => {
            put("ACLBindingRule", shaped(&**row));
        }
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::eval::Evaluation;

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
    fn evaluations_that_changed_stand_alone() {
        let eval =
            |id: &str| EventRow::Evaluation(Arc::new(Evaluation { id: id.into(), ..Evaluation::default() }));
        let lines = |kind: &'static str| {
            let events = vec![Event { kind, row: eval("a") }, Event { kind, row: eval("b") }];
            let batch = Arc::new(EventBatch { index: 7, events });
            let text = render(&batch, &filter(&["*"], "*"), &Caller::unrestricted()).unwrap();
            let text = String::from_utf8(text.to_vec()).unwrap();
            let count = |line: &str| {
                let line: Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["Index"], 7);
                line["Events"].as_array().map_or(0, Vec::len)
            };
            text.lines().map(count).collect::<Vec<_>>()
        };
        assert_eq!(lines("EvaluationUpdated"), [1, 1]);
        assert_eq!(lines("PlanResult"), [2]);
    }
}
