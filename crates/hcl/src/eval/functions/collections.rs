//! Lists, sets, maps.

use std::collections::BTreeMap;

use super::{Function, P, Result, f, items, num, string_items, text, v, whole};
use crate::eval::operators::equal;
use crate::value::{MapKind, Number, SeqKind, Type, Value, convert, unify};

const LIST: &[(&str, P)] = &[("list", P::List)];
const STRINGS: &[(&str, P)] = &[("list", P::Strs)];

pub(super) const TABLE: &[Function] = &[
    f("chunklist", &[("list", P::List), ("size", P::Num)], |_, a| chunklist(a)),
    v("coalesce", &[], ("vals", P::Any), |_, a| coalesce(a)),
    v("coalescelist", &[], ("vals", P::Seq), |_, a| coalescelist(a)),
    f("compact", STRINGS, |_, mut a| {
        let kept = items(a.remove(0)).into_iter().filter(|v| *v != Value::Null).collect();
        Ok(Value::strings(string_items(Value::tuple(kept))?.into_iter().filter(|s| !s.is_empty())))
    }),
    v("concat", &[], ("seqs", P::Seq), |_, a| concat(a)),
    f("contains", &[("list", P::Seq), ("value", P::Any)], |_, mut a| {
        let wanted = a.remove(1);
        Ok(Value::Bool(items(a.remove(0)).iter().any(|x| equal(x, &wanted))))
    }),
    f("distinct", LIST, |_, mut a| {
        let mut out: Vec<Value> = Vec::new();
        for item in items(a.remove(0)) {
            if !out.iter().any(|x| equal(x, &item)) {
                out.push(item);
            }
        }
        listed(out)
    }),
    f("element", &[("list", P::Seq), ("index", P::Num)], |_, a| element(a)),
    f("flatten", &[("list", P::Seq)], |_, mut a| {
        let mut out = Vec::new();
        flatten(a.remove(0), &mut out);
        Ok(Value::tuple(out))
    }),
    f("index", &[("collection", P::Some), ("key", P::Some)], |_, a| index(a)),
    f("keys", &[("inputMap", P::Map)], |_, mut a| match a.remove(0) {
        Value::Map(.., map) => Ok(Value::strings(map.into_keys())),
        _ => Ok(Value::Null),
    }),
    f("length", &[("value", P::Some)], |_, mut a| match a.remove(0) {
        Value::Seq(.., items) => Ok(Value::Num(Number::from(items.len()))),
        Value::Map(.., map) => Ok(Value::Num(Number::from(map.len()))),
        other => Err(format!("argument must be a collection, but is {}", other.type_name())),
    }),
    f("lookup", &[("inputMap", P::Map), ("key", P::Str), ("default", P::Any)], |_, mut a| {
        let default = a.remove(2);
        let key = text(&a[1]);
        match a.remove(0) {
            Value::Map(.., mut map) => Ok(map.remove(&key).unwrap_or(default)),
            _ => Ok(default),
        }
    }),
    v("merge", &[], ("maps", P::Any), |_, a| merge(a)),
    v("range", &[], ("params", P::Num), |_, a| range(&a)),
    v("setintersection", &[("first_set", P::Set)], ("other_sets", P::Set), |_, a| {
        set_of(a, |all, x| all.iter().all(|s| s.iter().any(|y| equal(x, y))))
    }),
    v("setunion", &[("first_set", P::Set)], ("other_sets", P::Set), |_, a| set_of(a, |_, _| true)),
    v("setproduct", &[], ("sets", P::Seq), |_, a| setproduct(a)),
    f("slice", &[("list", P::Seq), ("start_index", P::Num), ("end_index", P::Num)], |_, a| slice(a)),
    f("sort", STRINGS, |_, mut a| {
        let mut all = string_items(a.remove(0))?;
        all.sort();
        Ok(Value::strings(all))
    }),
    f("values", &[("mapping", P::Map)], |_, mut a| match a.remove(0) {
        Value::Map(MapKind::Map, t, map) => Ok(Value::list(t, map.into_values().collect())),
        Value::Map(.., map) => Ok(Value::tuple(map.into_values().collect())),
        _ => Ok(Value::Null),
    }),
    f("zipmap", &[("keys", P::Seq), ("values", P::Seq)], |_, mut a| {
        let values = items(a.remove(1));
        let keys = string_items(a.remove(0))?;
        if keys.len() != values.len() {
            return Err(format!(
                "number of keys ({}) does not match number of values ({})",
                keys.len(),
                values.len()
            ));
        }
        Ok(Value::object(keys.into_iter().zip(values).collect()))
    }),
];

