//! An agent under replay and the exchanges with it.

use super::compare::{cut_like, differences};
use super::exchange::{Body, Exchange};
use super::ids::{Ids, is_uuid, masked};
use super::topics;
use super::websocket;
use anyhow::{Context, Result, bail};
use caravan_testkit::{Agent, AgentOptions, Call, Reply, eventually, send_and};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Headers whose presence is compared; the others depend on the transport.
const HEADERS: [&str; 16] = [
    "content-type",
    "content-encoding",
    "location",
    "x-nomad-index",
    "x-nomad-lastcontact",
    "x-nomad-knownleader",
    "x-nomad-nexttoken",
    "vary",
    "cache-control",
    "content-security-policy",
    "x-content-type-options",
    "x-xss-protection",
    "access-control-allow-origin",
    "access-control-allow-methods",
    "digest",
    "upgrade",
];

/// Keys whose values show progress.
const PROGRESS: [&str; 12] = [
    "Status",
    "ClientStatus",
    "DesiredStatus",
    "State",
    "HealthyAllocs",
    "UnhealthyAllocs",
    "PlacedAllocs",
    "Promoted",
    "Complete",
    "Running",
    "Dead",
    "Pending",
];

/// The time within which the answer of a read must become as recorded.
const SETTLING: Duration = Duration::from_secs(30);
/// The same time for values that may still differ afterwards.
const PROGRESSING: Duration = Duration::from_secs(3);

/// An action during a request.
pub type Meanwhile = Box<dyn FnOnce()>;

pub struct Session {
    pub agent: Agent,
    pub ids: Ids,
    /// The time within which the answer of a read must become as recorded.
    pub settling: Duration,
    /// The action during the next request.
    pub meanwhile: Option<Meanwhile>,
    _dir: tempfile::TempDir,
}

