//! Tests of the check of schemas, of types, literals and encodings.

use super::{attr, block, block_map, default, object};
use crate::{Fault, MAX_DEPTH, RawSpec, Spec, Type, Value};
use std::collections::BTreeMap;

fn error(raw: &RawSpec) -> String {
    Spec::new(raw).unwrap_err().to_string()
}

#[test]
fn types() {
    for (text, shown) in [
        ("string", "string"),
        ("bool", "bool"),
        ("number", "number"),
        ("any", "dynamic"),
        ("list(string)", "list of string"),
        (" set( number ) ", "set of number"),
        ("map(list(bool))", "map of list of bool"),
        ("tuple([string, number])", "tuple"),
        ("object({a = string, b = list(any)})", "object"),
    ] {
        assert_eq!(Type::parse(text).unwrap().to_string(), shown, "{text}");
    }
    for text in
        ["", "text", "list", "list()", "list(string", "map(string, number)", "\"string\"", "tuple(string)"]
    {
        assert!(matches!(Type::parse(text), Err(Fault::Type { .. })), "{text}");
    }
}

#[test]
fn literals() {
    let map = |key: &str, value| Value::Map(BTreeMap::from([(key.to_owned(), value)]));
    for (text, want) in [
        ("\"5m\"", Value::String("5m".to_owned())),
        ("true", Value::Bool(true)),
        ("null", Value::Null),
        ("0", Value::Int(0)),
        (" -7 ", Value::Int(-7)),
        ("{ a = 1 }", map("a", Value::Int(1))),
        ("[ \"x\" ]", Value::List(vec![Value::String("x".to_owned())])),
        ("upper(\"x\")", Value::String("X".to_owned())),
        ("max(1, int(2.9))", Value::Int(2)),
        ("hasindex([1], 0)", Value::Bool(true)),
        ("jsondecode(\"{\\\"a\\\": [1]}\")", map("a", Value::List(vec![Value::Int(1)]))),
        ("\"a${1 + 1}\"", Value::String("a2".to_owned())),
    ] {
        assert_eq!(Value::parse_literal(text), Ok(want), "{text}");
    }
    for text in ["", "1 +", "x", "\"${x}\"", "file(\"/etc/passwd\")", "uuidv4()", "5m"] {
        assert!(matches!(Value::parse_literal(text), Err(Fault::Literal { .. })), "{text}");
    }
}

#[test]
fn numbers_are_whole_or_floating_or_decimal() {
    for (text, want) in [
        ("9223372036854775807", Value::Int(i64::MAX)),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("1.0", Value::Int(1)),
        ("1.5", Value::Float(1.5)),
        ("0.1", Value::Float(0.1)),
        ("1e300", Value::Float(1e300)),
        ("9223372036854775808", Value::Float(9_223_372_036_854_775_808.0)),
        ("18446744073709551615", Value::Decimal("18446744073709551615".to_owned())),
        ("0.12345678901234567890123", Value::Decimal("0.12345678901234567890123".to_owned())),
        ("1 / 0", Value::Float(f64::INFINITY)),
    ] {
        assert_eq!(Value::parse_literal(text), Ok(want), "{text}");
    }
    assert_eq!(Value::Decimal("18446744073709551615".to_owned()).to_json(), serde_json::json!(u64::MAX));
    assert_eq!(Value::Float(f64::INFINITY).to_json(), serde_json::Value::Null);
}

#[test]
fn message_pack() {
    for (value, want) in [
        (Value::Null, &[0xc0][..]),
        (Value::Bool(true), &[0xc3]),
        (Value::Int(5), &[0x05]),
        (Value::Int(-1), &[0xff]),
        (Value::Int(300), &[0xcd, 0x01, 0x2c]),
        (Value::Int(-300), &[0xd1, 0xfe, 0xd4]),
        (Value::Float(1.5), &[0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]),
        (Value::String("hi".to_owned()), &[0xa2, b'h', b'i']),
        (Value::Decimal("7".to_owned()), &[0xa1, b'7']),
        (Value::List(vec![Value::Int(1), Value::Null]), &[0x92, 0x01, 0xc0]),
        (Value::Map(BTreeMap::from([("a".to_owned(), Value::Null)])), &[0x81, 0xa1, b'a', 0xc0]),
    ] {
        assert_eq!(value.to_msgpack(), want, "{value:?}");
    }
}

#[test]
fn errors_name_the_place() {
    let bad = |name: &str| attr(name, "text");
    let text = error(&object([("k", bad("image"))]));
    assert!(text.starts_with("attribute \"image\": the type \"text\" is invalid: "), "{text}");
    let text = error(&object([("auth", block("", object([("username", bad(""))])))]));
    assert!(text.starts_with("attribute \"auth.username\": the type "), "{text}");
    let text = error(&object([("k", default(attr("a", "string"), "1 +"))]));
    assert!(text.starts_with("key \"k\": the literal \"1 +\" is invalid: "), "{text}");
    assert_eq!(error(&object([("k", RawSpec::Missing)])), "key \"k\": the schema is empty");
    assert_eq!(error(&RawSpec::Missing), "schema: the schema is empty");
    assert_eq!(error(&block("auth", RawSpec::Missing)), "block \"auth\": the schema is empty");
    assert_eq!(error(&block_map("device", &[], object([]))), "block \"device\": the labels are missing");
}

#[test]
fn a_part_without_a_name_has_its_key() {
    let raw = object([("a", attr("", "number")), ("b", default(attr("", "string"), "\"x\""))]);
    let found = super::decoded(&raw, serde_json::json!({ "a": 1 }));
    assert_eq!(found, serde_json::json!({ "a": 1, "b": "x" }));
    assert_eq!(error(&attr("", "number")), "schema: an attribute or a block has no name");
    let unnamed = object([("k", RawSpec::Array(vec![attr("", "number")]))]);
    assert_eq!(error(&unnamed), "schema: an attribute or a block has no name");
    // The content of a block does not take the block's key.
    let unnamed = object([("k", block("auth", attr("", "number")))]);
    assert_eq!(error(&unnamed), "block \"auth\": an attribute or a block has no name");
}

#[test]
fn nesting_is_limited() {
    let nested = |levels: usize| (1..levels).fold(attr("a", "any"), |inner, _| block("b", inner));
    assert!(Spec::new(&nested(MAX_DEPTH)).is_ok());
    let error = Spec::new(&nested(MAX_DEPTH + 1)).unwrap_err();
    assert_eq!(*error.fault(), Fault::TooDeep);
    assert!(Spec::new(&nested(500)).is_err());
    let deep = format!("{}string{}", "list(".repeat(5000), ")".repeat(5000));
    assert!(Type::parse(&deep).is_err());
    assert!(Value::parse_literal(&"[".repeat(5000)).is_err());
}
