//! Lists in pages (docs/reference/http-api.md, section 1.6).

use crate::error::ApiError;
use crate::filter::Filter;
use crate::order::{Keys, Order, Placed, Start};
use crate::query::Query;
use crate::reply::Next;
use caravan_state::Root;
use serde::Serialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The position of an element in its list; the order of tokens is the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token<'a> {
    /// `<namespace>.<id>`.
    Key(&'a str, &'a str),
    /// `<createindex>.<id>`.
    Created(u64, &'a str),
    /// `<id>`.
    Id(&'a str),
    /// `<modifyindex>`.
    Modified(u64),
    /// `<namespace>.<volume>.<allocation>`.
    Claim(&'a str, &'a str, &'a str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(namespace, id) => write!(f, "{namespace}.{id}"),
            Self::Created(index, id) => write!(f, "{index}.{id}"),
            Self::Id(id) => f.write_str(id),
            Self::Modified(index) => write!(f, "{index}"),
            Self::Claim(namespace, volume, alloc) => write!(f, "{namespace}.{volume}.{alloc}"),
        }
    }
}

impl<'a> Token<'a> {
    /// Parses a token of the same kind as `like`. Every text is accepted: a text that is not an index sorts after
    /// all indexes.
    pub(crate) fn parse(text: &'a str, like: Token<'_>) -> Self {
        let (first, rest) = text.split_once('.').unwrap_or((text, ""));
        match like {
            Token::Key(..) => Self::Key(first, rest),
            Token::Created(..) => Self::Created(first.parse().unwrap_or(u64::MAX), rest),
            Token::Id(_) => Self::Id(text),
            Token::Modified(_) => Self::Modified(text.parse().unwrap_or(u64::MAX)),
            // Only the id of the volume may have dots.
            Token::Claim(..) => {
                let (volume, alloc) = rest.rsplit_once('.').unwrap_or((rest, ""));
                Self::Claim(first, volume, alloc)
            }
        }
    }
}

/// The rows of a page, and the facts about the rows that the page leaves out.
pub(crate) type Page<'r, T> = (Vec<&'r Arc<T>>, Next);

/// An order, and the first row of the page in it.
type Sort<T> = (Order<T>, Option<Start>);

/// The part of a list that a request selects: filter, page size, start and order.
pub(crate) struct Pager<'q, T: 'static> {
    filter: Option<Filter>,
    /// The most rows of the page; 0 means all. For negative values Nomad answers with an empty page.
    per_page: i32,
    pub(crate) reverse: bool,
    start: &'q str,
    /// The order that the request names; `None` for the list's own order.
    sort: Option<Sort<T>>,
    /// Whether the request includes `count`, which adds the number of all rows.
    counts: bool,
}

impl<'q, T> Pager<'q, T> {
    pub(crate) fn new(query: &'q Query, keys: &Keys<T>) -> Result<Self, ApiError> {
        let per_page = query.per_page()?;
        let filter = match query.text("filter") {
            "" => None,
            text => Some(Filter::parse(text)?),
        };
        let reverse = query.get("reverse") == Some("true");
        let start = query.text("next_token");
        let sort = Self::sort(query, keys)?;
        let counts = query.bool("count")?.unwrap_or(false);
        Ok(Self { filter, per_page, reverse, start, sort, counts })
    }

    /// Reads the order that a request names, and the start of the page in it.
    fn sort(query: &Query, keys: &Keys<T>) -> Result<Option<Sort<T>>, ApiError> {
        let Some(order) = Order::parse(query.text("sort"), keys)? else { return Ok(None) };
        let start = match query.text("next_token") {
            "" => None,
            token => Some(order.start(token)?),
        };
        Ok(Some((order, start)))
    }

    /// Checks the parameters that Nomad does not have.
    pub(crate) fn check(query: &Query, keys: &Keys<T>) -> Result<(), ApiError> {
        query.bool("count")?;
        Self::sort(query, keys).map(|_| ())
    }

    /// Returns the pager with the opposite order.
    pub(crate) fn reversed(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }

    /// Returns the pager without a page limit.
    pub(crate) fn unpaged(self) -> Self {
        let sort = self.sort.map(|(order, _)| (order, None));
        Self { per_page: 0, start: "", sort, ..self }
    }

    /// Returns whether the request names an order.
    pub(crate) fn is_sorted(&self) -> bool {
        self.sort.is_some()
    }

