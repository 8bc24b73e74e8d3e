//! Options of calls, metadata of answers, and waiting for changes.

use caravan_base::percent;
use http::HeaderMap;
use std::time::Duration;

/// The options of a call (docs/reference/http-api.md, section 1.3). Reads use all of them; writes use region,
/// namespace and parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryOptions {
    /// The region; absent means the client's.
    pub region: Option<String>,
    /// The namespace; absent means the client's. `*` lists all namespaces.
    pub namespace: Option<String>,
    /// The index of a blocking query, which waits until the state is newer or `wait` has ended; 0 does not block.
    pub index: u64,
    /// The longest time to block; absent means the agent's default of five minutes.
    pub wait: Option<Duration>,
    /// The prefix of the listed ids; empty for all.
    pub prefix: String,
    /// Whether a follower may answer from its own state.
    pub stale: bool,
    /// The filter expression of a list; empty for none.
    pub filter: String,
    /// The number of elements on a page; 0 means all.
    pub per_page: u32,
    /// The start of the page: [`Meta::next_token`] of the previous page.
    pub next_token: String,
    /// Whether lists begin with the newest element; with `sort`, whether its order is reversed.
    pub reverse: bool,
    /// The order of a list, such as `name,-modify`; empty for the list's own order. docs/http-routes.md has the keys
    /// of each list. All pages of a list need the same order.
    pub sort: String,
    /// Whether the answer has the number of all elements: [`Meta::total`].
    pub count: bool,
    /// Additional parameters of the route.
    pub params: Vec<(String, String)>,
}

impl QueryOptions {
    /// Returns options without any filter, wait or parameter.
    pub fn new() -> Self {
        Self::default()
    }
    /// Sets the id prefix of a list.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
    /// Adds a parameter of the route.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }
    /// Sets the order of a list.
    #[must_use]
    pub fn sort(mut self, order: impl Into<String>) -> Self {
        self.sort = order.into();
        self
    }
    /// Requests the number of all elements.
    #[must_use]
    pub fn count(mut self) -> Self {
        self.count = true;
        self
    }
    /// Sets a blocking query: it waits until the state is newer than `index`, at most `wait`.
    #[must_use]
    pub fn newer_than(mut self, index: u64, wait: Duration) -> Self {
        self.index = index;
        self.wait = Some(wait);
        self
    }

    /// Encodes the query string, without the question mark. Absent region and namespace fall back to the client's.
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
        for (name, value) in [
            ("prefix", &self.prefix),
            ("filter", &self.filter),
            ("sort", &self.sort),
            ("next_token", &self.next_token),
        ] {
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
        if self.count {
            add("count", "true");
        }
        for (name, value) in &self.params {
            add(name, value);
        }
        out
    }
}

/// Builds a path with its variable segments escaped: `path("/v1/job/{}/plan", &[id])`.
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

/// The metadata of an answer about the state that produced it (docs/reference/http-api.md, section 1.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The index of the state.
    pub index: u64,
    /// Whether the servers had a leader.
    pub known_leader: bool,
    /// The time since the answering server's last contact with the leader.
    pub last_contact: Duration,
    /// The start of the next page; empty on the last page.
    pub next_token: String,
    /// The number of elements on all pages, if the query requested it and the agent counts.
    pub total: Option<u64>,
}

impl Meta {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self {
            index: text("x-nomad-index").parse().unwrap_or(0),
            known_leader: text("x-nomad-knownleader") == "true",
            last_contact: Duration::from_millis(text("x-nomad-lastcontact").parse().unwrap_or(0)),
            next_token: text("x-nomad-nexttoken").to_owned(),
            total: text("x-caravan-total").parse().ok(),
        }
    }
}

/// An answer with its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response<T> {
    /// The decoded answer.
    pub value: T,
    /// The metadata of the answer.
    pub meta: Meta,
}

/// A sequence of blocking queries, each with the index of the previous answer. It starts again from 0
/// if the index decreases (a snapshot was restored, docs/reference/http-api.md, section 1.5).
#[derive(Clone, Debug)]
pub struct Watch {
    query: QueryOptions,
    fresh: bool,
}

impl Watch {
    /// The longest wait of one query, which bounds the time until a lost connection is noticed.
    pub const WAIT: Duration = Duration::from_secs(60);

    /// Creates a watch whose first query does not block.
    pub fn new(query: QueryOptions) -> Self {
        Self {
            query: QueryOptions { index: 0, wait: Some(query.wait.unwrap_or(Self::WAIT)), ..query },
            fresh: true,
        }
    }

    /// Returns the options of the next query.
    pub fn query(&self) -> &QueryOptions {
        &self.query
    }

    /// Records the index of an answer. Returns whether the answer is new (`false`: the wait ended without a change).
    pub fn saw(&mut self, meta: &Meta) -> bool {
        // A query with index 0 would not block.
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
        let query = QueryOptions { per_page: 5, ..QueryOptions::new().sort("name,-modify").count() };
        assert_eq!(query.encode(None, None), "sort=name%2C-modify&per_page=5&count=true");
    }

    #[test]
    fn the_total_is_read_where_it_is_present() {
        let mut headers = HeaderMap::new();
        assert_eq!(Meta::read(&headers).total, None);
        headers.insert("x-caravan-total", 48_211.into());
        assert_eq!(Meta::read(&headers).total, Some(48_211));
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
