//! The engine's text functions, each with a limit on the length of its result.

use super::{Function, MANY, v};
use crate::session::{Answer, Bounded, Session};
use crate::value::{as_int, as_text, shown, text};
use crate::{limits, session};
use gotmpl::Value;
use std::sync::Arc;

pub(super) const TABLE: &[Function] = &[
    v("print", 0, MANY, |s, a| engine(s, "print", a)),
    v("println", 0, MANY, |s, a| engine(s, "println", a)),
    v("printf", 1, MANY, printf),
    v("html", 1, MANY, |s, a| engine(s, "html", a)),
    v("js", 1, MANY, |s, a| engine(s, "js", a)),
    v("urlquery", 1, MANY, |s, a| engine(s, "urlquery", a)),
    v("slice", 1, 3, |_, a| {
        let at = |i: usize| a.get(i).map(as_int).transpose();
        a[0].slice(at(1)?, at(2)?).map_err(|error| session::plain(&error))
    }),
    v("sprig_cat", 0, MANY, |_, a| Ok(text(a.iter().map(shown).collect::<Vec<_>>().join(" ")))),
];

/// Calls the engine's function with this name.
fn engine(session: &Session, name: &str, args: &[Value]) -> Answer {
    // Escaping turns one byte into at most six.
    let most = args.iter().map(|arg| shown_length(arg).saturating_mul(6)).fold(0, usize::saturating_add);
    if most > 16 * usize::try_from(limits::VALUE).unwrap_or(usize::MAX) {
        return Err(session.fail("a value is too large"));
    }
    let places: String = (0..args.len()).map(|i| format!(" (index . {i})")).collect();
    let template = gotmpl::Template::new("").parse(&format!("{{{{{name}{places}}}}}"));
    let mut out = Bounded::new(16 * usize::try_from(limits::VALUE).unwrap_or(usize::MAX));
    template
        .and_then(|template| template.execute_fmt(&mut out, &Value::List(Arc::from(args))))
        .map_err(|error| session::plain(&error))?;
    Ok(text(out.into_text()))
}

fn printf(session: &Session, args: &[Value]) -> Answer {
    let format = as_text(&args[0])?;
    // Each verb may use the longest argument, and a width.
    let verbs = format.bytes().filter(|b| *b == b'%').count();
    let width =
        if format.bytes().any(|b| b.is_ascii_digit() || b == b'*') { usize::from(u16::MAX) } else { 64 };
    let longest = args[1..].iter().map(|arg| shown_length(arg).saturating_mul(4)).max().unwrap_or(0);
    if verbs.saturating_mul(width.saturating_add(longest))
        > 16 * usize::try_from(limits::VALUE).unwrap_or(usize::MAX)
    {
        return Err(session.fail("a value is too large"));
    }
    engine(session, "printf", args)
}

/// Returns the approximate length of a printed value, whose size was measured before.
fn shown_length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::List(_) | Value::Map(_) => shown(value).len(),
        _ => 24,
    }
}
