use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn job() -> Value {
    json!({
        "ID": "page-1", "Type": "batch", "Status": "dead", "Priority": 50, "Stop": false, "Score": 0.5,
        "Meta": {"owner": "alice", "foo-bar": "x"}, "Datacenters": ["dc1", "dc2"], "Ports": [80, 443],
        "Periodic": null, "Payload": null, "Empty": {}, "None": [],
        "TaskGroups": [
            {"Name": "web", "Count": 2, "Tasks": [{"Name": "server", "Env": {"A": "1"}}]},
            {"Name": "db", "Count": 1, "Tasks": []}
        ],
        "TaskStates": {"server": {"State": "running", "Failed": false}}
    })
}

fn ask(text: &str) -> Result<bool, FilterError> {
    Filter::parse(text)?.matches(&job())
}

#[test]
fn what_holds_and_what_does_not() {
    for text in [
        r#"Type == "batch""#,
        "Type == batch",
        "Type==`batch`",
        r#"Type != "service" and Status == "dead""#,
        r#"Type == "batch" or Nope == 1"#,
        "not (Type == service)",
        "not not Type == batch",
        r#"ID matches "^page-[12]$""#,
        r#"ID not matches "^x""#,
        r#""page" in ID"#,
        "ID contains age",
        "dc1 in Datacenters",
        "dc9 not in Datacenters",
        "Datacenters contains dc2",
        "Datacenters not contains dc3",
        "443 in Ports",
        "owner in Meta",
        "nobody not in Meta",
        "Meta.owner == alice",
        r#"Meta["foo-bar"] == x"#,
        r#""/Meta/foo-bar" == "x""#,
        "Meta.nobody != alice",
        "Meta.nobody is empty",
        "Meta.nobody is nil",
        r#"Meta.nobody not matches "a""#,
        "Meta is not empty",
        "Empty is empty and None is empty",
        "Periodic is nil",
        "Periodic is empty",
        "Periodic != 1",
        "Type is not nil",
        "Priority == 50",
        "Priority == `0x32`",
        "Priority != \"051\"",
        "Priority == 50.0",
        "Score == 0.5",
        "Stop == false",
        "Stop == F",
        "Stop != true",
        "TaskGroups.0.Name == web",
        "TaskGroups.0.Tasks.0.Env.A == 1",
        "TaskStates.server.State == running",
        "TaskStates.other.State != running",
        "any TaskGroups as g { g.Name == db }",
        "all TaskGroups as g { g.Count != 0 }",
        "any TaskGroups as i, g { i == 1 and g.Name == db }",
        "any TaskGroups as _, g { any g.Tasks as t { t.Name == server } }",
        "any Meta as k { k == owner }",
        "any Meta as k, v { k == owner and v == alice }",
        "Type == service or any Datacenters as d { d == dc2 }",
        "all Payload as p { p == 1 }",
        "  ( Type == batch )  ",
        "Type ==\n\tbatch",
        r#"ID == "page\u002d1""#,
    ] {
        assert_eq!(ask(text), Ok(true), "{text}");
        assert_eq!(ask(&format!("not ({text})")), Ok(false), "{text}");
    }
}

#[test]
fn errors_say_what_clients_know() {
    let syntax =
        r#"no match found, expected: "!=", "==", "contains", "in", "is", "matches", "not" or [ \t\r\n]"#;
    for (text, expected) in [
        ("Priority > 43", format!("1:10 (9): {syntax}")),
        ("Priority >", format!("1:10 (9): {syntax}")),
        (r#"Status = "a""#, format!("1:8 (7): {syntax}")),
        (
            r#"JobSummary.Summary["work"].Complete == 1"#,
            "error finding value in datum: /JobSummary/Summary/work/Complete at part 0: couldn't find key: struct \
             field with name \"JobSummary\""
                .to_owned(),
        ),
        (
            "Nope == 1",
            "error finding value in datum: /Nope at part 0: couldn't find key: struct field with name \"Nope\""
                .to_owned(),
        ),
        (
            "TaskGroups.0.Nope == 1",
            "error finding value in datum: /TaskGroups/0/Nope at part 2: couldn't find key: struct field with name \
             \"Nope\""
                .to_owned(),
        ),
        (
            r#"Priority == "x""#,
            "error getting match value in expression: strconv.ParseInt: parsing \"x\": invalid syntax".to_owned(),
        ),
        (
            "Stop == maybe",
            "error getting match value in expression: strconv.ParseBool: parsing \"maybe\": invalid syntax"
                .to_owned(),
        ),
        ("Priority is empty", "cannot ask whether /Priority, which is a number, is empty".to_owned()),
    ] {
        let error = ask(text).expect_err("it is refused");
        assert_eq!(error.to_string(), expected, "{text}");
    }
}

#[test]
fn what_is_no_expression_is_refused_at_its_place() {
    for (text, offset) in [
        ("", 0),
        ("Type", 4),
        ("Type == ", 8),
        ("Type == batch and", 17),
        ("Type == batch Status == dead", 14),
        ("(Type == batch", 14),
        ("Type == \"batch", 14),
        ("any TaskGroups as g { g.Name == db", 34),
        ("Type is full", 8),
        ("a\n == b\n c", 9),
    ] {
        match Filter::parse(text) {
            Err(FilterError::Syntax { offset: at, expected, .. }) => {
                assert_eq!(at, offset, "{text:?}: {expected}");
                assert!(!expected.is_empty());
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    let error = Filter::parse("ID matches \"(\"").expect_err("it is no expression");
    assert!(matches!(error, FilterError::Regex { .. }), "{error}");
}

#[test]
fn nesting_and_length_have_an_end() {
    let deep = |levels: usize| format!("{}a == b{}", "(".repeat(levels), ")".repeat(levels));
    Filter::parse(&deep(DEEPEST)).expect("it is deep enough");
    assert_eq!(Filter::parse(&deep(100_000)).err(), Some(FilterError::TooLong { most: MAX_LENGTH }));
    for text in [deep(DEEPEST + 1), deep(30_000), format!("{}a == b", "not ".repeat(10_000))] {
        assert_eq!(Filter::parse(&text).err(), Some(FilterError::TooDeep { most: DEEPEST }));
    }
    Filter::parse(&vec!["a == b"; 5_000].join(" or ")).expect("length alone is no depth");
}

fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "Type",
        "Meta.owner",
        "TaskGroups",
        "any",
        "all",
        "as",
        "x",
        "_",
        ",",
        "{",
        "}",
        "(",
        ")",
        "and",
        "or",
        "not",
        "==",
        "!=",
        "in",
        "contains",
        "is",
        "empty",
        "nil",
        "matches",
        "\"a\"",
        "`b`",
        "1",
        "-2.5",
        "[\"k\"]",
        ".0",
        "\"/Meta/a\"",
    ]);
    prop::collection::vec(word, 0..16).prop_map(|words| words.join(" "))
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![text(), ".{0,60}".prop_map(String::from)]) {
        if let Ok(filter) = Filter::parse(&text) {
            let _ = filter.matches(&job());
        }
    }

    /// Checks that a quoted string equals its own content.
    #[test]
    fn strings_are_equal_to_themselves(word: String) {
        prop_assume!(!word.contains('`'));
        let filter = Filter::parse(&format!("A == `{word}`")).expect("it is an expression");
        prop_assert_eq!(filter.matches(&json!({"A": word})), Ok(true));
    }
}
