use super::{decode, encode};
use crate::value::Value;

/// YAML texts and the JSON that Nomad decodes them to, grouped by rule.
const READ: &[(&str, &str)] = &[
    // Booleans, also as keys. Other YAML 1.1 extensions are not supported.
    ("[yes, No, ON, off, y, N, yEs]", r#"[true,false,true,false,true,false,"yEs"]"#),
    ("yes: 1\nn: 2\n", r#"{"true":1,"false":2}"#),
    (
        "[017, 0o17, 0x1F, 0b101, 1_000, 1:30, +.5, 5., -0x1F]",
        r#"[17,15,31,"0b101","1_000","1:30",0.5,5,"-0x1F"]"#,
    ),
    ("[~, null, nULL, '']", r#"[null,null,"nULL",""]"#),
    ("1.5: a\n0x10: b\n", r#"{"1.5":"a","16":"b"}"#),
    // Times in four notations; other texts remain texts.
    (
        "- 2001-12-14t21:59:43.10-05:00\n- 2001-12-15 2:59:43.10\n- 2001-1-1\n- 2001-12-14 21:59:43Z\n- 2001-02-30\n",
        r#"["2001-12-14T21:59:43-05:00","2001-12-15T02:59:43Z","2001-01-01T00:00:00Z","2001-12-14 21:59:43Z","2001-02-30"]"#,
    ),
    // Tags.
    ("!!str 5", r#""5""#),
    ("!!int \"5\"", r#""5""#),
    ("!!null x", "null"),
    ("!<tag:yaml.org,2002:str> yes", r#""yes""#),
    ("%TAG !e! tag:yaml.org,2002:\n---\n!e!str 5\n", r#""5""#),
    // Anchors, also directly before a comma. Later values override earlier ones.
    ("[&a, *a]", "[null,null]"),
    ("a: &x {k: 1}\nb:\n  <<: *x\n  k: 2\n  <<: {l: 3}\n", r#"{"a":{"k":1},"b":{"k":2,"l":3}}"#),
    ("{a: 1, a: 2, }", r#"{"a":2}"#),
    // Multi-line scalars.
    ("a: plain\n  text\n\n  here\nb: 1\n", r#"{"a":"plain text\nhere","b":1}"#),
    ("\"a \\\n   b\n\n   c\"", r#""a b\nc""#),
    ("'it''s\n  one'", r#""it's one""#),
    ("a: >\n  x\n    y\n  z\n\n  w\n", "{\"a\":\"x\\n  y\\nz\\nw\\n\"}"),
    ("a: |2-\n   x\n", r#"{"a":" x"}"#),
    ("a: |+\n  x\n\nb: 1\n", r#"{"a":"x\n\n","b":1}"#),
    // A block is interpreted like a plain scalar first.
    ("|-\n  yes", r#""true""#),
    ("a: |\n", r#"{"a":null}"#),
    // Brackets.
    ("{a, b: , \"c\":1, d:e}", r#"{"a":null,"b":null,"c":1,"d:e":null}"#),
    ("[a: b, ? c, [d],]", r#"[{"a":"b"},{"c":null},["d"]]"#),
    ("a: [\n1\n]\nb:\t2\n", r#"{"a":[1],"b":2}"#),
    // Blocks.
    ("a:\n- 1\n- - 2\n  - 3\nb:\n  - c: 1\n    d: 2\n", r#"{"a":[1,[2,3]],"b":[{"c":1,"d":2}]}"#),
    ("? a b\n: - 1\n", r#"{"a b":[1]}"#),
    ("a: b :c\nd: :e\n", r#"{"a":"b :c","d":":e"}"#),
    ("--- # c\na\n...\n", r#""a""#),
];

#[test]
fn texts_mean_what_they_mean_in_the_reference() {
    for (text, want) in READ {
        let value = decode(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        let want: serde_json::Value = serde_json::from_str(want).unwrap();
        assert_eq!(value.to_json(), want, "{text:?}");
    }
    assert_eq!(decode("-.inf").unwrap().to_json(), serde_json::Value::Null);
    assert_eq!(decode("[.inf]").map(|v| encode(&v)).unwrap(), "- +Inf\n");
}

#[test]
fn texts_that_the_reference_refuses_are_refused() {
    for (text, want) in [
        ("", "missing start of document"),
        ("# c\n", "missing start of document"),
        ("a: b: c", "mapping values are not allowed"),
        ("a: - b", "block sequence entries are not allowed"),
        (": b", "did not find expected key"),
        ("a:\n\t- b", "cannot start any token"),
        ("a: |\n \tx", "tab character where an indentation space"),
        ("- a\nb: 1", "did not find expected '-' indicator"),
        ("a: 1\n b: 2", "mapping values are not allowed"),
        ("[a", "did not find expected ',' or ']'"),
        ("[,a]", "did not find expected node content"),
        ("{a: b c: d}", "did not find expected ',' or '}'"),
        ("\"a", "unexpected end of stream"),
        ("\"\\/\"", "unknown escape character"),
        ("@a", "cannot start any token"),
        ("*a", "undefined anchor"),
        ("&a [*a]", "inside its own definition"),
        ("~: 1", "key cannot be null"),
        ("[a]: 1", "only strings are allowed"),
        ("<<: [{a: 1}]", "cannot merge"),
        (".nan", "NaN"),
        ("!!int x", "cannot parse"),
        ("!t x", "unsupported tag"),
        ("!!str [a]", "can't interpret sequence"),
        ("!e!x 1", "undefined tag handle"),
        ("a\n---\nb", "extra content"),
        ("%YAML 1.2\n---\na", "incompatible"),
        ("a: \u{1}", "control characters"),
        ("0xFFFFFFFFFFFFFFFFF", "too large"),
    ] {
        let error = decode(text).expect_err(text);
        assert!(error.contains(want), "{text:?}: {error}");
    }
    let deep = "[".repeat(5000);
    assert!(decode(&deep).unwrap_err().contains("nested too deeply"));
    let deep = "- ".repeat(5000);
    assert!(decode(&deep).unwrap_err().contains("nested too deeply"));
    let laughs: String = (1..40).map(|i| format!("l{i}: &l{i} [*l{0}, *l{0}]\n", i - 1)).collect();
    assert!(decode(&format!("l0: &l0 x\n{laughs}")).unwrap_err().contains("too many values"));
}

#[test]
fn values_are_written_as_by_the_reference() {
    let long = "aaaaaaaaa ".repeat(10);
    for (json, want) in [
        ("1", "1\n...\n"),
        ("null", "null\n...\n"),
        (r#""a""#, "\"a\"\n"),
        (r#""<&> \u001b\ud83d\ude00\u2028""#, "\"<&> \\e\\U0001F600\\L\"\n"),
        (r#""a\nb""#, "|-\n  a\n  b\n"),
        (r#"" a\n""#, "|2\n   a\n"),
        (r#""\n""#, "|2+\n\n"),
        (r#""a \nb""#, "\"a \\nb\"\n"),
        (r#""a\n\tb""#, "\"a\\n\\tb\"\n"),
        (r#"{"a\nb":[1]}"#, "? |-\n  a\n  b\n: - 1\n"),
        (r#"{"a":[1,{"b":"x\n"}],"c":{"d":[]}}"#, "\"a\":\n- 1\n- \"b\": |\n    x\n\"c\":\n  \"d\": []\n"),
        (&format!("{long:?}"), &format!("\"{}\n  aaaaaaaaa \"\n", "aaaaaaaaa ".repeat(9).trim_end())),
    ] {
        let value = Value::from_json(&serde_json::from_str(json).unwrap());
        assert_eq!(encode(&value), *want, "{json}");
    }
}
