//! The functions that only the schemas of plugins have, and the names of the shared functions.

use super::{Function, P, f, num};
use crate::value::{SeqKind, Value};

/// The functions of job files that plugins have too.
pub(super) const SHARED: &[&str] = &[
    "abs",
    "coalesce",
    "concat",
    "jsondecode",
    "jsonencode",
    "length",
    "lower",
    "max",
    "min",
    "reverse",
    "strlen",
    "substr",
    "upper",
];

pub(super) const TABLE: &[Function] = &[
    f("hasindex", &[("collection", P::Some), ("key", P::Some)], |_, a| match &a[0] {
        Value::Seq(SeqKind::Tuple | SeqKind::List, _, items) => {
            let index = match &a[1] {
                Value::Num(n) => n.to_i64().and_then(|i| usize::try_from(i).ok()),
                _ => None,
            };
            Ok(Value::Bool(index.is_some_and(|i| i < items.len())))
        }
        Value::Map(_, _, map) => {
            Ok(Value::Bool(matches!(&a[1], Value::Str(key) if map.contains_key(&**key))))
        }
        other => {
            Err(format!("collection must be a list, a map or a tuple, not {}", other.type_name()).into())
        }
    }),
    f("int", &[("num", P::Num)], |_, a| Ok(num(&a[0]).truncate().into())),
];

#[cfg(test)]
mod tests {
    use crate::eval::{Evaluator, Scope};
    use crate::parse::native::parse_expression;
    use crate::source::SourceId;

    fn eval(text: &str) -> Result<String, String> {
        let expr = parse_expression(text, SourceId::default()).unwrap();
        let value = Evaluator::plugins().eval(&expr, &Scope::default());
        value.map(|v| v.to_json().to_string()).map_err(|d| d.summary)
    }

    #[test]
    fn plugins_have_their_own_functions() {
        for (text, want) in [
            ("hasindex([1], 0)", "true"),
            ("hasindex([1], 1)", "false"),
            ("hasindex([1], 0.5)", "false"),
            ("hasindex([1], \"0\")", "false"),
            ("hasindex({ a = 1 }, \"a\")", "true"),
            ("hasindex({ a = 1 }, \"b\")", "false"),
            ("int(1.7)", "1"),
            ("int(-1.7)", "-1"),
            ("upper(\"x${int(2.5)}\")", "\"X2\""),
        ] {
            assert_eq!(eval(text).as_deref(), Ok(want), "{text}");
        }
        assert_eq!(eval("hasindex(1, 0)"), Err("Error in function call".to_owned()));
    }

    #[test]
    fn plugins_lack_the_other_functions() {
        for text in ["try(1)", "file(\"x\")", "split(\",\", \"a\")", "uuidv4()"] {
            assert_eq!(eval(text), Err("Call to unknown function".to_owned()), "{text}");
        }
    }

    #[test]
    fn every_shared_name_is_a_function() {
        for name in super::SHARED {
            assert!(super::super::by_name(name).is_some(), "{name}");
        }
    }
}
