//! Functions for lists, sets and maps.

use super::{Function, P, Result, blame, f, items, num, text, v, whole};
use crate::eval::operators::equal;
use crate::value::{MapKind, Number, SeqKind, Type, Value, convert, unify};
use std::collections::BTreeMap;

const LIST: &[(&str, P)] = &[("list", P::List)];
const STRINGS: &[(&str, P)] = &[("list", P::Strs)];

/// The maximum number of elements of a product of sets.
const MAX_PRODUCT: usize = 100_000;
/// The maximum number of elements of a range, as in Nomad.
const MAX_RANGE: usize = 1024;

pub(super) const TABLE: &[Function] = &[
    f("chunklist", &[("list", P::List), ("size", P::Num)], |_, a| chunklist(a)),
    v("coalesce", &[], ("vals", P::Any), |_, a| coalesce(a)),
    v("coalescelist", &[], ("vals", P::Any), |_, a| coalescelist(a)),
    f("compact", STRINGS, |_, mut a| {
        let mut kept = items(a.remove(0));
        kept.retain(|v| matches!(v, Value::Str(s) if !s.is_empty()));
        Ok(Value::list(Type::Str, kept))
    }),
    v("concat", &[], ("seqs", P::Some), |_, a| concat(a)),
    f("contains", &[("list", P::Some), ("value", P::Some)], |_, mut a| {
        let searched = a.remove(1);
        match a.remove(0) {
            Value::Seq(.., items) => Ok(Value::Bool(items.iter().any(|x| equal(x, &searched)))),
            _ => Err("argument must be list, tuple, or set".into()),
        }
    }),
    f("distinct", LIST, |_, mut a| {
        let Value::Seq(kind, t, all) = a.remove(0) else { return Ok(Value::NULL) };
        let mut out: Vec<Value> = Vec::new();
        for item in all {
            if !out.iter().any(|x| equal(x, &item)) {
                out.push(item);
            }
        }
        Ok(Value::Seq(kind, t, out))
    }),
    f("element", &[("list", P::Some), ("index", P::Num)], |_, a| element(a)),
    f("flatten", &[("list", P::Some)], |_, mut a| match a.remove(0) {
        list @ Value::Seq(..) => {
            let mut out = Vec::new();
            flatten(list, &mut out);
            Ok(Value::tuple(out))
        }
        _ => Err("can only flatten lists, sets and tuples".into()),
    }),
    f("index", &[("collection", P::Some), ("key", P::Some)], |_, a| index(a)),
    f("keys", &[("inputMap", P::Some)], |_, mut a| match a.remove(0) {
        Value::Map(MapKind::Map, _, map) => Ok(Value::strings(map.into_keys())),
        Value::Map(MapKind::Object, _, map) => Ok(Value::tuple(map.into_keys().map(Value::str).collect())),
        _ => Err(blame(0, "must have map or object type")),
    }),
    f("length", &[("collection", P::Some)], |_, mut a| match a.remove(0) {
        Value::Seq(.., items) => Ok(Value::Num(Number::from(items.len()))),
        Value::Map(MapKind::Map, _, map) => Ok(Value::Num(Number::from(map.len()))),
        other => {
            Err(format!("collection must be a list, a map or a tuple, not {}", other.type_name()).into())
        }
    }),
    f("lookup", &[("inputMap", P::Some), ("key", P::Str), ("default", P::Some)], |_, a| lookup(a)),
    v("merge", &[], ("maps", P::Any), |_, a| merge(a)),
    v("range", &[], ("params", P::Num), |_, a| range(&a)),
    v("setintersection", &[("first_set", P::Set)], ("other_sets", P::Set), |_, a| {
        set_of(a, |all, x| all.iter().all(|s| s.iter().any(|y| equal(x, y))))
    }),
    v("setunion", &[("first_set", P::Set)], ("other_sets", P::Set), |_, a| set_of(a, |_, _| true)),
    v("setproduct", &[], ("sets", P::Some), |_, a| setproduct(a)),
    f("slice", &[("list", P::Some), ("start_index", P::Num), ("end_index", P::Num)], |_, a| slice(a)),
    f("sort", STRINGS, |_, mut a| {
        let all = items(a.remove(0));
        if let Some(at) = all.iter().position(Value::is_null) {
            return Err(format!("list element {at} is null; a null string cannot be sorted").into());
        }
        let mut all: Vec<String> = all.iter().map(text).collect();
        all.sort();
        Ok(Value::strings(all))
    }),
    f("values", &[("mapping", P::Some)], |_, mut a| match a.remove(0) {
        Value::Map(MapKind::Map, t, map) => Ok(Value::list(t, map.into_values().collect())),
        Value::Map(MapKind::Object, _, map) => Ok(Value::tuple(map.into_values().collect())),
        _ => Err("values() requires a map as the first argument".into()),
    }),
    f("zipmap", &[("keys", P::Strs), ("values", P::Some)], |_, a| zipmap(a)),
];