/// A list where the elements have a type in common, else a tuple.
fn listed(all: Vec<Value>) -> Result<Value> {
    let types: Vec<Type> = all.iter().map(Type::of).collect();
    match unify(&types) {
        Some(t) => {
            Ok(Value::list(t.clone(), all.into_iter().map(|v| convert(v, &t)).collect::<Result<_>>()?))
        }
        None => Ok(Value::tuple(all)),
    }
}

fn chunklist(mut a: Vec<Value>) -> Result<Value> {
    let size = usize::try_from(whole(&a[1])?).map_err(|_| "the size argument must be positive".to_owned())?;
    let all = items(a.remove(0));
    if size == 0 {
        return Ok(Value::tuple(if all.is_empty() { vec![] } else { vec![Value::tuple(all)] }));
    }
    Ok(Value::tuple(all.chunks(size).map(|c| Value::tuple(c.to_vec())).collect()))
}

fn coalesce(a: Vec<Value>) -> Result<Value> {
    let types: Vec<Type> = a.iter().map(Type::of).collect();
    let t = unify(&types).ok_or_else(|| "all arguments must have the same type".to_owned())?;
    match a.into_iter().find(|v| *v != Value::Null) {
        Some(value) => convert(value, &t),
        None => Err("no non-null arguments".to_owned()),
    }
}

fn coalescelist(a: Vec<Value>) -> Result<Value> {
    a.into_iter()
        .find(|v| matches!(v, Value::Seq(.., items) if !items.is_empty()))
        .ok_or_else(|| "no non-null arguments".to_owned())
}

fn concat(a: Vec<Value>) -> Result<Value> {
    if a.is_empty() {
        return Err("at least one argument is required".to_owned());
    }
    Ok(Value::tuple(a.into_iter().flat_map(items).collect()))
}

fn element(mut a: Vec<Value>) -> Result<Value> {
    let index = whole(&a[1])?;
    let mut all = items(a.remove(0));
    let length = i64::try_from(all.len()).unwrap_or(i64::MAX);
    if length == 0 {
        return Err("cannot use element function with an empty list".to_owned());
    }
    let at = usize::try_from(index.rem_euclid(length)).map_err(|e| e.to_string())?;
    Ok(all.swap_remove(at))
}

fn flatten(value: Value, out: &mut Vec<Value>) {
    match value {
        Value::Seq(.., items) => items.into_iter().for_each(|v| flatten(v, out)),
        other => out.push(other),
    }
}

/// The element at a key or index: in this language `index` is the reverse of what its name says elsewhere.
fn index(mut a: Vec<Value>) -> Result<Value> {
    let key = a.remove(1);
    match a.remove(0) {
        Value::Seq(.., mut all) => {
            let Ok(Value::Num(n)) = convert(key, &Type::Num) else {
                return Err("key must be number".to_owned());
            };
            match n.to_i64().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < all.len()) {
                Some(i) => Ok(all.swap_remove(i)),
                None => Err("no element with the given index".to_owned()),
            }
        }
        Value::Map(.., mut map) => {
            map.remove(&text(&key)).ok_or_else(|| "no element with the given key".to_owned())
        }
        other => Err(format!("this value does not have any indices: it is a {}", other.type_name())),
    }
}

