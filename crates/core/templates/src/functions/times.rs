//! Time functions.

use super::{Function, v};
use crate::go_time;
use crate::value::{as_text, text};

pub(super) const TABLE: &[Function] = &[v("timestamp", 0, 1, |s, a| {
    let now = s.inputs.now;
    match a.first().map_or(Ok(""), as_text)? {
        "" => go_time::format(now, go_time::RFC_3339),
        "unix" => Ok(now.as_secs().to_string()),
        layout => go_time::format(now, layout),
    }
    .map(text)
})];
