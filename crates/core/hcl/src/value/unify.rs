//! Finds the common type of several types.

use super::Type;
use super::convert::convertible;
use std::collections::{BTreeMap, HashSet};

/// Returns the type that values of all these types convert to; `None` without a common type or without any types.
/// [`Type::Any`] means that the values stay unchanged.
#[must_use]
pub fn unify(types: &[Type]) -> Option<Type> {
    let mut seen = HashSet::new();
    let distinct: Vec<&Type> = types.iter().filter(|t| seen.insert(*t)).collect();
    unify_distinct(&distinct)
}

/// The number of types of each kind.
#[derive(Default)]
struct Kinds {
    any: usize,
    primitive: usize,
    list: usize,
    set: usize,
    map: usize,
    tuple: usize,
    object: usize,
}

fn kinds(types: &[&Type]) -> Kinds {
    let mut out = Kinds::default();
    for t in types {
        *match t {
            Type::Any => &mut out.any,
            Type::Str | Type::Num | Type::Bool => &mut out.primitive,
            Type::List(_) => &mut out.list,
            Type::Set(_) => &mut out.set,
            Type::Map(_) => &mut out.map,
            Type::Tuple(_) => &mut out.tuple,
            Type::Object(_) => &mut out.object,
        } += 1;
    }
    out
}

fn unify_distinct(types: &[&Type]) -> Option<Type> {
    match types {
        [] => return None,
        // Objects and tuples are processed even if there is only one, with the same result.
        [only] => return Some((*only).clone()),
        _ => {}
    }
    let all = types.len();
    let Kinds { any, list, set, map, tuple, object, .. } = kinds(types);
    if any > 0 && any < all && [list, set, map, object, tuple].iter().any(|n| *n > 0 && n + any == all) {
        return Some(Type::Any);
    }
    if [list, set, map].contains(&all) {
        let inner: Vec<Type> = types.iter().filter_map(|t| element(t)).collect();
        let inner = Box::new(unify(&inner)?);
        let out = match types.first()? {
            Type::List(_) => Type::List(inner),
            Type::Set(_) => Type::Set(inner),
            _ => Type::Map(inner),
        };
        return types.iter().all(|t| fits(t, &out)).then_some(out);
    }
    if map > 0 && object > 0 && map + object + any == all {
        let found = replaced(types, |t| matches!(t, Type::Object(_)), objects_to_map);
        if let Some(found @ Type::Map(_)) = found {
            return Some(found);
        }
    } else if list > 0 && tuple > 0 && list + tuple + any == all {
        let found = replaced(types, |t| matches!(t, Type::Tuple(_)), tuples_to_list);
        if let Some(found @ Type::List(_)) = found {
            return Some(found);
        }
    } else if object > 0 && object == all {
        return objects(types);
    } else if tuple > 0 && tuple == all {
        return tuples(types);
    } else if object > 0 && tuple > 0 {
        return None;
    }
    preferred(types).into_iter().find(|general| types.iter().all(|t| fits(t, general))).cloned()
}

fn fits(from: &Type, to: &Type) -> bool {
    from == to || convertible(from, to)
}

fn element(t: &Type) -> Option<Type> {
    match t {
        Type::List(inner) | Type::Set(inner) | Type::Map(inner) => Some((**inner).clone()),
        _ => None,
    }
}

/// Unifies after replacing the types that `which` selects by their combination from `becomes`.
fn replaced(
    types: &[&Type],
    which: fn(&Type) -> bool,
    becomes: fn(&[&Type]) -> Option<Type>,
) -> Option<Type> {
    let some: Vec<&Type> = types.iter().copied().filter(|t| which(t)).collect();
    let one = becomes(&some)?;
    let all: Vec<Type> = types.iter().map(|t| if which(t) { one.clone() } else { (*t).clone() }).collect();
    unify(&all)
}

fn attributes(t: &Type) -> Option<&BTreeMap<String, Type>> {
    match t {
        Type::Object(attributes) => Some(attributes),
        _ => None,
    }
}

fn places(t: &Type) -> &[Type] {
    match t {
        Type::Tuple(places) => places,
        _ => &[],
    }
}

