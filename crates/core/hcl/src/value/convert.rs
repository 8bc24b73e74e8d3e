//! Converts values between types.
//!
//! Types alone decide whether a conversion exists: a typed null converts only if any value of its type may convert.

use super::unify::unify;
use super::{MapKind, Number, SeqKind, Type, Value};
use std::collections::BTreeMap;

/// Converts a value, or explains why it cannot (`string required, but have tuple`).
///
/// # Errors
/// The types have no conversion, or this value has none.
pub fn convert(value: Value, to: &Type) -> Result<Value, String> {
    match (to, &value) {
        // Check the most common cases first.
        (Type::Any, _)
        | (Type::Str, Value::Str(_))
        | (Type::Num, Value::Num(_))
        | (Type::Bool, Value::Bool(_)) => return Ok(value),
        _ => {}
    }
    let from = Type::from_value(&value);
    if from == *to {
        return Ok(value);
    }
    if !convertible(&from, to) {
        return Err(mismatch(&from, to));
    }
    apply(value, to)
}

/// Returns whether one type converts to the other.
pub(super) fn convertible(from: &Type, to: &Type) -> bool {
    let inner = |from: &Type, to: &Type| from == to || convertible(from, to);
    match (from, to) {
        (_, Type::Any)
        | (Type::Any, _)
        | (Type::Num | Type::Bool, Type::Str)
        | (Type::Str, Type::Num | Type::Bool) => true,
        (Type::Object(from), Type::Object(to)) => {
            to.iter().all(|(name, to)| from.get(name).is_some_and(|from| inner(from, to)))
        }
        (Type::Tuple(from), Type::Tuple(to)) => {
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| inner(from, to))
        }
        (Type::List(from) | Type::Set(from), Type::List(to) | Type::Set(to))
        | (Type::Map(from), Type::Map(to)) => inner(from, to),
        (Type::Tuple(from), Type::List(to) | Type::Set(to)) => {
            let any = || from.iter().all(|t| *t == Type::Any);
            match common(from, to) {
                Some(Type::Any) => from.is_empty() || any(),
                Some(to) => from.iter().all(|from| inner(from, &to)),
                None => from.is_empty(),
            }
        }
        (Type::Object(from), Type::Map(to)) => {
            let all: Vec<Type> = from.values().cloned().collect();
            match common(&all, to) {
                Some(to) => all.iter().all(|from| inner(from, &to)),
                None => from.is_empty(),
            }
        }
        (Type::Map(from), Type::Object(to)) => to.values().all(|to| inner(from, to)),
        _ => false,
    }
}

/// Returns the type of elements of these types after conversion to `to`.
fn common(from: &[Type], to: &Type) -> Option<Type> {
    if *to == Type::Any { unify(from) } else { Some(to.clone()) }
}

/// Applies a conversion that exists.
fn apply(value: Value, to: &Type) -> Result<Value, String> {
    match (to, value) {
        (Type::Any, v) => Ok(v),
        (to, Value::Null(from)) => Ok(Value::Null(filled(&from, to))),
        (Type::Str, Value::Num(n)) => Ok(Value::str(n.to_string())),
        (Type::Str, Value::Bool(b)) => Ok(Value::str(if b { "true" } else { "false" })),
        (Type::Str, v @ Value::Str(_))
        | (Type::Num, v @ Value::Num(_))
        | (Type::Bool, v @ Value::Bool(_)) => Ok(v),
        (Type::Num, Value::Str(s)) => {
            Number::from_text(&s).map(Value::Num).map_err(|_| "a number is required".to_owned())
        }
        (Type::Bool, Value::Str(s)) => match &*s {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err("a bool is required".to_owned()),
        },
        (Type::List(t), Value::Seq(kind, from, items)) => {
            let (t, items) = elements(items, (kind == SeqKind::Tuple, from), t)?;
            Ok(Value::Seq(SeqKind::List, t, items))
        }
        (Type::Set(t), Value::Seq(kind, from, items)) => {
            let (t, items) = elements(items, (kind == SeqKind::Tuple, from), t)?;
            Ok(Value::set(t, items))
        }
        (Type::Tuple(types), Value::Seq(_, _, items)) => {
            let items =
                items.into_iter().zip(types).map(|(v, t)| inner(v, t)).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::tuple(items))
        }
        (Type::Map(t), Value::Map(kind, from, map)) => {
            let (keys, values): (Vec<_>, Vec<_>) = map.into_iter().unzip();
            let (t, values) = elements(values, (kind == MapKind::Object, from), t)?;
            Ok(Value::Map(MapKind::Map, t, keys.into_iter().zip(values).collect()))
        }
        (Type::Object(types), Value::Map(_, _, mut map)) => {
            let mut out = BTreeMap::new();
            for (name, t) in types {
                let value = map
                    .remove(name)
                    .ok_or_else(|| format!("map has no element for required attribute {name:?}"))?;
                let value = inner(value, t).map_err(|e| format!("attribute {name:?}: {e}"))?;
                out.insert(name.clone(), value);
            }
            Ok(Value::object(out))
        }
        (to, v) => Err(mismatch(&Type::from_value(&v), to)),
    }
}

