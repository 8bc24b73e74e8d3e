//! Schemas as the agent reads them: the checks and the decoder are those of `caravan-schema`.

use super::*;
use caravan_schema::{RawSpec, Spec as Checked, Value, decode};
use serde_json::json;

fn raw(spec: &wire::Spec) -> RawSpec {
    let nested = |part: &Option<Box<wire::Spec>>| Box::new(part.as_deref().map_or(RawSpec::Missing, raw));
    match spec.block.as_ref() {
        None => RawSpec::Missing,
        Some(Kind::Object(part)) => {
            RawSpec::Object(part.attributes.iter().map(|(key, spec)| (key.clone(), raw(spec))).collect())
        }
        Some(Kind::Array(part)) => RawSpec::Array(part.values.iter().map(raw).collect()),
        Some(Kind::Attr(part)) => {
            RawSpec::Attr { name: part.name.clone(), ty: part.r#type.clone(), required: part.required }
        }
        Some(Kind::BlockValue(part)) => {
            RawSpec::Block { name: part.name.clone(), required: part.required, nested: nested(&part.nested) }
        }
        Some(Kind::BlockAttrs(part)) => {
            RawSpec::BlockAttrs { name: part.name.clone(), ty: part.r#type.clone(), required: part.required }
        }
        Some(Kind::BlockList(part)) => RawSpec::BlockList {
            name: part.name.clone(),
            min: part.min_items,
            max: part.max_items,
            nested: nested(&part.nested),
        },
        Some(Kind::BlockSet(part)) => RawSpec::BlockSet {
            name: part.name.clone(),
            min: part.min_items,
            max: part.max_items,
            nested: nested(&part.nested),
        },
        Some(Kind::BlockMap(part)) => RawSpec::BlockMap {
            name: part.name.clone(),
            labels: part.labels.clone(),
            nested: nested(&part.nested),
        },
        Some(Kind::Default(part)) => {
            RawSpec::Default { primary: nested(&part.primary), default: nested(&part.default) }
        }
        Some(Kind::Literal(part)) => RawSpec::Literal(part.value.clone()),
    }
}

fn decoded(spec: impl Into<Spec>, config: &serde_json::Value) -> serde_json::Value {
    let checked = Checked::new(&raw(&spec.into().into_message())).unwrap();
    decode(&checked, config).unwrap().to_json()
}

fn everything() -> Spec {
    let port = object().field("to", attr(Type::Number).required());
    object()
        .field("command", attr(Type::String).required())
        .field("arguments", attr(Type::list(Type::String)).named("args"))
        .field("timeout", attr(Type::String).or("5m"))
        .field("limits", block(object().field("files", attr(Type::Number).or(1024))))
        .field("options", block_attrs(Type::String))
        .field("mount", block_list(object().field("target", attr(Type::String))).at_most(2))
        .field("tag", block_set(object().field("name", attr(Type::String))))
        .field("port", block_map(&["label"], port))
        .field("labels", attr(Type::block_map(Type::String)))
        .field("kind", literal("fixed"))
        .field("pair", array([Spec::from(attr(Type::Bool).named("a")), attr(Type::Any).named("b").into()]))
        .into()
}

#[test]
fn an_agent_accepts_every_part() {
    let config = json!({
        "command": "/bin/true", "args": ["x"], "limits": {}, "options": { "a": "b" },
        "mount": [{ "target": "/a" }, { "target": "/b" }], "tag": [{ "name": "t" }, { "name": "t" }],
        "port": { "http": { "to": 80 } }, "labels": [{ "k": "v" }], "a": true, "b": 1,
    });
    let expected = json!({
        "arguments": ["x"], "command": "/bin/true", "kind": "fixed", "labels": [{ "k": "v" }],
        "limits": { "files": 1024 }, "mount": [{ "target": "/a" }, { "target": "/b" }],
        "options": { "a": "b" }, "pair": [true, 1], "port": { "http": { "to": 80 } },
        "tag": [{ "name": "t" }], "timeout": "5m",
    });
    assert_eq!(decoded(everything(), &config), expected);
}

#[test]
fn requirements_and_limits_reach_the_agent() {
    let checked = Checked::new(&raw(&everything().into_message())).unwrap();
    assert!(decode(&checked, &json!({})).is_err());
    let three = json!({ "command": "c", "mount": [{}, {}, {}] });
    assert!(decode(&checked, &three).is_err());
    let needed =
        object().field("m", block_list(object()).at_least(1)).field("o", block_attrs(Type::Any).required());
    let checked = Checked::new(&raw(&Spec::from(needed).into_message())).unwrap();
    assert!(decode(&checked, &json!({})).is_err());
    let block = Spec::from(object().field("b", block(object()).required().named("c")));
    let checked = Checked::new(&raw(&block.into_message())).unwrap();
    assert!(decode(&checked, &json!({ "b": {} })).is_err());
    assert!(decode(&checked, &json!({ "c": {} })).is_ok());
}

#[test]
fn types_are_expressions() {
    let object = Type::Object(BTreeMap::from([("k".to_owned(), Type::set(Type::Bool))]));
    let ty = Type::Tuple(vec![Type::String, object, Type::map(Type::Number)]);
    assert_eq!(ty.to_string(), "tuple([string, object({k = set(bool)}), map(number)])");
    assert!(caravan_schema::Type::parse(&ty.to_string()).is_ok());
}

#[test]
fn literals_are_used_as_they_are() {
    let text = "a \"quoted\" \\ ${x} %{y} $z\n\tend";
    for (literal, expected) in [
        (Literal::from(text), json!(text)),
        (Literal::from(true), json!(true)),
        (Literal::from(-5), json!(-5)),
        (Literal::from(0.5), json!(0.5)),
        (Literal::Null, json!(null)),
        (Literal::list(["a", "b"]), json!(["a", "b"])),
        (Literal::map([("k e y", 1_i64)]), json!({ "k e y": 1 })),
    ] {
        assert_eq!(Value::parse_literal(&literal.to_string()).unwrap().to_json(), expected, "{literal}");
    }
}
