//! Lists in pages (`http-api` section 1.6).

use crate::error::ApiError;
use crate::query::Query;
use std::fmt;

/// Where an element stands in its list; the order of tokens is the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token<'a> {
    /// `<namespace>.<id>`.
    Key(&'a str, &'a str),
    /// `<createindex>.<id>`.
    Created(u64, &'a str),
    /// `<id>`.
    Id(&'a str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(namespace, id) => write!(f, "{namespace}.{id}"),
            Self::Created(index, id) => write!(f, "{index}.{id}"),
            Self::Id(id) => f.write_str(id),
        }
    }
}

impl<'a> Token<'a> {
    /// Reads a token of the same kind as `like`.
    fn parse(text: &'a str, like: Self) -> Option<Self> {
        Some(match like {
            Self::Key(..) => {
                let (namespace, id) = text.split_once('.')?;
                Self::Key(namespace, id)
            }
            Self::Created(..) => {
                let (index, id) = text.split_once('.')?;
                Self::Created(index.parse().ok()?, id)
            }
            Self::Id(_) => Self::Id(text),
        })
    }
}

/// Sorts the rows by their tokens and cuts the page that is asked for out of them. Answers the page and
/// the token of the next one, empty at the end. Without `per_page` the page is the whole rest.
pub(crate) fn page<'r, T>(
    query: &Query,
    mut rows: Vec<T>,
    token: impl Fn(&T) -> Token<'r>,
) -> Result<(Vec<T>, String), ApiError> {
    if !query.text("filter").is_empty() {
        return Err(ApiError::bad_request("filter expressions are not supported yet"));
    }
    let per_page: usize =
        match query.text("per_page") {
            "" => 0,
            text => text.parse::<i32>().ok().map(|n| usize::try_from(n).unwrap_or(0)).ok_or_else(|| {
                ApiError::bad_request("Expect a number for `per_page` query string parameter")
            })?,
        };
    let reverse = query.get("reverse") == Some("true");
    if !rows.is_sorted_by_key(&token) {
        rows.sort_by(|a, b| token(a).cmp(&token(b)));
    }
    if reverse {
        rows.reverse();
    }
    let from = query.text("next_token");
    if let Some(like) = rows.first().map(&token).filter(|_| !from.is_empty()) {
        let start = Token::parse(from, like)
            .ok_or_else(|| ApiError::bad_request(format!("\"{from}\" is not a next_token of this list")))?;
        let before = |row: &T| if reverse { token(row) > start } else { token(row) < start };
        let skipped = rows.iter().take_while(|row| before(row)).count();
        rows.drain(..skipped);
    }
    let mut next = String::new();
    if per_page > 0 && rows.len() > per_page {
        next = token(&rows[per_page]).to_string();
        rows.truncate(per_page);
    }
    Ok((rows, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(query: &str, rows: &[(u64, &'static str)]) -> Result<(Vec<&'static str>, String), ApiError> {
        let (rows, next) = page(&Query::parse(query), rows.to_vec(), |(i, id)| Token::Created(*i, id))?;
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
        assert_eq!(pages("next_token=x", &ROWS).unwrap_err().status, 400);
        assert_eq!(pages("filter=a", &ROWS).unwrap_err().message, "filter expressions are not supported yet");
    }

    #[test]
    fn namespaces_have_no_dots_but_ids_may() {
        let rows = vec![("default", "a.b"), ("default", "a.c"), ("team", "a")];
        let query = Query::parse("per_page=1&next_token=default.a.c");
        let (rows, next) = page(&query, rows, |(ns, id)| Token::Key(ns, id)).unwrap();
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
                let (rows, next) = page(&query, rows, |id| Token::Id(id)).unwrap();
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