fn merge(a: Vec<Value>) -> Result<Value> {
    let mut out = BTreeMap::new();
    for value in a {
        match value {
            Value::Null => {}
            Value::Map(.., map) => out.extend(map),
            other => return Err(format!("arguments must be maps or objects, got {:?}", other.type_name())),
        }
    }
    Ok(Value::object(out))
}

fn range(a: &[Value]) -> Result<Value> {
    let n: Vec<Number> = a.iter().map(num).collect();
    let (start, end, step) = match n.as_slice() {
        [end] => (Number::ZERO, end.clone(), Number::ONE),
        [start, end] => (start.clone(), end.clone(), Number::ONE),
        [start, end, step] => (start.clone(), end.clone(), step.clone()),
        _ => return Err("must have one, two, or three arguments".to_owned()),
    };
    let step = if a.len() < 3 && end < start { Number::ONE.negate() } else { step };
    if step.is_zero() {
        return Err("step must not be zero".to_owned());
    }
    if end > start && step.is_negative() || end < start && !step.is_negative() {
        return Err("end must be reachable from start by the step".to_owned());
    }
    let mut out = Vec::new();
    let mut at = start;
    while if step.is_negative() { at > end } else { at < end } {
        if out.len() >= 1024 {
            return Err("more than 1024 values were generated; either decrease the difference between start and end or use a smaller step".to_owned());
        }
        out.push(Value::Num(at.clone()));
        at = at.plus(&step).ok_or("the numbers are out of range")?;
    }
    Ok(Value::list(Type::Num, out))
}

fn set_of(a: Vec<Value>, keep: fn(&[Vec<Value>], &Value) -> bool) -> Result<Value> {
    // Elements of all sets get the type that they have in common before they are compared.
    let types: Vec<Type> = a
        .iter()
        .filter_map(|set| match set {
            Value::Seq(_, t, items) if !items.is_empty() => Some(t.clone()),
            _ => None,
        })
        .collect();
    let t = unify(&types).ok_or_else(|| "given sets must all have compatible element types".to_owned())?;
    let all: Vec<Vec<Value>> = a
        .into_iter()
        .map(|set| items(set).into_iter().map(|v| convert(v, &t)).collect::<Result<Vec<_>>>())
        .collect::<Result<_>>()?;
    let kept: Vec<Value> = all.iter().flatten().filter(|x| keep(&all, x)).cloned().collect();
    Ok(Value::set(t, kept))
}

fn setproduct(a: Vec<Value>) -> Result<Value> {
    if a.len() < 2 {
        return Err("at least two arguments are required".to_owned());
    }
    let ordered = a.iter().all(|v| !matches!(v, Value::Seq(SeqKind::Set, ..)));
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for set in a {
        let set = items(set);
        if rows.len().saturating_mul(set.len()) > 100_000 {
            return Err("the product has more than 100000 elements".to_owned());
        }
        rows = rows
            .into_iter()
            .flat_map(|row| {
                set.iter().map(move |v| {
                    let mut next = row.clone();
                    next.push(v.clone());
                    next
                })
            })
            .collect();
    }
    let rows: Vec<Value> = rows.into_iter().map(Value::tuple).collect();
    Ok(if ordered { Value::tuple(rows) } else { Value::set(Type::Any, rows) })
}

fn slice(mut a: Vec<Value>) -> Result<Value> {
    let (start, end) = (whole(&a[1])?, whole(&a[2])?);
    let all = items(a.remove(0));
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err("start and end index must not be negative".to_owned());
    };
    if start > end {
        return Err("start index must not be greater than end index".to_owned());
    }
    all.get(start..end)
        .map(|s| Value::tuple(s.to_vec()))
        .ok_or_else(|| "end index must not be greater than the length of the given list".to_owned())
}
