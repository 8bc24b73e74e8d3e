//! Lists in pages (docs/reference/http-api.md, section 1.6).

use crate::error::ApiError;
use crate::filter::Filter;
use crate::query::Query;
use serde::Serialize;
use serde_json::Value;
use std::fmt;

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
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(namespace, id) => write!(f, "{namespace}.{id}"),
            Self::Created(index, id) => write!(f, "{index}.{id}"),
            Self::Id(id) => f.write_str(id),
            Self::Modified(index) => write!(f, "{index}"),
        }
    }
}

impl<'a> Token<'a> {
    /// Parses a token of the same kind as `like`. Every text is accepted: a text that is not an index sorts after
    /// all indexes.
    fn parse(text: &'a str, like: Token<'_>) -> Self {
        let (first, rest) = text.split_once('.').unwrap_or((text, ""));
        match like {
            Token::Key(..) => Self::Key(first, rest),
            Token::Created(..) => Self::Created(first.parse().unwrap_or(u64::MAX), rest),
            Token::Id(_) => Self::Id(text),
            Token::Modified(_) => Self::Modified(text.parse().unwrap_or(u64::MAX)),
        }
    }
}

/// The part of a list that a request selects: filter, page size, start and order.
#[derive(Clone, Debug)]
pub(crate) struct Pager<'q> {
    filter: Option<Filter>,
    /// 0 means all; for negative values Nomad answers with an empty page.
    per_page: i32,
    pub(crate) reverse: bool,
    start: &'q str,
}

impl<'q> Pager<'q> {
    pub(crate) fn new(query: &'q Query) -> Result<Self, ApiError> {
        let per_page = query.per_page()?;
        let filter = match query.text("filter") {
            "" => None,
            text => Some(Filter::parse(text)?),
        };
        let reverse = query.get("reverse") == Some("true");
        Ok(Self { filter, per_page, reverse, start: query.text("next_token") })
    }

    /// Returns the pager with the opposite order.
    pub(crate) fn reversed(self) -> Self {
        Self { reverse: !self.reverse, ..self }
    }

    /// Returns the pager without a page limit.
    pub(crate) fn unpaged(self) -> Self {
        Self { per_page: 0, start: "", ..self }
    }

    /// Returns the create index and id of the first element of the page.
    pub(crate) fn start_by_age<I: for<'i> From<&'i str>>(&self) -> Option<(u64, I)> {
        match Token::parse(self.start, Token::Created(0, "")) {
            Token::Created(index, id) if !self.start.is_empty() => Some((index, I::from(id))),
            _ => None,
        }
    }

    /// Returns whether the filter expression mentions a field.
    pub(crate) fn mentions(&self, field: &str) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.mentions(field))
    }

    /// Sorts the rows by their tokens and cuts out the page. Returns the page and the token of the
    /// next one, which is empty on the last page. Without `per_page`, the page is the whole rest.
    pub(crate) fn cut<'r, T>(
        &self,
        mut rows: Vec<T>,
        token: impl Fn(&T) -> Token<'r>,
        object: impl Fn(&T) -> Value,
    ) -> Result<(Vec<T>, String), ApiError> {
        if !rows.is_sorted_by_key(&token) {
            rows.sort_by(|a, b| token(a).cmp(&token(b)));
        }
        if self.reverse {
            rows.reverse();
        }
        self.take(rows, token, object)
    }

    /// Cuts a page out of rows that are already in the requested order. Examines no more rows than the
    /// page needs.
    pub(crate) fn take<'r, T>(
        &self,
        rows: impl IntoIterator<Item = T>,
        token: impl Fn(&T) -> Token<'r>,
        object: impl Fn(&T) -> Value,
    ) -> Result<(Vec<T>, String), ApiError> {
        let mut kept = Vec::new();
        let mut skipping = !self.start.is_empty();
        for row in rows {
            let own = token(&row);
            if skipping {
                let start = Token::parse(self.start, own);
                skipping = if self.reverse { own > start } else { own < start };
                if skipping {
                    continue;
                }
            }
            if let Some(filter) = &self.filter
                && !filter.matches(&object(&row))?
            {
                continue;
            }
            let full = usize::try_from(self.per_page).is_ok_and(|most| kept.len() < most);
            if self.per_page != 0 && !full {
                return Ok((kept, own.to_string()));
            }
            kept.push(row);
        }
        Ok((kept, String::new()))
    }
}

/// Answers a list with [`Pager::cut`] and no further rules.
pub(crate) fn page<'r, T>(
    query: &Query,
    rows: Vec<T>,
    token: impl Fn(&T) -> Token<'r>,
    object: impl Fn(&T) -> Value,
) -> Result<(Vec<T>, String), ApiError> {
    Pager::new(query)?.cut(rows, token, object)
}

/// Returns an object as filter expressions see it. Rows have only string keys, so the conversion cannot fail.
pub(crate) fn object(row: &impl Serialize) -> Value {
    serde_json::to_value(row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(query: &str, rows: &[(u64, &'static str)]) -> Result<(Vec<&'static str>, String), ApiError> {
        let (rows, next) =
            page(&Query::parse(query), rows.to_vec(), |(i, id)| Token::Created(*i, id), object)?;
        Ok((rows.into_iter().map(|(_, id)| id).collect(), next))
    }

    const ROWS: [(u64, &str); 4] = [(9, "a"), (10, "b"), (2, "z"), (10, "c")];

    #[test]
    fn a_token_names_the_first_element_of_the_next_page() {
        assert_eq!(pages("", &ROWS).unwrap(), (vec!["z", "a", "b", "c"], String::new()));
        assert_eq!(pages("per_page=2", &ROWS).unwrap(), (vec!["z", "a"], "10.b".into()));
        assert_eq!(pages("per_page=2&next_token=10.b", &ROWS).unwrap(), (vec!["b", "c"], String::new()));
        assert_eq!(pages("per_page=1&reverse=true", &ROWS).unwrap(), (vec!["c"], "10.b".into()));
        let last = pages("per_page=9&reverse=true&next_token=9.a", &ROWS).unwrap();
        assert_eq!(last, (vec!["a", "z"], String::new()));
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
        assert_eq!(pages("next_token=x", &ROWS).unwrap(), (vec![], String::new()));
        assert_eq!(pages("per_page=-1", &ROWS).unwrap(), (vec![], "2.z".into()));
    }

    #[test]
    fn namespaces_have_no_dots_but_ids_may() {
        let rows = vec![("default", "a.b"), ("default", "a.c"), ("team", "a")];
        let query = Query::parse("per_page=1&next_token=default.a.c");
        let (rows, next) = page(&query, rows, |(ns, id)| Token::Key(ns, id), object).unwrap();
        assert_eq!((rows, next.as_str()), (vec![("default", "a.c")], "team.a"));
    }

    proptest::proptest! {
        #[test]
        fn pages_together_are_the_list(ids in proptest::collection::btree_set("[a-z]{1,4}", 0..20), size in 1usize..5, reverse: bool) {
            let all: Vec<String> = ids.into_iter().collect();
            let mut seen = Vec::new();
            let mut token = String::new();
            loop {
                let query = Query::parse(&format!("per_page={size}&next_token={token}&reverse={reverse}"));
                let rows: Vec<&String> = all.iter().collect();
                let (rows, next) = page(&query, rows, |id| Token::Id(id), object).unwrap();
                seen.extend(rows.into_iter().cloned());
                if next.is_empty() { break }
                token = next;
            }
            let mut want = all.clone();
            if reverse { want.reverse() }
            proptest::prop_assert_eq!(seen, want);
        }
    }
}
