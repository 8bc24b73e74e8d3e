//! Strings.

use unicode_segmentation::UnicodeSegmentation as _;

use super::{Function, P, Result, f, string_items, text, v, whole};
use crate::eval::MAX_STRING;
use crate::value::{Number, Value};

const STR: &[(&str, P)] = &[("str", P::Str)];

pub(super) const TABLE: &[Function] = &[
    f("chomp", STR, |_, a| Ok(Value::str(text(&a[0]).trim_end_matches(['\n', '\r'])))),
    f("indent", &[("spaces", P::Num), ("str", P::Str)], |_, a| {
        let spaces =
            usize::try_from(whole(&a[0])?).ok().filter(|n| *n <= 1000).ok_or("invalid number of spaces")?;
        bounded(text(&a[1]).replace('\n', &format!("\n{}", " ".repeat(spaces))))
    }),
    v("join", &[("separator", P::Str)], ("lists", P::Strs), |_, a| {
        let separator = text(&a[0]);
        if a.len() < 2 {
            return Err("at least one list is required".to_owned());
        }
        let mut all = Vec::new();
        for list in a.into_iter().skip(1) {
            all.extend(string_items(list)?);
        }
        bounded(all.join(&separator))
    }),
    f("lower", STR, |_, a| Ok(Value::str(each_char(&text(&a[0]), |c| single(c.to_lowercase(), c))))),
    f("upper", STR, |_, a| Ok(Value::str(each_char(&text(&a[0]), |c| single(c.to_uppercase(), c))))),
    f("title", STR, |_, a| Ok(Value::str(title(&text(&a[0]))))),
    f("trim", &[("str", P::Str), ("cutset", P::Str)], |_, a| {
        let cut: Vec<char> = text(&a[1]).chars().collect();
        Ok(Value::str(text(&a[0]).trim_matches(cut.as_slice())))
    }),
    f("trimprefix", &[("str", P::Str), ("prefix", P::Str)], |_, a| {
        let (s, prefix) = (text(&a[0]), text(&a[1]));
        Ok(Value::str(s.strip_prefix(&prefix).unwrap_or(&s)))
    }),
    f("trimsuffix", &[("str", P::Str), ("suffix", P::Str)], |_, a| {
        let (s, suffix) = (text(&a[0]), text(&a[1]));
        Ok(Value::str(s.strip_suffix(&suffix).unwrap_or(&s)))
    }),
    f("trimspace", STR, |_, a| Ok(Value::str(text(&a[0]).trim()))),
    f("replace", &[("str", P::Str), ("substr", P::Str), ("replace", P::Str)], |_, a| {
        bounded(text(&a[0]).replace(&text(&a[1]), &text(&a[2])))
    }),
    f("regex_replace", &[("str", P::Str), ("pattern", P::Str), ("replace", P::Str)], |_, a| {
        let pattern = caravan_lang::regexp::compile(&text(&a[1]))
            .map_err(|e| format!("invalid regular expression pattern: {e}"))?;
        bounded(pattern.replace_all(&text(&a[0]), text(&a[2]).as_str()).into_owned())
    }),
    f("reverse", STR, |_, a| Ok(Value::str(clusters(&text(&a[0])).into_iter().rev().collect::<String>()))),
    f("strrev", STR, |_, a| Ok(Value::str(clusters(&text(&a[0])).into_iter().rev().collect::<String>()))),
    f("strlen", STR, |_, a| Ok(Value::Num(Number::from(clusters(&text(&a[0])).len())))),
    f("split", &[("separator", P::Str), ("str", P::Str)], |_, a| {
        let (separator, s) = (text(&a[0]), text(&a[1]));
        Ok(Value::strings(if separator.is_empty() {
            s.chars().map(String::from).collect::<Vec<_>>()
        } else {
            s.split(&separator).map(str::to_owned).collect()
        }))
    }),
    f("substr", &[("str", P::Str), ("offset", P::Num), ("length", P::Num)], |_, a| {
        let s = text(&a[0]);
        let all = clusters(&s);
        let length = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let (offset, count) = (whole(&a[1])?, whole(&a[2])?);
        let start = if offset < 0 { (length + offset).max(0) } else { offset.min(length) };
        let end = if count < 0 { length } else { start.saturating_add(count).min(length) };
        let cut = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(s, e)| all.get(s..e));
        Ok(Value::str(cut.unwrap_or_default().concat()))
    }),
];

/// Refuses strings that grow without bounds.
pub(super) fn bounded(s: String) -> Result<Value> {
    if s.len() > MAX_STRING {
        Err(format!("the result is longer than {MAX_STRING} bytes"))
    } else {
        Ok(Value::str(s))
    }
}

/// User-perceived characters (Unicode, annex 29).
fn clusters(s: &str) -> Vec<&str> {
    s.graphemes(true).collect()
}
fn each_char(s: &str, map: impl Fn(char) -> char) -> String {
    s.chars().map(map).collect()
}

/// Case mapping one to one, as the reference has it: a letter without a single counterpart stays.
fn single(mut mapped: impl Iterator<Item = char>, c: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Whether a word may begin after this character: of those beyond ASCII only blanks are between words.
fn separates(c: char) -> bool {
    if c.is_ascii() { !(c.is_ascii_alphanumeric() || c == '_') } else { c.is_whitespace() }
}

fn title(s: &str) -> String {
    let mut previous = ' ';
    s.chars()
        .map(|c| {
            let starts = separates(previous);
            previous = c;
            if starts { single(c.to_uppercase(), c) } else { c }
        })
        .collect()
}