    /// Returns the create index and id of the first element of the page. Returns `None` if the list must be read
    /// from its first row: for another order, for the number of all rows, and for the first page.
    pub(crate) fn start_by_age<I: for<'i> From<&'i str>>(&self) -> Option<(u64, I)> {
        if self.is_sorted() || self.counts || self.start.is_empty() {
            return None;
        }
        match Token::parse(self.start, Token::Created(0, "")) {
            Token::Created(index, id) => Some((index, I::from(id))),
            _ => None,
        }
    }

    /// Returns whether the filter expression mentions a field.
    pub(crate) fn mentions(&self, field: &str) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.mentions(field))
    }

    /// Sorts the rows by their tokens, or in the order that the request names, and cuts out the page. Returns the
    /// page and the token of the next one, which is empty on the last page. Without `per_page`, the page is the
    /// whole rest.
    pub(crate) fn cut<'r>(
        &self,
        root: &'r Root,
        mut rows: Vec<&'r Arc<T>>,
        token: impl Fn(&&'r Arc<T>) -> Token<'r>,
        object: impl Fn(&&'r Arc<T>) -> Value,
    ) -> Result<Page<'r, T>, ApiError> {
        if !self.is_sorted() {
            if !rows.is_sorted_by_key(&token) {
                rows.sort_by(|a, b| token(a).cmp(&token(b)));
            }
            if self.reverse {
                rows.reverse();
            }
        }
        self.take(root, rows, token, object)
    }

    /// Cuts a page out of rows that are already in the list's order. Examines no more rows than the page needs,
    /// unless the request names another order or requests the number of all rows.
    pub(crate) fn take<'r>(
        &self,
        root: &'r Root,
        rows: impl IntoIterator<Item = &'r Arc<T>>,
        token: impl Fn(&&'r Arc<T>) -> Token<'r>,
        object: impl Fn(&&'r Arc<T>) -> Value,
    ) -> Result<Page<'r, T>, ApiError> {
        if let Some((order, start)) = &self.sort {
            return self.take_sorted(order, start.as_ref(), root, rows, token, object);
        }
        let mut kept = Vec::new();
        let mut next = Next { token: String::new(), total: self.counts.then_some(0) };
        let mut skipping = !self.start.is_empty();
        for row in rows {
            let own = token(&row);
            if skipping {
                let start = Token::parse(self.start, own);
                skipping = if self.reverse { own > start } else { own < start };
                if skipping && !self.counts {
                    continue;
                }
            }
            if !self.accepts(&row, &object)? {
                continue;
            }
            if let Some(total) = &mut next.total {
                *total += 1;
            }
            if skipping || !next.token.is_empty() {
                continue;
            }
            if self.is_full(kept.len()) {
                next.token = own.to_string();
                match self.counts {
                    true => continue,
                    false => break,
                }
            }
            kept.push(row);
        }
        Ok((kept, next))
    }

    /// Cuts a page out of rows in any order.
    fn take_sorted<'r>(
        &self,
        order: &Order<T>,
        start: Option<&Start>,
        root: &'r Root,
        rows: impl IntoIterator<Item = &'r Arc<T>>,
        token: impl Fn(&&'r Arc<T>) -> Token<'r>,
        object: impl Fn(&&'r Arc<T>) -> Value,
    ) -> Result<Page<'r, T>, ApiError> {
        let directed = |order: Ordering| if self.reverse { order.reverse() } else { order };
        let mut next = Next { token: String::new(), total: self.counts.then_some(0) };
        let mut placed: Vec<Placed<'r, T>> = Vec::new();
        for row in rows {
            if let Some(total) = &mut next.total {
                // The number needs the filter for each row, so rows of the page are not examined again.
                if !self.accepts(&row, &object)? {
                    continue;
                }
                *total += 1;
            }
            let own = token(&row);
            let row = order.place(root, row, own);
            if start.is_some_and(|start| directed(order.compare_start(&row, start)) == Ordering::Less) {
                continue;
            }
            placed.push(row);
        }
        let mut kept = Vec::new();
        // Only as many rows are sorted as the page needs; a filter may need more of them, and each round sorts twice
        // as many.
        let page = usize::try_from(self.per_page).unwrap_or_default();
        let mut round = if page == 0 { placed.len() } else { page.saturating_add(1) };
        let mut rest = placed.as_mut_slice();
        while !rest.is_empty() {
            let size = round.min(rest.len());
            if size < rest.len() {
                rest.select_nth_unstable_by(size, |a, b| directed(order.compare(a, b)));
            }
            let (first, others) = rest.split_at_mut(size);
            first.sort_unstable_by(|a, b| directed(order.compare(a, b)));
            for row in first {
                if !self.counts && !self.accepts(&row.row, &object)? {
                    continue;
                }
                if self.is_full(kept.len()) {
                    next.token = order.token(row);
                    return Ok((kept, next));
                }
                kept.push(row.row);
            }
            rest = others;
            round = round.saturating_mul(2);
        }
        Ok((kept, next))
    }

    fn accepts<R>(&self, row: &R, object: impl Fn(&R) -> Value) -> Result<bool, ApiError> {
        match &self.filter {
            Some(filter) => filter.matches(&object(row)),
            None => Ok(true),
        }
    }

    fn is_full(&self, kept: usize) -> bool {
        self.per_page != 0 && !usize::try_from(self.per_page).is_ok_and(|most| kept < most)
    }
}