fn chunklist(mut a: Vec<Value>) -> Result<Value> {
    let size = usize::try_from(whole(&a[1])?).map_err(|_| "the size argument must be positive".to_owned())?;
    let list = a.remove(0);
    let outer = Type::from_value(&list);
    let Value::Seq(_, t, all) = list else { return Ok(Value::NULL) };
    let size = if size == 0 { all.len().max(1) } else { size };
    let chunks = all.chunks(size).map(|c| Value::list(t.clone(), c.to_vec())).collect();
    Ok(Value::list(outer, chunks))
}

fn coalesce(a: Vec<Value>) -> Result<Value> {
    let types: Vec<Type> = a.iter().map(Type::from_value).collect();
    let t = unify(&types).ok_or_else(|| "all arguments must have the same type".to_owned())?;
    match a.into_iter().find(|v| !v.is_null()) {
        Some(value) => Ok(convert(value, &t)?),
        None => Err("no non-null arguments".into()),
    }
}

fn coalescelist(a: Vec<Value>) -> Result<Value> {
    if a.is_empty() {
        return Err("at least one argument is required".into());
    }
    if a.iter().any(|v| !matches!(Type::from_value(v), Type::List(_) | Type::Tuple(_))) {
        return Err("coalescelist arguments must be lists or tuples".into());
    }
    a.into_iter()
        .find(|v| matches!(v, Value::Seq(.., items) if !items.is_empty()))
        .ok_or_else(|| "no non-null arguments".into())
}

/// Concatenates sequences: to a list if all are lists with a common type, else to a tuple.
fn concat(a: Vec<Value>) -> Result<Value> {
    let Some(first) = a.first() else { return Err("at least one argument is required".into()) };
    let types: Vec<Type> = a.iter().map(Type::from_value).collect();
    if matches!(first, Value::Seq(SeqKind::List, ..))
        && types.iter().all(|t| matches!(t, Type::List(_)))
        && let Some(Type::List(t)) = unify(&types)
    {
        let desired = Type::List(t.clone());
        let mut all = Vec::new();
        for (i, list) in a.into_iter().enumerate() {
            all.extend(items(convert(list, &desired).map_err(|e| blame(i, e))?));
        }
        return Ok(Value::list(*t, all));
    }
    let mut all = Vec::new();
    for (i, value) in a.into_iter().enumerate() {
        match value {
            Value::Seq(SeqKind::Tuple | SeqKind::List, _, items) => all.extend(items),
            other => {
                let found = other.type_name();
                return Err(blame(i, format!("all arguments must be lists or tuples; got {found}")));
            }
        }
    }
    Ok(Value::tuple(all))
}

fn element(mut a: Vec<Value>) -> Result<Value> {
    let index = a.remove(1);
    match a.remove(0) {
        Value::Seq(SeqKind::Tuple | SeqKind::List, _, mut all) => {
            let index = whole(&index).map_err(|e| format!("invalid index: {}", e.text))?;
            let length = i64::try_from(all.len()).unwrap_or(i64::MAX);
            if length == 0 {
                return Err("cannot use element function with an empty list".into());
            }
            let at = usize::try_from(index.rem_euclid(length)).map_err(|e| e.to_string())?;
            Ok(all.swap_remove(at))
        }
        other => Err(format!("cannot read elements from {}", other.type_name()).into()),
    }
}

fn flatten(value: Value, out: &mut Vec<Value>) {
    match value {
        Value::Seq(.., items) => items.into_iter().for_each(|v| flatten(v, out)),
        other => out.push(other),
    }
}