/// Combines objects: to an object if the names are the same, else to a map.
fn objects(types: &[&Type]) -> Option<Type> {
    let all: Vec<&BTreeMap<String, Type>> = types.iter().filter_map(|t| attributes(t)).collect();
    let (first, rest) = all.split_first()?;
    if !rest.iter().all(|other| other.len() == first.len() && other.keys().eq(first.keys())) {
        return objects_to_map(types);
    }
    let mut out = BTreeMap::new();
    for name in first.keys() {
        let across: Vec<Type> = all.iter().filter_map(|a| a.get(name).cloned()).collect();
        out.insert(name.clone(), unify(&across)?);
    }
    let out = Type::Object(out);
    if types.iter().all(|t| fits(t, &out)) { Some(out) } else { objects_to_map(types) }
}

fn objects_to_map(types: &[&Type]) -> Option<Type> {
    let inner: Vec<Type> =
        types.iter().filter_map(|t| attributes(t)).flat_map(|a| a.values().cloned()).collect();
    let out = Type::Map(Box::new(unify(&inner)?));
    types.iter().all(|t| fits(t, &out)).then_some(out)
}

/// Combines tuples: to a tuple if the lengths are the same, else to a list.
fn tuples(types: &[&Type]) -> Option<Type> {
    let length = places(types.first()?).len();
    if types.iter().any(|t| places(t).len() != length) {
        return tuples_to_list(types);
    }
    let mut out = Vec::with_capacity(length);
    for i in 0..length {
        let across: Vec<Type> = types.iter().filter_map(|t| places(t).get(i).cloned()).collect();
        out.push(unify(&across)?);
    }
    let out = Type::Tuple(out);
    if types.iter().all(|t| fits(t, &out)) { Some(out) } else { tuples_to_list(types) }
}

fn tuples_to_list(types: &[&Type]) -> Option<Type> {
    let inner: Vec<Type> = types.iter().flat_map(|t| places(t).iter().cloned()).collect();
    let out = Type::List(Box::new(unify(&inner)?));
    types.iter().all(|t| fits(t, &out)).then_some(out)
}

/// Returns the types sorted so that more general ones come first.
fn preferred<'t>(types: &[&'t Type]) -> Vec<&'t Type> {
    let mut above = vec![0_usize; types.len()];
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); types.len()];
    for i in 0..types.len() {
        for j in i + 1..types.len() {
            match preference(types[i], types[j]) {
                Preference::First => {
                    below[i].push(j);
                    above[j] += 1;
                }
                Preference::Second => {
                    below[j].push(i);
                    above[i] += 1;
                }
                Preference::Neither => {}
            }
        }
    }
    let mut order: Vec<usize> = (0..types.len()).filter(|i| above[*i] == 0).collect();
    let mut at = 0;
    while let Some(i) = order.get(at).copied() {
        at += 1;
        for j in &below[i] {
            above[*j] -= 1;
            if above[*j] == 0 {
                order.push(*j);
            }
        }
    }
    order.into_iter().filter_map(|i| types.get(i).copied()).collect()
}

/// The type that is preferred as the common type of two types.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preference {
    First,
    Second,
    Neither,
}

fn preference(a: &Type, b: &Type) -> Preference {
    use Type as T;
    match (a, b) {
        (T::Any, T::Any) => Preference::Neither,
        (_, T::Any) => Preference::First,
        (T::Any, _) => Preference::Second,
        (T::Str, T::Num | T::Bool) => Preference::First,
        (T::Num | T::Bool, T::Str) => Preference::Second,
        (T::List(x), T::List(y)) | (T::Set(x), T::Set(y)) | (T::Map(x), T::Map(y)) => preference(x, y),
        (T::List(_) | T::Tuple(_), T::Set(_)) | (T::List(_), T::Tuple(_)) | (T::Map(_), T::Object(_)) => {
            Preference::First
        }
        (T::Set(_), T::List(_) | T::Tuple(_)) | (T::Tuple(_), T::List(_)) | (T::Object(_), T::Map(_)) => {
            Preference::Second
        }
        (T::Object(x), T::Object(y)) if x.len() == y.len() && x.keys().eq(y.keys()) => {
            together(x.values().zip(y.values()))
        }
        (T::Tuple(x), T::Tuple(y)) if x.len() == y.len() => together(x.iter().zip(y)),
        _ => Preference::Neither,
    }
}

/// Combines the preferences of all pairs, if they do not contradict each other.
fn together<'t>(pairs: impl Iterator<Item = (&'t Type, &'t Type)>) -> Preference {
    let (mut first, mut second) = (false, false);
    for (x, y) in pairs {
        match preference(x, y) {
            Preference::First => first = true,
            Preference::Second => second = true,
            Preference::Neither => {}
        }
    }
    match (first, second) {
        (true, false) => Preference::First,
        (false, true) => Preference::Second,
        _ => Preference::Neither,
    }
}
