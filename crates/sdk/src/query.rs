//! Options of reads, what answers say about themselves, and waiting for changes.

use caravan_base::percent;
use http::HeaderMap;
use std::time::Duration;

/// Options of a call (docs/reference/http-api.md, section 1.3). Reads take all of them, writes region, namespace and
/// parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryOptions {
    /// Region instead of the client's.
    pub region: Option<String>,
    /// Namespace instead of the client's; `*` = all, on lists.
    pub namespace: Option<String>,
    /// Answer only when the state is newer than this, or `wait` is over; 0 = at once.
    pub index: u64,
    /// Longest wait; the agent's default is five minutes.
    pub wait: Option<Duration>,
    /// Only ids that begin so; on lists.
    pub prefix: String,
    /// Any server may answer.
    pub stale: bool,
    /// Filter expression; on lists.
    pub filter: String,
    /// Elements of a page; 0 = all.
    pub per_page: u32,
    /// Where the page starts: [`Meta::next_token`] of the page before.
    pub next_token: String,
    /// Newest first.
    pub reverse: bool,
    /// Parameters of the route.
    pub params: Vec<(String, String)>,
}

impl QueryOptions {
    /// No option.
    pub fn new() -> Self {
        Self::default()
    }
    /// With a prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
    /// In a namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
    /// With a parameter of the route.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }
    /// Waits until the state is newer than `index`, at most `wait`.
    #[must_use]
    pub fn newer_than(mut self, index: u64, wait: Duration) -> Self {
        self.index = index;
        self.wait = Some(wait);
        self
    }

    /// The query string, without the question mark; region and namespace fall back to the client's.
    pub(crate) fn encode(&self, region: Option<&str>, namespace: Option<&str>) -> String {
        let mut out = String::new();
        let mut add = |name: &str, value: &str| {
            if !out.is_empty() {
                out.push('&');
            }
            out.push_str(&percent::encode(name));
            out.push('=');
            out.push_str(&percent::encode(value));
        };
        if let Some(region) = self.region.as_deref().or(region) {
            add("region", region);
        }
        if let Some(namespace) = self.namespace.as_deref().or(namespace) {
            add("namespace", namespace);
        }
        if self.index > 0 {
            add("index", &self.index.to_string());
        }
        if let Some(wait) = self.wait {
            add("wait", &format!("{}ms", wait.as_millis()));
        }
        if self.stale {
            add("stale", "");
        }
        for (name, value) in
            [("prefix", &self.prefix), ("filter", &self.filter), ("next_token", &self.next_token)]
        {
            if !value.is_empty() {
                add(name, value);
            }
        }
        if self.per_page > 0 {
            add("per_page", &self.per_page.to_string());
        }
        if self.reverse {
            add("reverse", "true");
        }
        for (name, value) in &self.params {
            add(name, value);
        }
        out
    }
}

/// A path with its variable segments escaped: `path("/v1/job/{}/plan", &[id])`.
pub(crate) fn path(template: &str, segments: &[&str]) -> String {
    let mut out = String::new();
    let mut segments = segments.iter();
    let mut rest = template;
    while let Some((head, tail)) = rest.split_once("{}") {
        out.push_str(head);
        out.push_str(&percent::encode(segments.next().unwrap_or(&"")));
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// What an answer says about the state it was made from (docs/reference/http-api.md, section 1.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Index of the state.
    pub index: u64,
    /// Whether the servers had a leader.
    pub known_leader: bool,
    /// Age of the state, when any server may answer.
    pub last_contact: Duration,
    /// Start of the next page; empty when there is none.
    pub next_token: String,
}

impl Meta {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self {
            index: text("x-nomad-index").parse().unwrap_or(0),
            known_leader: text("x-nomad-knownleader") == "true",
            last_contact: Duration::from_millis(text("x-nomad-lastcontact").parse().unwrap_or(0)),
            next_token: text("x-nomad-nexttoken").to_owned(),
        }
    }
}

/// An answer and what it says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<T> {
    /// The answer.
    pub value: T,
    /// About it.
    pub meta: Meta,
}

/// Waiting for changes with blocking queries: asks with the index that was seen last, and starts anew
/// when the index goes backwards (a snapshot was restored, docs/reference/http-api.md, section 1.5).
#[derive(Clone, Debug)]
pub struct Watch {
    query: QueryOptions,
    fresh: bool,
}

impl Watch {
    /// Longest wait of one query; also how long a lost connection may go unnoticed.
    pub const WAIT: Duration = Duration::from_secs(60);

    /// The first query answers at once.
    pub fn new(query: QueryOptions) -> Self {
        Self {
            query: QueryOptions { index: 0, wait: Some(query.wait.unwrap_or(Self::WAIT)), ..query },
            fresh: true,
        }
    }

    /// The options of the next query.
    pub fn query(&self) -> &QueryOptions {
        &self.query
    }

    /// Takes note of an answer; tells whether it is new (`false`: only the wait was over).
    pub fn saw(&mut self, meta: &Meta) -> bool {
        // An index of 0 would not wait at all.
        let seen = meta.index.max(1);
        let new = self.fresh || seen != self.query.index;
        self.query.index = if seen < self.query.index { 0 } else { seen };
        self.fresh = false;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_a_query_string() {
        let query = QueryOptions::new()
            .prefix("a b/c")
            .newer_than(7, Duration::from_millis(1500))
            .param("all", "false");
        assert_eq!(
            query.encode(Some("mars"), Some("*")),
            "region=mars&namespace=%2A&index=7&wait=1500ms&prefix=a%20b%2Fc&all=false"
        );
        assert_eq!(QueryOptions::new().namespace("x").encode(None, Some("y")), "namespace=x");
        assert_eq!(QueryOptions::new().encode(None, None), "");
    }

    #[test]
    fn segments_are_escaped() {
        assert_eq!(path("/v1/job/{}/plan", &["a/b[0]"]), "/v1/job/a%2Fb%5B0%5D/plan");
    }

    #[test]
    fn a_watch_goes_on_from_the_last_index_and_starts_anew_when_it_falls() {
        let meta = |index| Meta { index, ..Meta::default() };
        let mut watch = Watch::new(QueryOptions::new());
        assert_eq!(watch.query().index, 0);
        assert!(watch.saw(&meta(5)));
        assert_eq!(watch.query().index, 5);
        assert!(!watch.saw(&meta(5)));
        assert!(watch.saw(&meta(9)));
        assert!(watch.saw(&meta(3)));
        assert_eq!(watch.query().index, 0);
        let mut blind = Watch::new(QueryOptions::new());
        assert!(blind.saw(&meta(0)) && !blind.saw(&meta(0)), "routes without an index bring nothing new");
    }
}