/// Returns the element at a key or index. In other languages, `index` is the reverse: it returns the index of an
/// element.
fn index(mut a: Vec<Value>) -> Result<Value> {
    let key = a.remove(1);
    match (a.remove(0), &key) {
        (Value::Seq(SeqKind::Tuple | SeqKind::List, _, mut all), Value::Num(n)) => {
            match n.to_i64().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < all.len()) {
                Some(i) => Ok(all.swap_remove(i)),
                None => Err(format!("there is no element {n}: the list has {}", all.len()).into()),
            }
        }
        (Value::Seq(SeqKind::Tuple | SeqKind::List, ..), _) => Err("key for list must be number".into()),
        (Value::Map(MapKind::Map, _, mut map), Value::Str(key)) => {
            map.remove(&**key).ok_or_else(|| format!("there is no element {key:?}").into())
        }
        (Value::Map(MapKind::Map, ..), _) => Err("key for map must be string".into()),
        (other, _) => {
            Err(format!("collection must be a list, a map or a tuple, not {}", other.type_name()).into())
        }
    }
}

fn lookup(mut a: Vec<Value>) -> Result<Value> {
    let default = a.remove(2);
    let key = text(&a[1]);
    match a.remove(0) {
        Value::Map(MapKind::Object, _, mut map) => Ok(map.remove(&key).unwrap_or(default)),
        Value::Map(MapKind::Map, t, mut map) => {
            let default = convert(default, &t)
                .map_err(|_| blame(2, "the default value must have the same type as the map elements"))?;
            Ok(map.remove(&key).unwrap_or(default))
        }
        _ => Err(blame(0, "lookup() requires a map as the first argument")),
    }
}

/// Merges maps: to a map if all have one type, else to an object.
fn merge(a: Vec<Value>) -> Result<Value> {
    let types: Vec<Type> = a.iter().map(Type::from_value).collect();
    // After an untyped null, types are no longer checked, and the result is an object.
    let mut open = false;
    for t in &types {
        match t {
            Type::Any => {
                open = true;
                break;
            }
            Type::Map(_) | Type::Object(_) => {}
            other => return Err(format!("arguments must be maps or objects, got {:?}", other.name()).into()),
        }
    }
    let mut out = BTreeMap::new();
    for value in a {
        match value {
            Value::Null(_) => {}
            Value::Map(.., map) => out.extend(map),
            other => {
                return Err(format!("arguments must be maps or objects, got {:?}", other.type_name()).into());
            }
        }
    }
    match types.first() {
        Some(Type::Map(t)) if !open && types.iter().all(|other| Some(other) == types.first()) => {
            Ok(Value::map((**t).clone(), out))
        }
        _ => Ok(Value::object(out)),
    }
}

fn range(a: &[Value]) -> Result<Value> {
    let n: Vec<Number> = a.iter().map(num).collect();
    let (start, end, step) = match n.as_slice() {
        [end] => (Number::ZERO, end.clone(), None),
        [start, end] => (start.clone(), end.clone(), None),
        [start, end, step] => (start.clone(), end.clone(), Some(step.clone())),
        _ => return Err("must have one, two, or three arguments".into()),
    };
    let down = if end < start { Number::ONE.negate() } else { Number::ONE };
    let step = step.unwrap_or(down);
    let down = step.is_negative();
    if down && end > start {
        return Err(blame(1, "end must be less than start when step is negative"));
    }
    if !down && end < start {
        return Err(blame(1, "end must be greater than start when step is positive"));
    }
    let mut out = Vec::new();
    let mut at = start;
    while if down { at > end } else { at < end } {
        if out.len() >= MAX_RANGE || step.is_zero() {
            return Err(format!("more than {MAX_RANGE} values were generated; either decrease the difference between start and end or use a step that is not so small").into());
        }
        out.push(Value::Num(at.clone()));
        at = at.plus(&step).ok_or("the numbers are out of range")?;
    }
    Ok(Value::list(Type::Num, out))
}

