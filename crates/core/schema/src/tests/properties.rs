//! Properties of any schema and any configuration.

use crate::{RawSpec, Spec, Value, decode};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::collections::BTreeMap;

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned)
}

fn ty() -> impl Strategy<Value = String> {
    let types = vec![
        "string",
        "number",
        "bool",
        "any",
        "list(string)",
        "list(any)",
        "list(map(string))",
        "set(number)",
        "map(any)",
        "tuple([string, any])",
        "object({a = number})",
    ];
    prop::sample::select(types).prop_map(str::to_owned)
}

/// Generates valid schemas.
fn raw() -> impl Strategy<Value = RawSpec> {
    let literal = prop::sample::select(vec!["1", "null", "\"x\"", "[1, 2]", "{ a = true }"]);
    let leaf = prop_oneof![
        (name(), ty(), any::<bool>()).prop_map(|(name, ty, required)| RawSpec::Attr { name, ty, required }),
        (name(), ty(), any::<bool>()).prop_map(|(name, ty, required)| RawSpec::BlockAttrs {
            name,
            ty,
            required
        }),
        literal.prop_map(|text| RawSpec::Literal(text.to_owned())),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let boxed = inner.clone().prop_map(Box::new).boxed();
        let labels = prop::collection::vec("[a-z]{1,3}", 1..3);
        prop_oneof![
            3 => prop::collection::btree_map(name(), inner.clone(), 0..4).prop_map(RawSpec::Object),
            1 => prop::collection::vec(inner, 0..3).prop_map(RawSpec::Array),
            1 => (name(), any::<bool>(), boxed.clone())
                .prop_map(|(name, required, nested)| RawSpec::Block { name, required, nested }),
            1 => (name(), 0..3_u64, 0..3_u64, boxed.clone())
                .prop_map(|(name, min, max, nested)| RawSpec::BlockList { name, min, max, nested }),
            1 => (name(), 0..3_u64, 0..3_u64, boxed.clone())
                .prop_map(|(name, min, max, nested)| RawSpec::BlockSet { name, min, max, nested }),
            1 => (name(), labels, boxed.clone())
                .prop_map(|(name, labels, nested)| RawSpec::BlockMap { name, labels, nested }),
            1 => (boxed.clone(), boxed)
                .prop_map(|(primary, default)| RawSpec::Default { primary, default }),
        ]
    })
}

fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "[0-9a-z${}.]{0,6}".prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 48, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
            prop::collection::vec((name(), inner), 0..4)
                .prop_map(|all| Json::Object(all.into_iter().collect())),
        ]
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<f64>().prop_filter("not NaN", |f| !f.is_nan()).prop_map(Value::Float),
        ".{0,40}".prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::List),
            prop::collection::btree_map(".{0,5}", inner, 0..20).prop_map(Value::Map),
        ]
    })
}

/// Returns the keys that a schema gives its result, if it is an object.
fn keys(raw: &RawSpec) -> Option<Vec<&String>> {
    match raw {
        RawSpec::Object(parts) => Some(parts.keys().collect()),
        _ => None,
    }
}

proptest! {
    #[test]
    fn any_configuration_decodes_or_has_problems(raw in raw(), config in json()) {
        let spec = Spec::new(&raw).unwrap();
        match decode(&spec, &config) {
            Ok(value) => {
                if let Some(keys) = keys(&raw) {
                    let Value::Map(map) = &value else { panic!("{value:?} is no map") };
                    prop_assert_eq!(map.keys().collect::<Vec<_>>(), keys);
                }
            }
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
            }
        }
    }

    #[test]
    fn any_texts_are_a_schema_or_an_error(name in ".{0,3}", ty in ".{0,30}", literal in ".{0,30}") {
        let attr = RawSpec::Attr { name, ty, required: true };
        let parts = BTreeMap::from([
            (String::new(), attr.clone()),
            ("k".to_owned(), RawSpec::Default {
                primary: Box::new(attr),
                default: Box::new(RawSpec::Literal(literal)),
            }),
        ]);
        if let Err(error) = Spec::new(&RawSpec::Object(parts)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn message_pack_reads_back(value in value()) {
        let bytes = value.to_msgpack();
        let mut rest = bytes.as_slice();
        let read: Json = rmp_serde::from_read(&mut rest).unwrap();
        prop_assert_eq!(read, value.to_json());
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn values_of_type_any_stay_as_they_are(json in json()) {
        let attr = RawSpec::Attr { name: "x".to_owned(), ty: "any".to_owned(), required: false };
        let config = Json::Object([("x".to_owned(), json.clone())].into_iter().collect());
        let value = decode(&Spec::new(&attr).unwrap(), &config).unwrap();
        let again = Json::Object([("x".to_owned(), value.to_json())].into_iter().collect());
        prop_assert_eq!(decode(&Spec::new(&attr).unwrap(), &again).unwrap(), value);
    }
}
