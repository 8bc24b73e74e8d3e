//! Tests of the rules of decoding.

use super::{
    attr, block, block_attrs, block_list, block_map, block_set, decoded, default, object, problems, required,
    run,
};
use crate::{Problem, RawSpec};
use serde_json::{Value as Json, json};

#[test]
fn an_absent_attribute_is_null() {
    let raw = object([("a", attr("a", "string")), ("b", attr("b", "list(number)"))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "a": null, "b": null }));
    assert_eq!(decoded(&raw, json!({ "a": null })), json!({ "a": null, "b": null }));
    assert_eq!(decoded(&raw, Json::Null), json!({ "a": null, "b": null }));
    assert_eq!(run(&raw, &json!({})).unwrap().to_msgpack(), [0x82, 0xa1, b'a', 0xc0, 0xa1, b'b', 0xc0]);
}

#[test]
fn the_key_may_differ_from_the_name() {
    let raw = object([("key", attr("name", "string"))]);
    assert_eq!(decoded(&raw, json!({ "name": "x" })), json!({ "key": "x" }));
}

#[test]
fn primitive_values_convert() {
    for (ty, from, to) in [
        ("number", json!("1"), json!(1)),
        ("number", json!("1.5"), json!(1.5)),
        ("string", json!(1), json!("1")),
        ("string", json!(true), json!("true")),
        ("bool", json!("true"), json!(true)),
        ("bool", json!("0"), json!(false)),
        ("list(number)", json!(["1", 2]), json!([1, 2])),
        ("map(string)", json!({ "a": 1 }), json!({ "a": "1" })),
        ("set(string)", json!(["b", "a", "b"]), json!(["a", "b"])),
        ("tuple([string, number])", json!([1, "2"]), json!(["1", 2])),
        ("object({a = number})", json!({ "a": "1", "b": 2 }), json!({ "a": 1 })),
        ("any", json!({ "a": ["x", 1] }), json!({ "a": ["x", 1] })),
    ] {
        let raw = object([("x", attr("x", ty))]);
        assert_eq!(decoded(&raw, json!({ "x": from })), json!({ "x": to }), "{ty}");
    }
}

#[test]
fn wrong_types_are_problems() {
    for (ty, value, why) in [
        ("number", json!("many"), "a number is required"),
        ("number", json!([]), "number required, but have tuple"),
        ("bool", json!("yes"), "a bool is required"),
        ("list(number)", json!([1, "x"]), "element 1: a number is required"),
        ("map(string)", json!([{ "a": "b" }]), "map of string required, but have tuple"),
    ] {
        let raw = object([("x", attr("x", ty))]);
        let want = format!("Incorrect attribute value type: Inappropriate value for attribute \"x\": {why}.");
        assert_eq!(problems(&raw, json!({ "x": value })), [want]);
    }
}

#[test]
fn all_problems_are_found() {
    let auth = object([("username", required("username", "string")), ("port", attr("port", "number"))]);
    let raw = object([("image", required("image", "string")), ("auth", block("auth", auth))]);
    assert_eq!(
        problems(&raw, json!({ "imag": 1, "x": 2, "auth": { "port": "http", "y": 1 } })),
        [
            "Invalid label: No argument or block type is named \"imag\". Did you mean \"image\"?",
            "Invalid label: No argument or block type is named \"x\".",
            "Invalid label: No argument or block type is named \"auth.y\".",
            "Incorrect attribute value type: Inappropriate value for attribute \"auth.port\": a number is required.",
            "Missing required argument: The argument \"auth.username\" is required, but no definition was found.",
            "Missing required argument: The argument \"image\" is required, but no definition was found.",
        ]
    );
}

#[test]
fn a_required_argument_may_be_null() {
    let raw = object([("image", required("image", "string"))]);
    assert_eq!(decoded(&raw, json!({ "image": null })), json!({ "image": null }));
}

#[test]
fn runtime_references_stay() {
    let raw = object([("a", attr("a", "string")), ("b", attr("b", "map(string)"))]);
    let config = json!({ "a": "${attr.x} %{if} $${y}", "b": { "${k}": "${" } });
    assert_eq!(decoded(&raw, config.clone()), config);
}

#[test]
fn comments_are_ignored() {
    let raw = object([("a", attr("a", "string"))]);
    assert_eq!(decoded(&raw, json!({ "//": "text", "a": "x" })), json!({ "a": "x" }));
}

#[test]
fn a_list_of_objects_is_one_body() {
    let raw = object([("a", attr("a", "string")), ("b", attr("b", "string"))]);
    assert_eq!(decoded(&raw, json!([{ "a": "x" }, { "b": "y" }])), json!({ "a": "x", "b": "y" }));
    assert_eq!(
        problems(&raw, json!([{ "a": "x" }, { "a": "y" }])),
        ["Duplicate argument: The argument \"a\" is set more than once."]
    );
    assert_eq!(problems(&raw, json!("x")), ["Incorrect value type: The configuration must be an object."]);
}

