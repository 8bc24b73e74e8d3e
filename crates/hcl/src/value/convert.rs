//! Converting values and finding a type that several values can be converted to.

use std::collections::BTreeMap;

use super::{MapKind, SeqKind, Type, Value};

/// Converts a value, or says why not (`string required, but have tuple`).
///
/// # Errors
/// There is no conversion between the types, or this value has none.
pub fn convert(value: Value, to: &Type) -> Result<Value, String> {
    match (to, value) {
        (Type::Any, v) | (_, v @ Value::Null) => Ok(v),
        (Type::Str, Value::Num(n)) => Ok(Value::str(n.to_string())),
        (Type::Str, Value::Bool(b)) => Ok(Value::str(if b { "true" } else { "false" })),
        (Type::Str, v @ Value::Str(_))
        | (Type::Num, v @ Value::Num(_))
        | (Type::Bool, v @ Value::Bool(_)) => Ok(v),
        (Type::Num, Value::Str(s)) => {
            s.trim().parse().map(Value::Num).map_err(|_| "a number is required".to_owned())
        }
        (Type::Bool, Value::Str(s)) => match &*s {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err("a bool is required".to_owned()),
        },
        (Type::List(t), Value::Seq(_, _, items)) => {
            let (t, items) = elements(items, t)?;
            Ok(Value::Seq(SeqKind::List, t, items))
        }
        (Type::Set(t), Value::Seq(_, _, items)) => {
            let (t, items) = elements(items, t)?;
            Ok(Value::set(t, items))
        }
        (Type::Tuple(types), Value::Seq(kind, _, items)) if kind != SeqKind::Set => {
            if items.len() != types.len() {
                return Err(format!("tuple of {} elements required, but have {}", types.len(), items.len()));
            }
            let items =
                items.into_iter().zip(types).map(|(v, t)| convert(v, t)).collect::<Result<Vec<_>, _>>()?;
            Ok(Value::tuple(items))
        }
        (Type::Map(t), Value::Map(_, _, map)) => {
            let (keys, values): (Vec<_>, Vec<_>) = map.into_iter().unzip();
            let (t, values) = elements(values, t)?;
            Ok(Value::Map(MapKind::Map, t, keys.into_iter().zip(values).collect()))
        }
        (Type::Object(types), Value::Map(_, _, mut map)) => {
            let mut out = BTreeMap::new();
            for (name, t) in types {
                let value = map.remove(name).ok_or_else(|| format!("attribute {name:?} is required"))?;
                let value = convert(value, t).map_err(|e| format!("attribute {name:?}: {e}"))?;
                out.insert(name.clone(), value);
            }
            Ok(Value::object(out))
        }
        (to, v) => Err(format!("{} required, but have {}", to.name(), v.type_name())),
    }
}

fn elements(items: Vec<Value>, wanted: &Type) -> Result<(Type, Vec<Value>), String> {
    let t = match wanted {
        Type::Any => {
            let types: Vec<Type> = items.iter().map(Type::of).collect();
            unify(&types).ok_or_else(|| "all elements must have the same type".to_owned())?
        }
        t => t.clone(),
    };
    let items = items
        .into_iter()
        .enumerate()
        .map(|(i, v)| convert(v, &t).map_err(|e| format!("element {i}: {e}")))
        .collect::<Result<_, _>>()?;
    Ok((t, items))
}

/// The type that values of all these types can be converted to.
#[must_use]
pub fn unify(types: &[Type]) -> Option<Type> {
    let mut out = Type::Any;
    for t in types {
        out = unify_two(out, t.clone())?;
    }
    Some(out)
}

fn unify_two(a: Type, b: Type) -> Option<Type> {
    use Type as T;
    if a == b {
        return Some(a);
    }
    match (a, b) {
        (T::Any, t) | (t, T::Any) => Some(t),
        (T::Str, T::Num | T::Bool) | (T::Num | T::Bool, T::Str) => Some(T::Str),
        (T::List(x), T::List(y)) => Some(T::List(Box::new(unify_two(*x, *y)?))),
        (T::Set(x), T::Set(y)) => Some(T::Set(Box::new(unify_two(*x, *y)?))),
        (T::Map(x), T::Map(y)) => Some(T::Map(Box::new(unify_two(*x, *y)?))),
        (T::Tuple(x), T::Tuple(y)) if x.len() == y.len() => {
            x.into_iter().zip(y).map(|(p, q)| unify_two(p, q)).collect::<Option<_>>().map(T::Tuple)
        }
        (T::Tuple(x), T::Tuple(y)) => {
            let all: Vec<Type> = x.into_iter().chain(y).collect();
            unify(&all).map(|t| T::List(Box::new(t)))
        }
        (T::Tuple(x), T::List(t)) | (T::List(t), T::Tuple(x)) => {
            unify_two(*t, unify(&x)?).map(|t| T::List(Box::new(t)))
        }
        (T::Tuple(x), T::Set(t)) | (T::Set(t), T::Tuple(x)) => {
            unify_two(*t, unify(&x)?).map(|t| T::Set(Box::new(t)))
        }
        (T::List(x), T::Set(y)) | (T::Set(y), T::List(x)) => unify_two(*x, *y).map(|t| T::List(Box::new(t))),
        (T::Object(x), T::Object(y)) => {
            if x.len() == y.len() && x.keys().eq(y.keys()) {
                let attributes: Option<BTreeMap<_, _>> = x
                    .into_iter()
                    .zip(y.into_values())
                    .map(|((k, p), q)| unify_two(p, q).map(|t| (k, t)))
                    .collect();
                return attributes.map(T::Object);
            }
            let all: Vec<Type> = x.into_values().chain(y.into_values()).collect();
            unify(&all).map(|t| T::Map(Box::new(t)))
        }
        (T::Object(x), T::Map(t)) | (T::Map(t), T::Object(x)) => {
            let all: Vec<Type> = x.into_values().collect();
            unify_two(*t, unify(&all)?).map(|t| T::Map(Box::new(t)))
        }
        _ => None,
    }
}
