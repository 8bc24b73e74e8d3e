//! Strings.

use regex::Regex;
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
        let pattern = Regex::new(&rewritten(&text(&a[1])))
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

/// A pattern in the notation of the reference (RE2) in that of our library: there the short classes mean ASCII only, and
/// a bracket within a class stands for itself.
fn rewritten(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str(if class { "0-9" } else { "[0-9]" }),
                Some('w') => out.push_str(if class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                Some('s') => out.push_str(if class { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                Some('D') => out.push_str("[^0-9]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('b') if !class => out.push_str(r"(?-u:\b)"),
                Some('Q') if !class => {
                    let rest: String = chars.by_ref().collect();
                    let (quoted, rest) = rest.split_once(r"\E").unwrap_or((&rest, ""));
                    out.push_str(&regex::escape(quoted));
                    return out + &rewritten(rest);
                }
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            '[' if !class => {
                class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                if chars.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A named class, up to its end.
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' if class => out.extend(['\\', c]),
            ']' if class => {
                class = false;
                out.push(']');
            }
            _ => out.push(c),
        }
    }
    out
}

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