#[test]
fn a_block_is_an_object_or_a_list_of_one() {
    let raw = object([("auth", block("auth", object([("user", attr("user", "string"))])))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "auth": null }));
    assert_eq!(decoded(&raw, json!({ "auth": [] })), json!({ "auth": null }));
    assert_eq!(decoded(&raw, json!({ "auth": {} })), json!({ "auth": { "user": null } }));
    assert_eq!(decoded(&raw, json!({ "auth": [{ "user": "x" }] })), json!({ "auth": { "user": "x" } }));
    assert_eq!(
        problems(&raw, json!({ "auth": [{}, {}] })),
        ["Duplicate block: Only one block \"auth\" is allowed."]
    );
    assert_eq!(
        problems(&raw, json!({ "auth": "x" })),
        ["Incorrect value type: \"auth\" is a block: an object, or a list of objects, is required."]
    );
}

#[test]
fn a_required_block_must_exist() {
    let nested = Box::new(object([]));
    let raw = RawSpec::Block { name: "auth".to_owned(), required: true, nested };
    assert_eq!(problems(&raw, json!({})), ["Missing block: A block \"auth\" is required."]);
    assert_eq!(decoded(&raw, json!({ "auth": {} })), json!({}));
    // A wrong value is one problem, not two.
    assert_eq!(problems(&raw, json!({ "auth": 1 })).len(), 1);
}

#[test]
fn blocks_with_any_arguments() {
    let raw = object([("labels", block_attrs("labels", "string", false))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "labels": null }));
    assert_eq!(decoded(&raw, json!({ "labels": { "a": 1 } })), json!({ "labels": { "a": "1" } }));
    assert_eq!(decoded(&raw, json!({ "labels": [{ "a": "x" }] })), json!({ "labels": { "a": "x" } }));
    assert_eq!(
        problems(&raw, json!({ "labels": { "a": [] } })),
        [
            "Incorrect attribute value type: Inappropriate value for attribute \"labels.a\": string required, but have tuple."
        ]
    );
    assert_eq!(
        problems(&raw, json!({ "labels": [{}, {}] })),
        ["Duplicate block: Only one block \"labels\" is allowed."]
    );
    let raw = block_attrs("labels", "string", true);
    assert_eq!(problems(&raw, json!({})), ["Missing block: A block \"labels\" is required."]);
}

#[test]
fn lists_of_blocks() {
    let nested = || object([("target", required("target", "string"))]);
    let raw = object([("mount", block_list("mount", 0, 0, nested()))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "mount": [] }));
    assert_eq!(decoded(&raw, json!({ "mount": { "target": "a" } })), json!({ "mount": [{ "target": "a" }] }));
    assert_eq!(
        decoded(&raw, json!({ "mount": [{ "target": "b" }, { "target": "b" }, { "target": "a" }] })),
        json!({ "mount": [{ "target": "b" }, { "target": "b" }, { "target": "a" }] })
    );
    assert_eq!(
        problems(&raw, json!({ "mount": [{ "target": "a" }, { "x": 1 }] })),
        [
            "Invalid label: No argument or block type is named \"mount[1].x\".",
            "Missing required argument: The argument \"mount[1].target\" is required, but no definition was found."
        ]
    );
    let raw = object([("mount", block_list("mount", 1, 2, nested()))]);
    assert_eq!(
        problems(&raw, json!({})),
        ["Too few blocks: \"mount\" has 0 block(s), but at least 1 are required."]
    );
    assert_eq!(
        problems(&raw, json!({ "mount": [{}, {}, {}] })),
        ["Too many blocks: \"mount\" has 3 block(s), but at most 2 are allowed."]
    );
}

#[test]
fn sets_of_blocks_have_no_duplicates() {
    let raw = object([("s", block_set("s", object([("a", attr("a", "number"))])))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "s": [] }));
    assert_eq!(
        decoded(&raw, json!({ "s": [{ "a": 2 }, { "a": 1 }, { "a": "2" }] })),
        json!({ "s": [{ "a": 2 }, { "a": 1 }] })
    );
}