/// Returns a page with [`Pager::cut`], without further rules.
pub(crate) fn page<'r, T>(
    query: &Query,
    keys: &Keys<T>,
    root: &'r Root,
    rows: Vec<&'r Arc<T>>,
    token: impl Fn(&&'r Arc<T>) -> Token<'r>,
    object: impl Fn(&&'r Arc<T>) -> Value,
) -> Result<Page<'r, T>, ApiError> {
    Pager::new(query, keys)?.cut(root, rows, token, object)
}

/// Returns the facts about a list without pages: an empty token, and the number of its rows if the request
/// includes `count`.
pub(crate) fn whole(query: &Query, number: usize) -> Result<Next, ApiError> {
    let total = query.bool("count")?.unwrap_or(false).then_some(number);
    Ok(Next { token: String::new(), total })
}

/// Refuses the parameters of other lists on a list whose pages a plugin creates.
pub(crate) fn of_plugin(query: &Query) -> Result<(), ApiError> {
    match ["sort", "count"].into_iter().find(|name| !query.text(name).is_empty()) {
        None => Ok(()),
        Some(name) => Err(ApiError::bad_request(format!(
            "`{name}` is not available here: the plugin decides the order and the pages of this list"
        ))),
    }
}

/// Returns an object as filter expressions see it. Rows have only string keys, so the conversion cannot fail.
pub(crate) fn object(row: &impl Serialize) -> Value {
    serde_json::to_value(row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::keys;

    type Row = (u64, String);

    static KEYS: Keys<Row> = keys!(Row {
        "name" => |_, row| &row.1,
        "create" => |_, row| row.0,
        "even" => |_, row| row.0.is_multiple_of(2),
    });

    fn rows(of: &[(u64, &str)]) -> Vec<Arc<Row>> {
        of.iter().map(|(index, id)| Arc::new((*index, (*id).to_owned()))).collect()
    }

    fn own<'r>(row: &&'r Arc<Row>) -> Token<'r> {
        Token::Created(row.0, &row.1)
    }

    fn seen(row: &&Arc<Row>) -> Value {
        serde_json::json!({"Name": row.1})
    }

    fn pages(query: &str, of: &[(u64, &str)]) -> Result<(Vec<String>, Next), ApiError> {
        let (rows, root) = (rows(of), Root::default());
        let (rows, next) = page(&Query::parse(query), &KEYS, &root, rows.iter().collect(), own, seen)?;
        Ok((rows.into_iter().map(|row| row.1.clone()).collect(), next))
    }

    fn token(text: &str) -> Next {
        Next { token: text.to_owned(), total: None }
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    const ROWS: [(u64, &str); 4] = [(9, "a"), (10, "b"), (2, "z"), (10, "c")];

    #[test]
    fn a_token_names_the_first_element_of_the_next_page() {
        assert_eq!(pages("", &ROWS).unwrap(), (names(&["z", "a", "b", "c"]), token("")));
        assert_eq!(pages("per_page=2", &ROWS).unwrap(), (names(&["z", "a"]), token("10.b")));
        assert_eq!(pages("per_page=2&next_token=10.b", &ROWS).unwrap(), (names(&["b", "c"]), token("")));
        assert_eq!(pages("per_page=1&reverse=true", &ROWS).unwrap(), (names(&["c"]), token("10.b")));
        let last = pages("per_page=9&reverse=true&next_token=9.a", &ROWS).unwrap();
        assert_eq!(last, (names(&["a", "z"]), token("")));
    }

    #[test]
    fn a_removed_element_does_not_lose_the_place() {
        assert_eq!(pages("next_token=9.zzz", &ROWS).unwrap().0, ["b", "c"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        assert_eq!(
            pages("per_page=x", &ROWS).unwrap_err().message,
            "Expect a number for `per_page` query string parameter"
        );
    }

    #[test]
    fn tokens_that_are_none_stand_at_the_end_and_negative_pages_are_empty() {
        assert_eq!(pages("next_token=x", &ROWS).unwrap(), (vec![], token("")));
        assert_eq!(pages("per_page=-1", &ROWS).unwrap(), (vec![], token("2.z")));
    }

    #[test]
    fn namespaces_have_no_dots_but_ids_may() {
        let like = Token::Key("", "");
        assert_eq!(Token::parse("default.a.c", like), Token::Key("default", "a.c"));
        let like = Token::Claim("", "", "");
        assert_eq!(Token::parse("default.a.b.c1", like), Token::Claim("default", "a.b", "c1"));
    }

    #[test]
    fn a_list_is_sorted_by_the_named_keys_and_then_by_its_own_order() {
        let sorted = |query: &str| pages(query, &ROWS).unwrap().0;
        assert_eq!(sorted("sort=name"), ["a", "b", "c", "z"]);
        assert_eq!(sorted("sort=-name"), ["z", "c", "b", "a"]);
        assert_eq!(sorted("sort=even,-name"), ["a", "z", "c", "b"]);
        assert_eq!(sorted("sort=-create"), ["b", "c", "a", "z"]);
        assert_eq!(sorted("sort=-create&reverse=true"), ["z", "a", "c", "b"], "all of it is reversed");
    }

    #[test]
    fn unknown_keys_and_tokens_of_another_order_are_refused() {
        let refused = |query: &str| {
            let error = pages(query, &ROWS).unwrap_err();
            assert_eq!(error.status.as_u16(), 400);
            error.message
        };
        assert_eq!(
            refused("sort=name,-size"),
            "unknown key \"size\" in `sort`: known keys are name, create, even"
        );
        assert!(refused("sort=,").contains("known keys"));
        let next = pages("sort=name&per_page=1", &ROWS).unwrap().1.token;
        assert!(refused(&format!("sort=-name&per_page=1&next_token={next}")).contains("next_token"));
        assert!(refused("sort=name&next_token=10.b").contains("next_token"));
        assert!(refused("count=perhaps").contains("count"));
    }

    #[test]
    fn the_total_counts_all_pages_after_the_filter_and_only_on_request() {
        let total = |query: &str| pages(query, &ROWS).unwrap().1.total;
        assert_eq!(total("per_page=1"), None);
        for order in ["", "&sort=name", "&sort=-create&reverse=true"] {
            assert_eq!(total(&format!("per_page=1&count=true{order}")), Some(4));
            assert_eq!(
                total(&format!("per_page=1&count=true&filter=Name%20%21%3D%20%22a%22{order}")),
                Some(3)
            );
        }
        let (rows, next) = pages("per_page=1&count=true&next_token=10.b", &ROWS).unwrap();
        assert_eq!((rows, next), (names(&["b"]), Next { token: "10.c".to_owned(), total: Some(4) }));
    }

    proptest::proptest! {
        #[test]
        fn pages_together_are_the_list(
            of in proptest::collection::btree_set((0u64..4, "[a-z]{1,3}"), 0..20),
            size in 1usize..5, reverse: bool, count: bool,
            sort in proptest::sample::select(vec!["", "name", "-create", "even,-name", "-even"]),
        ) {
            let all: Vec<(u64, &str)> = of.iter().map(|(index, id)| (*index, id.as_str())).collect();
            let query = format!("reverse={reverse}&sort={sort}&count={count}");
            let whole = pages(&query, &all).unwrap().0;
            proptest::prop_assert_eq!(whole.len(), all.len());
            let mut seen = Vec::new();
            let mut token = String::new();
            loop {
                let (rows, next) = pages(&format!("{query}&per_page={size}&next_token={token}"), &all).unwrap();
                proptest::prop_assert_eq!(next.total, count.then_some(all.len()));
                seen.extend(rows);
                if next.token.is_empty() { break }
                token = next.token;
            }
            proptest::prop_assert_eq!(seen, whole);
        }
    }
}
