//! Constants of schemas, as expressions of HCL.

use std::fmt;

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// No value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text, in which nothing is interpolated.
    String(String),
    /// A list.
    List(Vec<Literal>),
    /// A map.
    Map(Vec<(String, Literal)>),
}

impl Literal {
    /// Returns a list.
    pub fn list<L: Into<Self>>(items: impl IntoIterator<Item = L>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }

    /// Returns a map.
    pub fn map<K: Into<String>, L: Into<Self>>(items: impl IntoIterator<Item = (K, L)>) -> Self {
        Self::Map(items.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::String(value) => f.write_str(&quoted(value)),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Map(items) => {
                let items: Vec<String> =
                    items.iter().map(|(key, value)| format!("{} = {value}", quoted(key))).collect();
                write!(f, "{{{}}}", items.join(", "))
            }
        }
    }
}

/// Returns a text in quotes, in which nothing is interpolated.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '$' | '%' if rest.peek() == Some(&'{') => {
                out.push(c);
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Self::String(value.to_owned())
    }
}

impl From<String> for Literal {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}