#[test]
fn blocks_with_labels() {
    let raw = object([("v", block_map("v", &["kind", "name"], object([("a", attr("a", "string"))])))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "v": {} }));
    assert_eq!(decoded(&raw, json!({ "v": null })), json!({ "v": {} }));
    assert_eq!(
        decoded(&raw, json!({ "v": { "x": { "one": { "a": "1" }, "two": [{}] } } })),
        json!({ "v": { "x": { "one": { "a": "1" }, "two": { "a": null } } } })
    );
    // A job file with repeated blocks becomes lists.
    assert_eq!(
        decoded(
            &raw,
            json!({ "v": [{ "x": [{ "one": [{}] }] }, { "x": { "two": {} } }, { "y": { "one": {} } }] })
        ),
        json!({ "v": { "x": { "one": { "a": null }, "two": { "a": null } }, "y": { "one": { "a": null } } } })
    );
    assert_eq!(
        problems(&raw, json!({ "v": [{ "x": { "one": {} } }, { "x": { "one": { "b": 1 } } }] })),
        ["Duplicate block: Only one block \"v.x.one\" is allowed."]
    );
    assert_eq!(
        problems(&raw, json!({ "v": { "x": { "one": { "other": 1 } }, "y": {}, "z": 1 } })),
        [
            "Invalid label: No argument or block type is named \"v.x.one.other\".",
            "Missing block label: \"v.y\" needs at least one key: the name of the block.",
            "Incorrect value type: \"v.z\" is a block: an object, or a list of objects, is required."
        ]
    );
}

#[test]
fn a_default_replaces_null() {
    let raw = object([("a", default(attr("a", "string"), "\"5m\""))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "a": "5m" }));
    assert_eq!(decoded(&raw, json!({ "a": null })), json!({ "a": "5m" }));
    assert_eq!(decoded(&raw, json!({ "a": "" })), json!({ "a": "" }));
}

#[test]
fn the_default_of_a_block_applies_only_if_it_is_absent() {
    let nested = object([("x", attr("x", "bool")), ("y", default(attr("y", "bool"), "true"))]);
    let raw = object([("gc", default(block("gc", nested), "{ x = true, y = true }"))]);
    assert_eq!(decoded(&raw, json!({})), json!({ "gc": { "x": true, "y": true } }));
    assert_eq!(decoded(&raw, json!({ "gc": {} })), json!({ "gc": { "x": null, "y": true } }));
}

#[test]
fn one_argument_may_replace_another() {
    let (primary, default) = (Box::new(attr("a", "string")), Box::new(attr("old", "string")));
    let raw = object([("a", RawSpec::Default { primary, default })]);
    assert_eq!(decoded(&raw, json!({ "old": "x" })), json!({ "a": "x" }));
    assert_eq!(decoded(&raw, json!({ "old": "x", "a": "y" })), json!({ "a": "y" }));
}

#[test]
fn a_list_of_maps_may_be_written_as_blocks() {
    let raw = object([("labels", attr("labels", "list(map(string))"))]);
    let want = json!({ "labels": [{ "a": "1" }] });
    assert_eq!(decoded(&raw, json!({ "labels": { "a": 1 } })), want);
    assert_eq!(decoded(&raw, json!({ "labels": [{ "a": 1 }] })), want);
    assert_eq!(
        decoded(&raw, json!({ "labels": [{ "a": 1 }, { "b": 2 }] })),
        json!({ "labels": [{ "a": "1" }, { "b": "2" }] })
    );
    assert_eq!(
        decoded(&raw, json!([{ "labels": { "a": 1 } }, { "labels": [{ "b": 2 }] }])),
        json!({ "labels": [{ "a": "1" }, { "b": "2" }] })
    );
    assert_eq!(decoded(&raw, json!({})), json!({ "labels": null }));
    assert_eq!(problems(&raw, json!({ "labels": "x" })).len(), 1);
}

#[test]
fn parts_of_one_body_may_be_grouped() {
    let group = object([("x", attr("x", "number"))]);
    let raw = RawSpec::Array(vec![group, attr("y", "number"), RawSpec::Literal("7".to_owned())]);
    assert_eq!(decoded(&raw, json!({ "x": 1, "y": 2 })), json!([{ "x": 1 }, 2, 7]));
    assert_eq!(problems(&raw, json!({ "z": 1 })).len(), 1);
}

#[test]
fn hostile_configurations_are_refused() {
    let raw = object([("a", attr("a", "any"))]);
    let deep = (0..500).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(run(&raw, &json!({ "a": deep })), Err(vec![Problem::TooDeep]));
    let wide = RawSpec::Array(vec![RawSpec::Literal("1".to_owned()); 1000]);
    let raw = block_list("b", 0, 0, wide);
    let found = run(&raw, &json!({ "b": vec![json!({}); 2000] }));
    assert_eq!(found, Err(vec![Problem::TooLarge]));
    let raw = block_list("b", 0, 0, required("x", "string"));
    let found = run(&raw, &json!({ "b": vec![json!({}); 5000] }));
    assert_eq!(found.map_err(|all| all.len()), Err(1000));
}