impl Session {
    /// Starts an agent like the recorded one.
    pub fn start(acl: bool) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let volume = dir.path().join("hostvol");
        fs::create_dir(&volume)?;
        let acl = if acl { "acl {\n  enabled = true\n}\n" } else { "" };
        let extra = format!(
            "name = \"fixture-node\"\ndatacenter = \"dc1\"\nenable_debug = true\nserver {{\n  event_buffer_size = 1000\n  oidc_issuer = \"https://nomad.example.org\"\n}}\ntelemetry {{\n  publish_allocation_metrics = true\n  publish_node_metrics = true\n  prometheus_metrics = true\n  disable_hostname = true\n}}\nplugin \"mock_driver\" {{\n}}\nplugin \"exec\" {{\n}}\n{acl}client {{\n  network_interface = \"lo\"\n  node_class = \"fixture\"\n  \
             meta {{\n    owner = \"fixtures\"\n    rack = \"r1\"\n  }}\n  \
             host_volume \"scratch\" {{\n    path = \"{}\"\n  }}\n}}\n",
            volume.display()
        );
        let options = AgentOptions { extra, ..AgentOptions::default() };
        let mut ids = Ids::default();
        let agent = if acl.is_empty() {
            let agent = Agent::with(options)?;
            let node = agent.node_id()?;
            ids.set(topics::NODE, &node);
            // Some requests use prefixes of ids.
            ids.set(&topics::NODE[..4], &node[..4]);
            agent
        } else {
            // Without a token only the agent's health is readable.
            let agent = Agent::launch(options)?;
            eventually("the agent to be healthy", || agent.get("/v1/agent/health").map(drop))
                .with_context(|| agent.log_tail())?;
            agent
        };
        Ok(Self { agent, ids, settling: SETTLING, meanwhile: None, _dir: dir })
    }

    /// Sends a recorded request with the replay's ids, and returns the differences of the answer. Reads are
    /// repeated for a while, because their objects may still change.
    pub fn play(&mut self, exchange: &Exchange, patient: bool) -> Result<Vec<String>> {
        let begun = Instant::now();
        let settles =
            patient && exchange.is_get() && !matches!(exchange.answer, Body::Lines(_) | Body::Frames(_));
        let mut pause = Duration::from_millis(50);
        loop {
            let (differences, behind) = self.once(exchange)?;
            let over = match (differences.is_empty(), behind) {
                (true, false) => true,
                (true, true) => !topics::is_progress(exchange) || begun.elapsed() > PROGRESSING,
                (false, _) => begun.elapsed() > self.settling,
            };
            if !settles || over {
                return Ok(differences);
            }
            sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Returns the differences, and whether objects have made less progress than recorded.
    fn once(&mut self, exchange: &Exchange) -> Result<(Vec<String>, bool)> {
        let call = self.call(exchange)?;
        let mut found = self.strangers(&call);
        if let Body::Frames(frames) = &exchange.answer {
            found.extend(self.talk(exchange, &call, frames)?);
            return Ok((found, false));
        }
        let reply = match self.meanwhile.take() {
            None => self.agent.send(&call)?,
            Some(meanwhile) => {
                let address = self.agent.address();
                send_and(TcpStream::connect(&address)?, &address, &call, meanwhile)?
            }
        };
        if reply.status != exchange.status {
            let text: String = reply.text().chars().take(200).collect();
            found.push(format!("status {} instead of {}: {text}", reply.status, exchange.status));
            return Ok((found, false));
        }
        if exchange.has_headers {
            found.extend(headers(exchange, &reply.headers));
        }
        let index = |value: Option<&str>| value.and_then(|value| value.parse::<u64>().ok());
        let theirs = exchange.answer_headers.iter().find(|(name, _)| name == "x-nomad-index");
        if let (Some(theirs), Some(ours)) =
            (index(theirs.map(|(_, value)| value.as_str())), index(reply.header("x-nomad-index")))
        {
            self.ids.learn_index(theirs, ours);
        }
        let mut behind = false;
        match &exchange.answer {
            Body::Json(recorded) => match serde_json::from_slice::<Value>(&reply.body) {
                Ok(ours) => {
                    let recorded = topics::left_out(recorded);
                    let mut ours = topics::left_out(&ours);
                    if topics::is_cut(exchange) {
                        ours = cut_like(&recorded, &ours);
                    }
                    found.extend(differences(&mut self.ids, &recorded, &ours));
                    behind = progress(&recorded) != progress(&ours);
                }
                Err(_) => found.push(format!("not JSON: {}", reply.text())),
            },
            // The content of the log depends on the moment.
            Body::Text(recorded)
                if recorded.is_empty() && exchange.path.starts_with("/v1/client/fs/logs/") => {}
            Body::Text(recorded) if exchange.trimmed => {
                if reply.body.is_empty() && !recorded.is_empty() {
                    found.push("empty".to_owned());
                }
            }
            // Each agent has its own command line.
            Body::Text(_) if exchange.path == "/v1/agent/pprof/cmdline" && !reply.body.is_empty() => {}
            // The output of a task continues to grow.
            Body::Text(recorded) if exchange.path.starts_with("/v1/client/fs/logs/") => {
                let (theirs, own) = (masked(recorded), masked(&reply.text()));
                if !theirs.starts_with(&own) && !own.starts_with(&theirs) {
                    found.extend(self.texts(recorded, &reply.text()));
                }
            }
            Body::Text(recorded) => found.extend(self.texts(recorded, &reply.text())),
            Body::Lines(lines) => found.extend(self.lines(lines, &reply)),
            Body::Unrecorded | Body::Frames(_) => {}
        }
        Ok((found, behind))
    }

    fn call(&self, exchange: &Exchange) -> Result<Call> {
        let mut path = self.ids.text(&exchange.path);
        let mut query = self.ids.text(&exchange.raw_query);
        for (name, value) in &exchange.query {
            let separator = if query.is_empty() { "" } else { "&" };
            let value = escaped(&self.ids.parameter(name, value));
            query.push_str(&format!("{separator}{}={value}", escaped(name)));
        }
        if !query.is_empty() {
            path.push_str(&format!("?{query}"));
        }
        let body = match &exchange.request {
            Body::Json(body) => topics::adapted(&self.agent, &self.ids.body(body)).to_string().into_bytes(),
            Body::Text(text) => self.ids.text(text).into_bytes(),
            _ => Vec::new(),
        };
        let mut headers: Vec<(String, String)> =
            exchange.headers.iter().map(|(name, value)| (name.clone(), self.ids.text(value))).collect();
        if let Some(token) = topics::unrecorded_token(exchange) {
            headers.push(("X-Nomad-Token".to_owned(), self.ids.text(token)));
        }
        let patience = match &exchange.answer {
            Body::Lines(lines) if lines.is_empty() => Duration::from_secs(1),
            Body::Lines(_) => Duration::from_secs(4),
            _ => Duration::from_secs(60),
        };
        Ok(Call { method: exchange.method.clone(), path, headers, body, patience: Some(patience) })
    }

    /// Returns recorded ids for which no answer revealed the replay's.
    fn strangers(&self, call: &Call) -> Vec<String> {
        let text = format!("{} {}", call.path, String::from_utf8_lossy(&call.body));
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        words
            .filter(|word| is_uuid(word) && topics::is_recorded(word) && self.ids.known(word).is_none())
            .filter(|word| !self.ids.is_ours(word))
            .map(|word| format!("nothing answered before told of {word}"))
            .collect()
    }

    /// Compares texts; JSON in a text is compared as JSON.
    fn texts(&mut self, recorded: &str, ours: &str) -> Vec<String> {
        let parsed = |text: &str| {
            let frames: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_str(text).into_iter().collect();
            frames.ok().filter(|frames| frames.iter().any(Value::is_object))
        };
        if let (Some(recorded), Some(ours)) = (parsed(recorded), parsed(ours)) {
            return differences(&mut self.ids, &Value::Array(recorded), &Value::Array(ours));
        }
        let (theirs, own) = (masked(recorded), masked(ours));
        if theirs == own { Vec::new() } else { vec![format!("{own:?} instead of {theirs:?}")] }
    }

    /// Compares a stream: each recorded kind of event must occur, in its shape.
    fn lines(&mut self, recorded: &[Value], reply: &Reply) -> Vec<String> {
        let ours = reply.text();
        let text = |lines: &[Value]| {
            lines
                .iter()
                .map(|line| line.as_str().map_or_else(|| line.to_string(), str::to_owned))
                .collect::<String>()
        };
        if recorded.iter().all(Value::is_string) {
            let whole = text(recorded);
            return match whole.starts_with('{') {
                true => {
                    let first = |text: &str| serde_json::Deserializer::from_str(text).into_iter().next();
                    match (first(&whole), first(&ours)) {
                        (Some(Ok(theirs)), Some(Ok(own))) => differences(&mut self.ids, &theirs, &own),
                        _ => vec![format!("not frames: {ours}")],
                    }
                }
                false if ours.is_empty() && !recorded.is_empty() => vec!["nothing came".to_owned()],
                false => Vec::new(),
            };
        }
        let own: Vec<Value> = ours.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if recorded.first() == Some(&json!({})) && own.first() != Some(&json!({})) {
            return vec![format!("the stream does not begin with {{}}: {:?}", own.first())];
        }
        let events = |lines: &[Value]| {
            let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for event in lines.iter().filter_map(|line| line["Events"].as_array()).flatten() {
                kinds.entry(format!("{} {}", event["Topic"], event["Type"])).or_default().push(event.clone());
            }
            kinds
        };
        let (theirs, own) = (events(recorded), events(&own));
        let mut found = Vec::new();
        for (kind, events) in &theirs {
            // The order within a kind depends on the moment: the most similar event is compared.
            let event = events[0].clone();
            let reported = own.get(kind).into_iter().flatten().map(|own| {
                let mut ids = self.ids.clone();
                (differences(&mut ids, &event, own), ids)
            });
            match reported.min_by_key(|(reported, _)| reported.len()) {
                Some((reported, ids)) => {
                    self.ids = ids;
                    found.extend(reported.into_iter().map(|difference| format!("{kind} {difference}")));
                }
                None => found.push(format!("no event {kind}")),
            }
        }
        found
    }

    fn talk(&mut self, exchange: &Exchange, call: &Call, frames: &[Value]) -> Result<Vec<String>> {
        let messages: Vec<Value> =
            frames.iter().filter(|f| f["from"] == "client").map(|f| f["message"].clone()).collect();
        let reported = websocket::talk(&self.agent.address(), &call.path, &call.headers, &messages)?;
        if reported.status != exchange.status {
            return Ok(vec![format!(
                "status {} instead of {}: {}",
                reported.status, exchange.status, reported.body
            )]);
        }
        let mut found = headers(exchange, &reported.headers);
        let (theirs, own) = (outcome(frames), outcome(&reported.frames));
        if theirs != own {
            found.push(format!("{own} instead of {theirs}"));
        }
        Ok(found)
    }

    /// Reads JSON.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.agent.get(path)
    }

    /// Reads JSON with a token.
    pub fn get_as(&self, token: &str, path: &str) -> Result<Value> {
        let headers = vec![("X-Nomad-Token".to_owned(), self.ids.text(token))];
        let call = Call { method: "GET".to_owned(), path: path.to_owned(), headers, ..Call::default() };
        self.agent.send(&call)?.json()
    }

    /// Sends a request that was not recorded, with a token.
    pub fn send_as(&self, token: &str, method: &str, path: &str, body: &Value) -> Result<Reply> {
        let headers = vec![("X-Nomad-Token".to_owned(), self.ids.text(token))];
        let body = body.to_string().into_bytes();
        let call =
            Call { method: method.to_owned(), path: path.to_owned(), headers, body, ..Call::default() };
        let reply = self.agent.send(&call)?;
        if reply.status >= 300 {
            bail!("{method} {path}: status {}: {}", reply.status, reply.text());
        }
        Ok(reply)
    }

    /// Sends a request that was not recorded.
    pub fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        let reply = self.agent.request(method, path, body)?;
        if reply.status >= 300 {
            bail!("{method} {path}: status {}: {}", reply.status, reply.text());
        }
        Ok(reply)
    }

    /// Learns an id that no recorded answer reveals, from its place in an answer of the replay.
    pub fn learn(
        &mut self,
        recorded: &str,
        path: &str,
        pick: impl Fn(&Value) -> Option<String>,
    ) -> Result<()> {
        let ours = caravan_testkit::eventually_within(SETTLING, &format!("the id in {path}"), || {
            let answer = self.agent.get(path)?;
            pick(&answer).with_context(|| format!("{answer}"))
        })?;
        self.ids.set(recorded, &ours);
        Ok(())
    }
}