/// Converts an inner value, unless it has the type already.
fn inner(value: Value, to: &Type) -> Result<Value, String> {
    if Type::from_value(&value) == *to { Ok(value) } else { apply(value, to) }
}

/// Converts elements to the type `desired` and returns them with their type. `mixed` means that their types may
/// differ; `from` is their common type if they have one.
fn elements(
    items: Vec<Value>,
    (mixed, from): (bool, Type),
    desired: &Type,
) -> Result<(Type, Vec<Value>), String> {
    if items.is_empty() {
        return Ok((if mixed || *desired != Type::Any { desired.clone() } else { from }, items));
    }
    let to = if mixed && *desired == Type::Any {
        let types: Vec<Type> = items.iter().map(Type::from_value).collect();
        unify(&types).ok_or_else(|| "all elements must have the same type".to_owned())?
    } else {
        desired.clone()
    };
    let mut items = items
        .into_iter()
        .enumerate()
        .map(|(i, v)| inner(v, &to).map_err(|e| format!("element {i}: {e}")))
        .collect::<Result<Vec<_>, _>>()?;
    if to.is_exact() {
        return Ok((to, items));
    }
    // If the type is open, the elements must still have a common type.
    let types: Vec<Type> = items.iter().map(Type::from_value).collect();
    let t = unify(&types).ok_or_else(|| "cannot find a common base type for all elements".to_owned())?;
    items = items.into_iter().map(|v| inner(v, &t)).collect::<Result<_, _>>()?;
    let mut types = items.iter().map(Type::from_value).filter(|t| *t != Type::Any);
    let first = types.next().unwrap_or(Type::Any);
    if types.all(|t| t == first) {
        Ok((first, items))
    } else {
        Err("element types must all match".to_owned())
    }
}

/// Returns the type `to` with its open parts taken from `from`.
fn filled(from: &Type, to: &Type) -> Type {
    let boxed = |from: &Type, to: &Type| Box::new(filled(from, to));
    let united = |types: &[Type]| unify(types).unwrap_or(Type::Any);
    match (from, to) {
        (Type::Any, to) => to.clone(),
        (from, Type::Any) => from.clone(),
        (Type::Map(from), Type::Map(to)) => Type::Map(boxed(from, to)),
        (Type::Object(from), Type::Map(to)) => {
            let all: Vec<Type> = from.values().cloned().collect();
            Type::Map(boxed(&united(&all), to))
        }
        (Type::List(from) | Type::Set(from), Type::List(to)) => Type::List(boxed(from, to)),
        (Type::List(from) | Type::Set(from), Type::Set(to)) => Type::Set(boxed(from, to)),
        (Type::Tuple(from), Type::List(to)) => Type::List(boxed(&united(from), to)),
        (Type::Tuple(from), Type::Set(to)) => Type::Set(boxed(&united(from), to)),
        (Type::Map(from), Type::Object(to)) => {
            Type::Object(to.iter().map(|(name, to)| (name.clone(), filled(from, to))).collect())
        }
        (Type::Object(from), Type::Object(to)) => Type::Object(
            to.iter()
                .map(|(name, to)| (name.clone(), from.get(name).map_or(to.clone(), |from| filled(from, to))))
                .collect(),
        ),
        (Type::Tuple(from), Type::Tuple(to)) => {
            Type::Tuple(from.iter().zip(to).map(|(from, to)| filled(from, to)).collect())
        }
        (_, to) => to.clone(),
    }
}

/// Explains why a conversion does not exist.
fn mismatch(from: &Type, to: &Type) -> String {
    let inner = |from: &Type, to: &Type| (from != to && !convertible(from, to)).then(|| mismatch(from, to));
    match (from, to) {
        (Type::Object(from), Type::Object(to)) => {
            for (name, to) in to {
                match from.get(name) {
                    None => return format!("attribute {name:?} is required"),
                    Some(from) => {
                        if let Some(why) = inner(from, to) {
                            return format!("attribute {name:?}: {why}");
                        }
                    }
                }
            }
            "incorrect object attributes".to_owned()
        }
        (Type::Tuple(_), Type::List(to)) if **to == Type::Any => {
            "all list elements must have the same type".to_owned()
        }
        (Type::Tuple(_), Type::Set(to)) if **to == Type::Any => {
            "all set elements must have the same type".to_owned()
        }
        (Type::Object(_), Type::Map(to)) if **to == Type::Any => {
            "all map elements must have the same type".to_owned()
        }
        (Type::Tuple(from), Type::List(to) | Type::Set(to)) => {
            let found = from.iter().enumerate().find_map(|(i, from)| Some((i, inner(from, to)?)));
            found.map_or_else(|| format!("{} required", to.name()), |(i, why)| format!("element {i}: {why}"))
        }
        (Type::Object(from), Type::Map(to)) => {
            let found = from.iter().find_map(|(name, from)| Some((name, inner(from, to)?)));
            found.map_or_else(
                || format!("{} required", to.name()),
                |(name, why)| format!("element {name:?}: {why}"),
            )
        }
        (Type::Tuple(from), Type::Tuple(to)) if from.len() != to.len() => {
            format!("tuple of {} elements required, but have {}", to.len(), from.len())
        }
        (from, to) => format!("{} required, but have {}", to.name(), from.name()),
    }
}
