//! Replays the recorded exchanges of `fixtures/http`: sends each topic's requests in order to a Caravan agent, and
//! compares the answers in meaning. Status, headers, keys, kinds of values, null and empty, and error texts must
//! agree. Each test prints a table; known differences are in `fixtures/http/gaps.txt`.
//!
//! With `CARAVAN_REPLAY=record` in the environment, the topics that run write their gaps into that file
//! instead. With `CARAVAN_REPLAY=strict`, a gap that no longer exists fails the test.

mod compare;
mod exchange;
mod gaps;
mod ids;
mod jwt;
mod session;
mod topics;
pub mod websocket;

use anyhow::{Context, Result, bail};
use exchange::Exchange;
use session::Session;
use std::time::Duration;

/// The number of differences that are shown for one exchange.
const SHOWN: usize = 6;

/// The prefix of the reason of a gap that occurs only sometimes: its exchange may pass.
const AT_TIMES: &str = "at times: ";

/// Replays a topic; if it differs, again with another agent. The recordings hold one order of concurrent events: on a
/// busy machine another order may occur, but hardly twice. With `CARAVAN_REPLAY` set, only once.
fn replay(topic: &'static str) -> Result<()> {
    match play(topic) {
        Err(first) if std::env::var_os("CARAVAN_REPLAY").is_none() => {
            println!("{topic}: once more, because of: {first:#}");
            play(topic)
        }
        played => played,
    }
}

fn play(topic: &'static str) -> Result<()> {
    let record = std::env::var("CARAVAN_REPLAY").is_ok_and(|value| value == "record");
    let strict = std::env::var("CARAVAN_REPLAY").is_ok_and(|value| value == "strict");
    let known = gaps::load(topic)?;
    let mut session = match (Session::start(topic.starts_with("acl_")), known.get(&gaps::WHOLE)) {
        (Ok(_), Some(reason)) if !record => bail!("the gap of the whole topic is none any more: {reason}"),
        (Ok(session), _) => session,
        (Err(error), None) if !record => return Err(error),
        (Err(_), _) => {
            println!("{topic:<18} gap  the whole topic");
            let reason =
                known.get(&gaps::WHOLE).map_or("an agent like the recorded one does not start", |r| r);
            return if record { gaps::store(topic, &[format!("{topic} *: {reason}")]) } else { Ok(()) };
        }
    };
    if record {
        // Gaps are expected when recording, so waiting for them would take long.
        session.settling = Duration::from_secs(2);
    }
    for &(earlier, upto) in topics::before(topic) {
        let gaps = gaps::load(earlier)?;
        for exchange in exchange::load(earlier)?.iter().take(upto) {
            // The exchange's own topic reports its failures.
            let _ = topics::prepare(&mut session, exchange);
            let patient = !gaps.contains_key(&exchange.at) && !gaps.contains_key(&gaps::WHOLE);
            session.play(exchange, patient).with_context(|| exchange.name())?;
        }
    }
    let mut lines = Vec::new();
    let mut wrong = Vec::new();
    for exchange in &exchange::load(topic)? {
        let gap = known.get(&exchange.at);
        let found = outcome(&mut session, exchange, gap.is_none());
        let name = exchange.name();
        println!("{} {} {}", if found.is_empty() { "pass" } else { "gap " }, name, exchange.note);
        found.iter().take(SHOWN).for_each(|difference| println!("     {difference}"));
        if let Some(reason) = gap.filter(|reason| reason.starts_with(AT_TIMES)) {
            lines.push(format!("{name}: {reason}"));
            continue;
        }
        if let Some(first) = found.first() {
            let reason: String = first.replace('\n', " ").chars().take(160).collect();
            lines.push(format!("{name}: {reason}"));
        }
        match (found.as_slice(), gap) {
            // A busy machine answers some exchanges in another order, so a missing gap fails only the strict mode.
            ([], Some(reason)) if strict => wrong.push(format!("{name}: a gap no more: {reason}")),
            ([], Some(reason)) => println!("     {name}: a gap no more? {reason}"),
            ([_, ..], None) => {
                let shown: Vec<&str> = found.iter().take(SHOWN).map(String::as_str).collect();
                wrong.push(format!("{name}: {}", shown.join("\n    ")));
            }
            _ => {}
        }
    }
    if record {
        return gaps::store(topic, &lines);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} exchanges differ from what fixtures/http/gaps.txt says:\n{}", wrong.len(), wrong.join("\n"))
}

/// Returns the differences of an exchange; a failed request counts as one.
fn outcome(session: &mut Session, exchange: &Exchange, patient: bool) -> Vec<String> {
    if let Err(error) = topics::prepare(session, exchange) {
        let text = format!("{error:#}");
        return vec![text.lines().next().unwrap_or_default().to_owned()];
    }
    session.play(exchange, patient).unwrap_or_else(|error| vec![format!("{error:#}")])
}

macro_rules! topics {
    ($($topic:ident)*) => {$(
        #[test]
        fn $topic() -> Result<()> {
            replay(stringify!($topic))
        }
    )*};
}

topics! {
    agent namespaces jobs plan deployments versions dispatch_periodic allocations exec client_fs client
    evaluations scaling services search variables queries node_pools nodes operator system
    volumes_csi_no_plugin volumes_csi volumes_host events errors
    acl_bootstrap acl_policies acl_tokens acl_roles acl_auth acl_denied
}
