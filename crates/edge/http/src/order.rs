//! The order that a client chooses for a list: `sort=name,-modify` (docs/design/http-api.md, "Lists").

use crate::error::ApiError;
use crate::page::Token;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use caravan_state::Root;
use caravan_types::UnixNanos;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::sync::Arc;

/// The most keys of one order.
const MAX_KEYS: usize = 8;

/// A value by which rows are sorted. Values of one key are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell<'r> {
    Number(i64),
    Text(&'r str),
}

impl<'r> From<&'r str> for Cell<'r> {
    fn from(text: &'r str) -> Self {
        Self::Text(text)
    }
}

impl<'r> From<&'r String> for Cell<'r> {
    fn from(text: &'r String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Cell<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Cell<'_> {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell<'_> {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Cell<'_> {
    fn from(value: bool) -> Self {
        Self::Number(value.into())
    }
}

impl From<UnixNanos> for Cell<'_> {
    fn from(time: UnixNanos) -> Self {
        Self::Number(time.0)
    }
}

/// Returns the value of a row for one key.
pub(crate) type Of<T> = for<'r> fn(&'r Root, &'r T) -> Cell<'r>;

/// The keys by which a list can be sorted. Each position is one key.
pub(crate) struct Keys<T: 'static> {
    /// The names in requests.
    pub(crate) names: &'static [&'static str],
    pub(crate) of: &'static [Of<T>],
}

/// Creates the [`Keys`] of a list from names and the values of a row.
macro_rules! keys {
    ($row_type:ty { $($name:literal => |$root:pat_param, $row:ident| $value:expr),* $(,)? }) => {
        $crate::order::Keys::<$row_type> {
            names: &[$($name),*],
            of: &[$({
                fn cell<'r>($root: &'r caravan_state::Root, $row: &'r $row_type) -> $crate::order::Cell<'r> {
                    $crate::order::Cell::from($value)
                }
                cell
            }),*],
        }
    };
}
pub(crate) use keys;

/// An order of rows.
pub(crate) struct Order<T: 'static> {
    /// The order as the request names it. A token belongs to one order.
    text: String,
    by: Vec<(Of<T>, bool)>,
}

/// The first row of a page, as the token of the page describes the row.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    order: String,
    cells: Vec<Kept>,
    token: String,
}

/// A [`Cell`] of a token.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Kept {
    Number(i64),
    Text(String),
}

impl Kept {
    fn cell(&self) -> Cell<'_> {
        match self {
            Self::Number(number) => Cell::Number(*number),
            Self::Text(text) => Cell::Text(text),
        }
    }
}

/// A row with its place in the order.
pub(crate) struct Placed<'r, T> {
    pub(crate) row: &'r Arc<T>,
    /// The place in the list's own order, which decides between equal rows.
    pub(crate) own: Token<'r>,
    cells: Vec<Cell<'r>>,
}

impl<T> Order<T> {
    /// Reads an order such as `name,-modify`; `None` for an empty text.
    pub(crate) fn parse(text: &str, keys: &Keys<T>) -> Result<Option<Self>, ApiError> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut by = Vec::new();
        for word in text.split(',') {
            let (name, descends) = word.strip_prefix('-').map_or((word, false), |name| (name, true));
            let Some(at) = keys.names.iter().position(|key| *key == name) else {
                return Err(ApiError::bad_request(format!(
                    "unknown key {name:?} in `sort`: known keys are {}",
                    keys.names.join(", ")
                )));
            };
            by.push((keys.of[at], descends));
        }
        if by.len() > MAX_KEYS {
            return Err(ApiError::bad_request(format!("`sort` has more than {MAX_KEYS} keys")));
        }
        Ok(Some(Self { text: text.to_owned(), by }))
    }

    /// Reads the token of a page.
    pub(crate) fn start(&self, token: &str) -> Result<Start, ApiError> {
        let read = || {
            let start: Start = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
            (start.order == self.text && start.cells.len() == self.by.len()).then_some(start)
        };
        read().ok_or_else(|| {
            ApiError::bad_request("`next_token` does not belong to this `sort`: request the first page again")
        })
    }

    /// Returns a row with its place.
    pub(crate) fn place<'r>(&self, root: &'r Root, row: &'r Arc<T>, own: Token<'r>) -> Placed<'r, T> {
        Placed { row, own, cells: self.by.iter().map(|(of, _)| of(root, row)).collect() }
    }

    /// Returns the token of the page that begins with a row.
    pub(crate) fn token(&self, first: &Placed<'_, T>) -> String {
        let kept = |cell: &Cell<'_>| match cell {
            Cell::Number(number) => Kept::Number(*number),
            Cell::Text(text) => Kept::Text((*text).to_owned()),
        };
        let start = Start {
            order: self.text.clone(),
            cells: first.cells.iter().map(kept).collect(),
            token: first.own.to_string(),
        };
        // Texts and numbers in a list cannot fail to encode.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&start).unwrap_or_default())
    }

    /// Compares two rows.
    pub(crate) fn compare(&self, one: &Placed<'_, T>, other: &Placed<'_, T>) -> Ordering {
        self.compare_cells(one, other.cells.iter().copied(), other.own)
    }

    /// Compares a row with the first row of a page.
    pub(crate) fn compare_start(&self, row: &Placed<'_, T>, start: &Start) -> Ordering {
        self.compare_cells(row, start.cells.iter().map(Kept::cell), Token::parse(&start.token, row.own))
    }

    fn compare_cells<'c>(
        &self,
        row: &Placed<'_, T>,
        cells: impl Iterator<Item = Cell<'c>>,
        own: Token<'_>,
    ) -> Ordering {
        for ((cell, other), (_, descends)) in row.cells.iter().zip(cells).zip(&self.by) {
            let order = cell.cmp(&other);
            if order != Ordering::Equal {
                return if *descends { order.reverse() } else { order };
            }
        }
        row.own.cmp(&own)
    }
}
