//! The most common functions of the sprig library, with the prefix `sprig_`: only functions that depend on nothing
//! but their arguments.

use super::codec::{decode64, hcl, hex};
use super::strings::{fits, indent, join, pattern, regex_replace, replace, split, title};
use super::{Function, MANY, f, lists, v};
use crate::session::{Answer, Session};
use crate::value::{
    Map, as_count, as_float, as_int, as_list, as_map, as_text, map, same, shown, text, texts,
};
use crate::{json, limits};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gotmpl::Value;
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const TABLE: &[Function] = &[
    // Text functions.
    f("sprig_upper", 1, |_, a| Ok(text(as_text(&a[0])?.to_uppercase()))),
    f("sprig_lower", 1, |_, a| Ok(text(as_text(&a[0])?.to_lowercase()))),
    f("sprig_title", 1, |_, a| Ok(text(title(as_text(&a[0])?)))),
    f("sprig_trim", 1, |_, a| Ok(text(as_text(&a[0])?.trim()))),
    f("sprig_trimAll", 2, |_, a| {
        let cut = as_text(&a[0])?;
        Ok(text(as_text(&a[1])?.trim_matches(|c| cut.contains(c))))
    }),
    f("sprig_trimPrefix", 2, |_, a| {
        let from = as_text(&a[1])?;
        Ok(text(from.strip_prefix(as_text(&a[0])?).unwrap_or(from)))
    }),
    f("sprig_trimSuffix", 2, |_, a| {
        let from = as_text(&a[1])?;
        Ok(text(from.strip_suffix(as_text(&a[0])?).unwrap_or(from)))
    }),
    f("sprig_nospace", 1, |_, a| Ok(text(as_text(&a[0])?.split_whitespace().collect::<String>()))),
    f("sprig_repeat", 2, |_, a| {
        let (times, what) = (as_count(&a[0])?, as_text(&a[1])?);
        fits(times.saturating_mul(what.len()))?;
        Ok(text(what.repeat(times)))
    }),
    f("sprig_substr", 3, |_, a| {
        let (from, to, whole) = (as_int(&a[0])?, as_int(&a[1])?, as_text(&a[2])?);
        let end = if to < 0 { usize::MAX } else { as_count(&a[1])? };
        let from = as_count(&Value::Int(from))?;
        Ok(text(whole.chars().take(end).skip(from).collect::<String>()))
    }),
    f("sprig_trunc", 2, |_, a| {
        let (length, whole) = (as_int(&a[0])?, as_text(&a[1])?);
        let count = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
        let skip = if length < 0 { whole.chars().count().saturating_sub(count) } else { 0 };
        Ok(text(whole.chars().skip(skip).take(count).collect::<String>()))
    }),
    f("sprig_replace", 3, |_, a| replace(as_text(&a[0])?, as_text(&a[1])?, as_text(&a[2])?)),
    f("sprig_contains", 2, |_, a| Ok(Value::Bool(as_text(&a[1])?.contains(as_text(&a[0])?)))),
    f("sprig_hasPrefix", 2, |_, a| Ok(Value::Bool(as_text(&a[1])?.starts_with(as_text(&a[0])?)))),
    f("sprig_hasSuffix", 2, |_, a| Ok(Value::Bool(as_text(&a[1])?.ends_with(as_text(&a[0])?)))),
    v("sprig_quote", 0, MANY, |_, a| quoted(a, '"')),
    v("sprig_squote", 0, MANY, |_, a| quoted(a, '\'')),
    f("sprig_indent", 2, |_, a| indent(as_count(&a[0])?, as_text(&a[1])?)),
    f("sprig_nindent", 2, |_, a| {
        let inner = indent(as_count(&a[0])?, as_text(&a[1])?)?;
        Ok(text(format!("\n{}", shown(&inner))))
    }),
    f("sprig_plural", 3, |_, a| Ok(if as_int(&a[2])? == 1 { a[0].clone() } else { a[1].clone() })),
    f("sprig_snakecase", 1, |_, a| Ok(text(words(as_text(&a[0])?).join("_")))),
    f("sprig_kebabcase", 1, |_, a| Ok(text(words(as_text(&a[0])?).join("-")))),
    f("sprig_camelcase", 1, |_, a| {
        Ok(text(words(as_text(&a[0])?).iter().map(|word| title(word)).collect::<String>()))
    }),
    f("sprig_splitList", 2, |_, a| Ok(texts(split(as_text(&a[1])?, as_text(&a[0])?)))),
    f("sprig_split", 2, |_, a| {
        let parts = split(as_text(&a[1])?, as_text(&a[0])?);
        Ok(map(parts.iter().enumerate().map(|(i, part)| (format!("_{i}"), text(part)))))
    }),
    f("sprig_join", 2, |_, a| join(as_text(&a[0])?, &listed(&a[1]))),
    f("sprig_toString", 1, |_, a| Ok(text(shown(&a[0])))),
    f("sprig_toStrings", 1, |_, a| Ok(texts(as_list(&a[0])?.iter().map(shown)))),
    f("sprig_regexMatch", 2, |_, a| Ok(Value::Bool(pattern(&a[0])?.is_match(as_text(&a[1])?)))),
    f("sprig_regexFind", 2, |_, a| {
        let whole = as_text(&a[1])?;
        Ok(text(pattern(&a[0])?.find(whole).map_or("", |found| found.as_str())))
    }),
    f("sprig_regexFindAll", 3, |_, a| {
        let most = as_int(&a[2])?;
        let most = if most < 0 { usize::MAX } else { as_count(&a[2])? };
        let whole = as_text(&a[1])?;
        Ok(texts(pattern(&a[0])?.find_iter(whole).take(most).map(|found| found.as_str().to_owned())))
    }),
    f("sprig_regexReplaceAll", 3, |_, a| regex_replace(&pattern(&a[0])?, as_text(&a[1])?, as_text(&a[2])?)),
    f("sprig_regexSplit", 3, |_, a| {
        let most = as_int(&a[2])?;
        let most = if most < 0 { usize::MAX } else { as_count(&a[2])? };
        let (pattern, whole) = (pattern(&a[0])?, as_text(&a[1])?);
        Ok(texts(pattern.splitn(whole, most).map(str::to_owned)))
    }),
    // Default values.
    f("sprig_default", 2, |_, a| Ok(if a[1].is_truthy() { a[1].clone() } else { a[0].clone() })),
    f("sprig_empty", 1, |_, a| Ok(Value::Bool(!a[0].is_truthy()))),
    v("sprig_coalesce", 0, MANY, |_, a| {
        Ok(a.iter().find(|value| value.is_truthy()).cloned().unwrap_or(Value::Nil))
    }),
    f("sprig_ternary", 3, |_, a| Ok(if a[2].is_truthy() { a[0].clone() } else { a[1].clone() })),
    v("sprig_all", 0, MANY, |_, a| Ok(Value::Bool(a.iter().all(Value::is_truthy)))),
    v("sprig_any", 0, MANY, |_, a| Ok(Value::Bool(a.iter().any(Value::is_truthy)))),
    f("sprig_fail", 1, |_, a| Err(as_text(&a[0])?.to_owned())),
    f("sprig_kindOf", 1, |_, a| {
        Ok(text(match &a[0] {
            Value::Nil => "invalid",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Float(_) => "float64",
            Value::String(_) => "string",
            Value::List(_) => "slice",
            Value::Map(_) => "map",
            Value::Function(_) => "func",
        }))
    }),
    // Number functions.
    v("sprig_add", 0, MANY, |_, a| fold(a, 0, i64::checked_add)),
    f("sprig_add1", 1, |_, a| fold(a, 1, i64::checked_add)),
    v("sprig_mul", 1, MANY, |_, a| fold(a, 1, i64::checked_mul)),
    f("sprig_sub", 2, |_, a| fold(&a[1..], as_int(&a[0])?, i64::checked_sub)),
    f("sprig_div", 2, |_, a| fold(&a[1..], as_int(&a[0])?, i64::checked_div)),
    f("sprig_mod", 2, |_, a| fold(&a[1..], as_int(&a[0])?, i64::checked_rem)),
    v("sprig_max", 1, MANY, |_, a| fold(&a[1..], as_int(&a[0])?, |x, y| Some(x.max(y)))),
    v("sprig_min", 1, MANY, |_, a| fold(&a[1..], as_int(&a[0])?, |x, y| Some(x.min(y)))),
    f("sprig_floor", 1, |_, a| Ok(Value::Float(as_float(&a[0])?.floor()))),
    f("sprig_ceil", 1, |_, a| Ok(Value::Float(as_float(&a[0])?.ceil()))),
    v("sprig_round", 2, 3, |_, a| {
        let places = i32::try_from(as_int(&a[1])?.clamp(0, 15)).unwrap_or(0);
        let scale = 10f64.powi(places);
        Ok(Value::Float((as_float(&a[0])? * scale).round() / scale))
    }),
    f("sprig_int", 1, |_, a| whole(&a[0])),
    f("sprig_int64", 1, |_, a| whole(&a[0])),
    f("sprig_atoi", 1, |_, a| Ok(Value::Int(as_int(&a[0]).unwrap_or(0)))),
    f("sprig_float64", 1, |_, a| Ok(Value::Float(as_float(&a[0]).unwrap_or(0.0)))),
    f("sprig_until", 1, |_, a| Ok(Value::List((0..count(&a[0])?).map(Value::Int).collect()))),
    f("sprig_untilStep", 3, until_step),
    // List functions.
    v("sprig_list", 0, MANY, |_, a| Ok(Value::List(Arc::from(a)))),
    v("sprig_tuple", 0, MANY, |_, a| Ok(Value::List(Arc::from(a)))),
    f("sprig_first", 1, |_, a| Ok(as_list(&a[0])?.first().cloned().unwrap_or(Value::Nil))),
    f("sprig_last", 1, |_, a| Ok(as_list(&a[0])?.last().cloned().unwrap_or(Value::Nil))),
    f("sprig_rest", 1, |_, a| Ok(Value::List(as_list(&a[0])?.into_iter().skip(1).collect()))),
    f("sprig_initial", 1, |_, a| {
        let mut items = as_list(&a[0])?;
        items.pop();
        Ok(Value::List(items.into()))
    }),
    f("sprig_append", 2, |_, a| {
        let mut items = as_list(&a[0])?;
        items.push(a[1].clone());
        Ok(Value::List(items.into()))
    }),
    f("sprig_prepend", 2, |_, a| {
        let mut items = as_list(&a[0])?;
        items.insert(0, a[1].clone());
        Ok(Value::List(items.into()))
    }),
    v("sprig_concat", 0, MANY, |_, a| {
        let lists: Vec<Vec<Value>> = a.iter().map(as_list).collect::<Result<_, _>>()?;
        Ok(Value::List(lists.into_iter().flatten().collect()))
    }),
    f("sprig_uniq", 1, |s, a| {
        let items = as_list(&a[0])?;
        s.charge(square(items.len()))?;
        let mut out: Vec<Value> = Vec::new();
        for item in items {
            if !out.iter().any(|known| same(known, &item)) {
                out.push(item);
            }
        }
        Ok(Value::List(out.into()))
    }),
    v("sprig_without", 1, MANY, |_, a| {
        let kept = as_list(&a[0])?.into_iter().filter(|item| !a[1..].iter().any(|gone| same(gone, item)));
        Ok(Value::List(kept.collect()))
    }),
    f("sprig_compact", 1, |_, a| {
        Ok(Value::List(as_list(&a[0])?.into_iter().filter(Value::is_truthy).collect()))
    }),
    f("sprig_has", 2, |_, a| lists::contains(&a[0], &a[1])),
    f("sprig_reverse", 1, |_, a| Ok(Value::List(as_list(&a[0])?.into_iter().rev().collect()))),
    f("sprig_sortAlpha", 1, |_, a| {
        let mut items: Vec<String> = as_list(&listed(&a[0]))?.iter().map(shown).collect();
        items.sort();
        Ok(texts(items))
    }),
    f("sprig_len", 1, |_, a| {
        let length = a[0].len().ok_or("it has no length")?;
        Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
    }),
    // Map functions.
    v("sprig_dict", 0, MANY, |_, a| {
        let pairs =
            a.chunks(2).map(|pair| (shown(&pair[0]), pair.get(1).cloned().unwrap_or_else(|| text(""))));
        Ok(map(pairs))
    }),
    f("sprig_get", 2, |_, a| Ok(as_map(&a[0])?.get(as_text(&a[1])?).cloned().unwrap_or_else(|| text("")))),
    f("sprig_set", 3, |_, a| {
        Ok(changed(&as_map(&a[0])?, |items| drop(items.insert(Arc::from(shown(&a[1])), a[2].clone()))))
    }),
    f("sprig_unset", 2, |_, a| {
        Ok(changed(&as_map(&a[0])?, |items| drop(items.remove(shown(&a[1]).as_str()))))
    }),
    f("sprig_hasKey", 2, |_, a| Ok(Value::Bool(as_map(&a[0])?.contains_key(as_text(&a[1])?)))),
    v("sprig_keys", 1, MANY, |_, a| {
        let all: Vec<Map> = a.iter().map(as_map).collect::<Result<_, _>>()?;
        Ok(Value::List(
            all.iter().flat_map(|items| as_list(&lists::keys(items)).unwrap_or_default()).collect(),
        ))
    }),
    v("sprig_values", 1, MANY, |_, a| {
        let all: Vec<Map> = a.iter().map(as_map).collect::<Result<_, _>>()?;
        Ok(Value::List(all.iter().flat_map(|items| items.values().cloned()).collect()))
    }),
    v("sprig_pick", 1, MANY, |_, a| {
        Ok(changed(&as_map(&a[0])?, |items| items.retain(|key, _| a[1..].iter().any(|k| shown(k) == **key))))
    }),
    v("sprig_omit", 1, MANY, |_, a| {
        Ok(changed(&as_map(&a[0])?, |items| items.retain(|key, _| !a[1..].iter().any(|k| shown(k) == **key))))
    }),
    v("sprig_merge", 1, MANY, |_, a| merge(a, false)),
    v("sprig_mergeOverwrite", 1, MANY, |_, a| merge(a, true)),
    v("sprig_dig", 3, MANY, |_, a| {
        let (last, keys) = (&a[a.len() - 1], &a[..a.len() - 2]);
        let mut at = last.clone();
        for key in keys {
            match as_map(&at)?.get(as_text(key)?) {
                Some(inner) => at = inner.clone(),
                None => return Ok(a[a.len() - 2].clone()),
            }
        }
        Ok(at)
    }),
    // Encodings.
    f("sprig_b64enc", 1, |_, a| Ok(text(STANDARD.encode(as_text(&a[0])?)))),
    f("sprig_b64dec", 1, |_, a| decode64(as_text(&a[0])?)),
    f("sprig_sha256sum", 1, |_, a| Ok(text(hex(&Sha256::digest(as_text(&a[0])?))))),
    f("sprig_sha1sum", 1, |_, a| hcl("sha1", as_text(&a[0])?)),
    f("sprig_toJson", 1, |_, a| Ok(text(json::escaped(&json::from_value(&a[0]).to_string())))),
    f("sprig_toRawJson", 1, |_, a| Ok(text(json::from_value(&a[0]).to_string()))),
    f("sprig_toPrettyJson", 1, |_, a| Ok(text(json::escaped(&json::pretty(&json::from_value(&a[0])))))),
    f("sprig_fromJson", 1, |_, a| json::read(as_text(&a[0])?)),
    // Random functions: the same seed gives the same values, so that a render is repeatable.
    f("sprig_uuidv4", 0, |s, _| Ok(text(uuid(s)))),
    f("sprig_randInt", 2, |s, a| {
        let (from, to) = (as_int(&a[0])?, as_int(&a[1])?);
        let span = to.checked_sub(from).and_then(|span| u64::try_from(span).ok()).filter(|span| *span > 0);
        let span = span.ok_or("the second number must be larger than the first")?;
        Ok(Value::Int(from + i64::try_from(s.random() % span).unwrap_or(0)))
    }),
    f("sprig_randAlpha", 1, |s, a| {
        random_text(s, &a[0], b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    }),
    f("sprig_randNumeric", 1, |s, a| random_text(s, &a[0], b"0123456789")),
    f("sprig_randAlphaNum", 1, |s, a| {
        random_text(s, &a[0], b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
    }),
];

fn quoted(args: &[Value], mark: char) -> Answer {
    let quote = |value: &Value| match mark {
        '"' => serde_json::Value::String(shown(value)).to_string(),
        mark => format!("{mark}{}{mark}", shown(value)),
    };
    Ok(text(args.iter().filter(|value| **value != Value::Nil).map(quote).collect::<Vec<_>>().join(" ")))
}

/// Splits a name in any usual case into lower case words.
fn words(name: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() {
            before = ' ';
            continue;
        }
        let begins = before == ' ' || (c.is_uppercase() && !before.is_uppercase());
        match out.last_mut().filter(|_| !begins) {
            Some(word) => word.extend(c.to_lowercase()),
            None => out.push(c.to_lowercase().collect()),
        }
        before = c;
    }
    out
}

/// Returns a list, or a list of one element for any other value.
fn listed(value: &Value) -> Value {
    match value {
        Value::List(_) | Value::Nil => value.clone(),
        other => Value::List(Arc::from([other.clone()])),
    }
}

fn fold(args: &[Value], from: i64, step: fn(i64, i64) -> Option<i64>) -> Answer {
    let mut out = from;
    for arg in args {
        let n = as_int(arg)?;
        out = step(out, n).ok_or("the numbers have no such result")?;
    }
    Ok(Value::Int(out))
}

/// Returns a whole number, or zero for any other value.
#[expect(clippy::cast_possible_truncation, reason = "a conversion that saturates, as wished")]
fn whole(value: &Value) -> Answer {
    Ok(Value::Int(as_int(value).or_else(|_| as_float(value).map(|f| f as i64)).unwrap_or(0)))
}

fn count(value: &Value) -> Result<i64, String> {
    Ok(i64::try_from(as_count(value)?).unwrap_or(i64::MAX))
}

fn until_step(_: &Session, args: &[Value]) -> Answer {
    let (from, to, step) = (as_int(&args[0])?, as_int(&args[1])?, as_int(&args[2])?);
    let more = |at: i64| match step.cmp(&0) {
        Ordering::Greater => at < to,
        Ordering::Less => at > to,
        Ordering::Equal => false,
    };
    let most = usize::try_from(limits::VALUE / 16).unwrap_or(usize::MAX);
    let mut out = Vec::new();
    let mut at = from;
    while more(at) {
        if out.len() >= most {
            return Err("the list is too long".to_owned());
        }
        out.push(Value::Int(at));
        at = at.saturating_add(step);
    }
    Ok(Value::List(out.into()))
}

fn changed(items: &Map, change: impl FnOnce(&mut BTreeMap<Arc<str>, Value>)) -> Value {
    let mut items = (**items).clone();
    change(&mut items);
    Value::Map(Arc::new(items))
}

fn merge(args: &[Value], replace: bool) -> Answer {
    let mut out = as_map(&args[0])?;
    for from in &args[1..] {
        out = lists::merged(&out, &as_map(from)?, replace, 0)?;
    }
    Ok(Value::Map(out))
}

fn square(n: usize) -> u64 {
    let n = u64::try_from(n).unwrap_or(u64::MAX);
    n.saturating_mul(n)
}

/// Returns a random UUID (RFC 9562, version 4).
fn uuid(session: &Session) -> String {
    let (high, low) = (session.random(), session.random());
    let (high, low) = ((high & !0xf000) | 0x4000, (low & !(0b11 << 62)) | (1 << 63));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

fn random_text(session: &Session, length: &Value, letters: &[u8]) -> Answer {
    let length = as_count(length)?.min(4096);
    let count = u64::try_from(letters.len()).unwrap_or(1);
    let letter = || {
        let at = usize::try_from(session.random() % count).unwrap_or(0);
        char::from(letters[at])
    };
    Ok(text((0..length).map(|_| letter()).collect::<String>()))
}