fn set_of(a: Vec<Value>, keep: fn(&[Vec<Value>], &Value) -> bool) -> Result<Value> {
    // Convert the elements of all sets to a common type before comparing them.
    let types: Vec<Type> = a
        .iter()
        .filter_map(|set| match set {
            Value::Seq(_, t, items) if !items.is_empty() || *t != Type::Any => Some(t.clone()),
            _ => None,
        })
        .collect();
    let t = match types.is_empty() {
        true => Type::Any,
        false => {
            unify(&types).ok_or_else(|| "given sets must all have compatible element types".to_owned())?
        }
    };
    let desired = Type::Set(Box::new(t.clone()));
    let all: Vec<Vec<Value>> = a
        .into_iter()
        .enumerate()
        .map(|(i, set)| convert(set, &desired).map(items).map_err(|e| blame(i, e)))
        .collect::<Result<_>>()?;
    let kept: Vec<Value> = all.iter().flatten().filter(|x| keep(&all, x)).cloned().collect();
    Ok(Value::set(t, kept))
}

fn setproduct(a: Vec<Value>) -> Result<Value> {
    if a.len() < 2 {
        return Err("at least two arguments are required".into());
    }
    let ordered = a.iter().all(|v| !matches!(v, Value::Seq(SeqKind::Set, ..)));
    let mut types = Vec::with_capacity(a.len());
    for (i, value) in a.iter().enumerate() {
        types.push(match value {
            Value::Seq(SeqKind::Tuple, _, all) if all.is_empty() => Type::Any,
            Value::Seq(SeqKind::Tuple, _, all) => {
                let all: Vec<Type> = all.iter().map(Type::from_value).collect();
                unify(&all).ok_or_else(|| blame(i, "all elements must be of the same type"))?
            }
            Value::Seq(_, t, _) => t.clone(),
            _ => return Err(blame(i, "a set or a list is required")),
        });
    }
    let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
    for (set, t) in a.into_iter().zip(&types) {
        let set =
            items(set).into_iter().map(|v| convert(v, t)).collect::<std::result::Result<Vec<_>, _>>()?;
        if rows.len().saturating_mul(set.len()) > MAX_PRODUCT {
            return Err(format!("the product has more than {MAX_PRODUCT} elements").into());
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
    let t = rows.first().map_or(Type::Tuple(types), Type::from_value);
    Ok(if ordered { Value::list(t, rows) } else { Value::set(t, rows) })
}

fn slice(mut a: Vec<Value>) -> Result<Value> {
    let length = match &a[0] {
        Value::Seq(SeqKind::Tuple | SeqKind::List, _, all) => all.len(),
        Value::Seq(SeqKind::Set, ..) => {
            return Err(blame(0, "cannot slice a set, because its elements do not have indices"));
        }
        _ => return Err(blame(0, "must be a list or tuple value")),
    };
    let place = |i: usize, what: &str| {
        let n = whole(&a[i]).map_err(|e| blame(i, format!("invalid {what} index: {}", e.text)))?;
        let n =
            usize::try_from(n).map_err(|_| blame(i, format!("{what} index must not be less than zero")))?;
        let beyond = || blame(i, format!("{what} index must not be greater than the length of the list"));
        (n <= length).then_some(n).ok_or_else(beyond)
    };
    let (start, end) = (place(1, "start")?, place(2, "end")?);
    if start > end {
        return Err(blame(1, "start index must not be greater than end index"));
    }
    let Value::Seq(kind, t, all) = a.remove(0) else { return Ok(Value::NULL) };
    Ok(Value::Seq(kind, t, all[start..end].to_vec()))
}

fn zipmap(mut a: Vec<Value>) -> Result<Value> {
    let values = a.remove(1);
    let keys = items(a.remove(0));
    let (kind, t, values) = match values {
        Value::Seq(kind @ (SeqKind::Tuple | SeqKind::List), t, values) => (kind, t, values),
        _ => return Err("values argument must be a list or tuple value".into()),
    };
    if keys.len() != values.len() {
        let (keys, values) = (keys.len(), values.len());
        return Err(format!("number of keys ({keys}) does not match number of values ({values})").into());
    }
    if let Some(at) = keys.iter().position(Value::is_null) {
        return Err(format!("keys list has null value at index {at}").into());
    }
    let map = keys.iter().map(text).zip(values).collect();
    Ok(if kind == SeqKind::List { Value::map(t, map) } else { Value::object(map) })
}