impl Session {
    /// Learns the id of the first element of a list that needs a token.
    pub fn learn_with(&mut self, token: &str, recorded: &str, path: &str) -> Result<()> {
        let headers = vec![("X-Nomad-Token".to_owned(), token.to_owned())];
        let call = Call { method: "GET".to_owned(), path: path.to_owned(), headers, ..Call::default() };
        let id = eventually("the first element of a list", || {
            let list = self.agent.send(&call)?.json()?;
            list[0]["ID"].as_str().map(str::to_owned).context("the list is empty")
        })?;
        self.ids.set(recorded, &id);
        Ok(())
    }
}

impl Drop for Session {
    /// Stops the jobs of an agent that requires a token, so that no process outlives it.
    fn drop(&mut self) {
        let Some(token) = self.ids.known(topics::ROOT).map(str::to_owned) else { return };
        let call = |method: &str, path: String| {
            let headers = vec![("X-Nomad-Token".to_owned(), token.clone())];
            let call = Call { method: method.to_owned(), path, headers, ..Call::default() };
            self.agent.send(&call).and_then(|reply| reply.json())
        };
        // Best effort: the test has its result already.
        let Ok(jobs) = call("GET", "/v1/jobs?namespace=*".to_owned()) else { return };
        for id in jobs.as_array().into_iter().flatten().filter_map(|job| job["ID"].as_str()) {
            let _ = call("DELETE", format!("/v1/job/{id}"));
            let _ = eventually("the job's allocations to end", || {
                let allocs = call("GET", format!("/v1/job/{id}/allocations"))?;
                let live = |a: &Value| matches!(a["ClientStatus"].as_str(), Some("running" | "pending"));
                if allocs.as_array().is_some_and(|all| all.iter().any(live)) {
                    bail!("{allocs}")
                } else {
                    Ok(())
                }
            });
        }
    }
}

