//! Event streams of the newest rows, and the content that only Caravan's streams have.

use crate::harness::Api;
use crate::rights::Tenants;
use caravan_http::EventLimit;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The lines of a stream.
pub(crate) struct Lines {
    body: Incoming,
    text: String,
}

impl Lines {
    pub(crate) async fn open(api: &Api, query: &str) -> Self {
        Self::begin(api, query).await.0
    }

    /// Opens a stream and returns its first line, too.
    async fn begin(api: &Api, query: &str) -> (Self, Value) {
        let mut lines = Self::open_path(api, &format!("/v1/event/stream?{query}")).await;
        let first = lines.next().await.expect("a first line");
        assert!(first.get("Events").is_none(), "{first}");
        (lines, first)
    }

    /// Opens a stream of lines.
    pub(crate) async fn open_path(api: &Api, path: &str) -> Self {
        let answer = api.web.open(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        Self { body: answer.into_body(), text: String::new() }
    }

    /// Returns the next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.find('\n') {
                let rest = self.text.split_off(end + 1);
                let line = std::mem::replace(&mut self.text, rest);
                return Some(serde_json::from_str(&line).unwrap());
            }
            let frame = self.body.frame().await?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }

    /// Returns the next line with events.
    pub(crate) async fn events(&mut self) -> (u64, Vec<Value>) {
        loop {
            let line = self.next().await.expect("the stream goes on");
            assert!(line.get("Error").is_none(), "{line}");
            if let Some(events) = line["Events"].as_array() {
                return (line["Index"].as_u64().unwrap(), events.clone());
            }
        }
    }
}

#[tokio::test]
async fn a_reader_names_the_heartbeat() {
    let api = Api::start().await;
    for (text, part) in [
        ("100ms", "expected 1s to 1m0s"),
        ("2m", "expected 1s to 1m0s"),
        ("often", "expected a duration such as `500ms`"),
    ] {
        let got = api.web.get(&format!("/v1/event/stream?heartbeat={text}")).await;
        assert_eq!((got.status.as_u16(), got.text()), (400, format!("`heartbeat` is {text:?}; {part}")));
    }
    let (mut lines, first) = Lines::begin(&api, "topic=Variable&caravan=true&heartbeat=1s").await;
    assert_eq!(first, json!({"Heartbeat": 1000}));
    assert!(lines.next().await.is_some_and(|line| line.get("Caravan").is_some()));
    assert_eq!(lines.next().await, Some(json!({})));
    let (_lines, first) = Lines::begin(&api, "topic=Variable&heartbeat=1s").await;
    assert_eq!(first, json!({"Heartbeat": 1000}));
    let (_lines, first) = Lines::begin(&api, "topic=Variable").await;
    assert_eq!(first, json!({}));
}

#[tokio::test]
async fn a_wrong_time_between_events_is_named() {
    let api = Api::start().await;
    for (text, part) in [
        ("soon", "expected a duration such as `500ms`"),
        ("", "expected a duration such as `500ms`"),
        ("5", "expected a duration such as `500ms`"),
        ("0", "expected 10ms to 1m0s"),
        ("-1s", "expected 10ms to 1m0s"),
        ("9ms", "expected 10ms to 1m0s"),
        ("2h", "expected 10ms to 1m0s"),
    ] {
        let got = api.web.get(&format!("/v1/event/stream?coalesce={text}")).await;
        assert_eq!((got.status.as_u16(), got.text()), (400, format!("`coalesce` is {text:?}; {part}")));
    }
}