/// Summarizes a conversation: each stream's bytes, the end, the reason.
fn outcome(frames: &[Value]) -> Value {
    let mut streams: BTreeMap<&str, String> = BTreeMap::new();
    let (mut end, mut closed) = (Value::Null, Value::Null);
    for frame in frames.iter().filter(|frame| frame["from"] == "server") {
        let message = &frame["message"];
        for stream in ["stdout", "stderr"] {
            if let Some(data) = message[stream]["data"].as_str() {
                streams.entry(stream).or_default().push_str(data);
            }
        }
        if message["exited"] == true {
            end = message["result"].clone();
        }
        if let Some(reason) = frame["reason"].as_str() {
            closed = json!([frame["close_code"], masked(reason)]);
        }
    }
    // A terminal echoes and prompts in chunks that differ from run to run.
    let text = |parts: &String| if parts.contains('=') { "…".to_owned() } else { parts.clone() };
    let streams: BTreeMap<&str, String> = streams.iter().map(|(name, parts)| (*name, text(parts))).collect();
    json!({"streams": streams, "end": end, "closed": closed})
}

fn headers(exchange: &Exchange, ours: &[(String, String)]) -> Vec<String> {
    let find = |list: &[(String, String)], name: &str| {
        list.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    };
    let mut found = Vec::new();
    for name in HEADERS {
        match (find(&exchange.answer_headers, name), find(ours, name)) {
            (Some(theirs), Some(own)) if name == "content-type" && theirs != own => {
                found.push(format!("content type {own} instead of {theirs}"));
            }
            // The index depends on earlier writes; only 0, and 1 instead of 0, have a meaning.
            (Some(theirs), Some(own))
                if name == "x-nomad-index"
                    && ((theirs == "0") != (own == "0"))
                    && ["0", "1"].contains(&theirs.as_str()) =>
            {
                found.push(format!("header {name}: {own} instead of {theirs}"));
            }
            (Some(theirs), Some(own)) if name == "x-nomad-knownleader" && theirs != own => {
                found.push(format!("header {name}: {own} instead of {theirs}"));
            }
            (Some(_), None) => found.push(format!("header {name} is missing")),
            (None, Some(own)) => found.push(format!("header {name}: {own} where there was none")),
            _ => {}
        }
    }
    found
}

/// Returns the values that show progress, in order.
fn progress(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, &mut found);
    found.sort();
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if PROGRESS.contains(&key.as_str()) && !value.is_object() {
                    found.push(format!("{key}={value}"));
                } else {
                    collect(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        _ => {}
    }
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