async fn write(api: &Api, key: &str, value: &str) {
    let body = json!({"Items": {"value": value}});
    let got = api.web.put(&format!("/v1/var/{key}"), &body).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

/// Two writes while the stream waits for its time are one event, the newer one. The indexes grow.
#[tokio::test]
async fn the_newest_row_of_each_object_is_sent() {
    let api = Api::start().await;
    let mut lines = Lines::open(&api, "topic=Variable&coalesce=100ms").await;
    write(&api, "first", "1").await;
    let (mut newest, events) = lines.events().await;
    assert_eq!((events.len(), &events[0]["Key"]), (1, &json!("first")));
    let mut rows = BTreeMap::new();
    for round in 0..200 {
        write(&api, &format!("key-{}", round % 4), &round.to_string()).await;
    }
    assert_eq!(api.web.delete("/v1/var/key-2").await.status, 204);
    write(&api, "last", "1").await;
    let mut sent = 0;
    while !rows.contains_key("last") {
        let (index, events) = lines.events().await;
        assert!(index > newest, "{index} after {newest}");
        newest = index;
        for event in events {
            assert_eq!(event["Index"], index);
            sent += 1;
            rows.insert(event["Key"].as_str().unwrap().to_owned(), event["Payload"].clone());
        }
    }
    assert!(sent < 202, "each change is an event of its own");
    assert_eq!(rows["key-2"]["Deleted"], true);
    for key in ["key-0", "key-1", "key-3"] {
        let now = api.web.get(&format!("/v1/var/{key}")).await.json();
        assert_eq!(rows[key]["Metadata"]["ModifyIndex"], now["ModifyIndex"], "{key}");
    }
}

/// A reader that stops reading while a writer is busy receives the newest row of each job afterwards, and no `Error`.
/// The same reader without `coalesce` loses events.
#[tokio::test]
async fn a_slow_reader_of_the_newest_rows_misses_nothing() {
    let api = Api::start().await;
    api.server.store().events().limit(EventLimit::Bytes(100_000));
    let mut newest = Lines::open(&api, "topic=Job&coalesce=10ms").await;
    let mut each = Lines::open(&api, "topic=Job").await;
    let meta = "x".repeat(200_000);
    let mut versions = BTreeMap::new();
    for round in 0..60 {
        let id = format!("large-{}", round % 3);
        let job = json!({"Job": {
            "ID": id, "Name": id, "Type": "batch", "Datacenters": ["dc1"], "ParameterizedJob": {},
            "Meta": {"text": meta, "round": round.to_string()},
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1s"}}]}],
        }});
        let got = api.web.put("/v1/jobs", &job).await;
        assert_eq!(got.status, 200, "{}", got.text());
        versions.insert(id, round.to_string());
    }
    let mut seen = BTreeMap::new();
    let (mut last, mut sent) = (0, 0);
    while seen != versions {
        let (index, events) = newest.events().await;
        assert!(index > last, "{index} after {last}");
        last = index;
        for event in events {
            sent += 1;
            let job = &event["Payload"]["Job"];
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            seen.insert(text(&job["ID"]), text(&job["Meta"]["round"]));
        }
    }
    assert!(sent < 60, "each change is an event of its own");
    let mut ended = false;
    while let Some(line) = each.next().await {
        ended = line["Error"].as_str().is_some_and(|text| text.contains("fell behind"));
    }
    assert!(ended, "the reader of each change receives an error");
}

#[tokio::test]
async fn namespaces_are_events_for_callers_who_see_them() {
    let tenants = Tenants::start().await;
    let api = &tenants.api;
    let path = "/v1/event/stream?topic=Namespace&namespace=*&caravan=true&coalesce=10ms";
    let answer = api.web.open_as(path, &tenants.b).await;
    assert_eq!(answer.status(), 200);
    let mut lines = Lines { body: answer.into_body(), text: String::new() };
    let first = lines.next().await.unwrap();
    assert_eq!(first["Caravan"]["Denied"], json!([]), "{first}");
    assert!(first["Caravan"]["Indexes"]["Namespace"].as_u64().is_some(), "{first}");
    let body = |name: &str, text: &str| json!({"Name": name, "Description": text});
    for (name, text) in [("hidden", "x"), ("team-a", "of others"), ("team-b", "own")] {
        let got = tenants.put("/v1/namespace", &body(name, text), &tenants.root).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let (_, events) = lines.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["Key"], &events[0]["Type"]), (&json!("team-b"), &json!("NamespaceUpserted")));
    assert_eq!(events[0]["Payload"]["Namespace"]["Description"], "own");
    // Nomad has no such topic: a stream of all topics does not have it.
    let answer = api.web.open_as("/v1/event/stream?topic=*&namespace=*", &tenants.root).await;
    let mut all = Lines { body: answer.into_body(), text: String::new() };
    assert_eq!(all.next().await, Some(json!({})));
    tenants.put("/v1/namespace", &body("later", ""), &tenants.root).await;
    let policy = json!({"Name": "mark", "Rules": "node { policy = \"read\" }"});
    let got = tenants.put("/v1/acl/policy/mark", &policy, &tenants.root).await;
    assert_eq!(got.status, 200, "{}", got.text());
    loop {
        let (_, events) = all.events().await;
        assert!(events.iter().all(|event| event["Topic"] != "Namespace"), "{events:?}");
        if events.iter().any(|event| event["Key"] == "mark") {
            break;
        }
    }
    // A stream without the right to anything is refused.
    let stranger = tenants.token("nothing", "node { policy = \"read\" }").await;
    let got = tenants.ask(&Method::GET, path, &Value::Null, &stranger).await.unwrap();
    assert_eq!(got.status, 403);
}

/// With `caravan=true` the row of a volume has its phase and its claims; without, the row is that of Nomad.
#[tokio::test]
async fn events_of_volumes_have_phases_when_asked() {
    let tenants = Tenants::start().await;
    let api = &tenants.api;
    let open = async |query: &str| {
        let path = format!("/v1/event/stream?topic=CSIVolume&namespace=team-a{query}");
        let mut body = api.web.open_as(&path, &tenants.a).await.into_body();
        assert!(body.frame().await.is_some());
        Lines { body, text: String::new() }
    };
    let (mut plain, mut own) = (open("&index=99999").await, open("&caravan=true").await);
    let volume = json!({"Volumes": [{
        "ID": "fresh", "Name": "fresh", "PluginID": "disk", "Namespace": "team-a",
        "RequestedCapabilities": [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    }]});
    let got = tenants.put("/v1/volumes?namespace=team-a", &volume, &tenants.root).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let (index, events) = plain.events().await;
    let row = &events[0]["Payload"]["Volume"];
    assert_eq!(row["ID"], "fresh", "{events:?}");
    assert!(row.as_object().unwrap().keys().all(|key| !key.starts_with("CaravanC")), "{row}");
    assert!(row.get("CaravanPhase").is_none(), "{row}");
    let (same, events) = own.events().await;
    let row = &events[0]["Payload"]["Volume"];
    assert_eq!((same, &row["CaravanPhase"]), (index, &json!("ready")), "{row}");
    let full = "/v1/volume/csi/fresh?namespace=team-a";
    let full = tenants.ask(&Method::GET, full, &Value::Null, &tenants.root).await.unwrap().json();
    for key in ["CaravanPhase", "CaravanClaims", "CaravanLastError"] {
        assert_eq!(row[key], full[key], "{key}");
    }
}
