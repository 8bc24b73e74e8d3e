//! Tests of warnings, and of values that are accepted.

use super::super::{ParseOptions, parse};
use super::read;
use crate::source::Source;

#[test]
fn deprecated_arguments_cause_warnings() {
    for (text, want) in [
        ("periodic {\n cron = \"@daily\"\n}", "f:3,2-6: Deprecated argument"),
        ("constraint {\n is_set = \"x\"\n}", "f:3,2-8: Deprecated argument"),
        ("group \"g\" {\n max_client_disconnect = \"1h\"\n}", "f:3,2-23: Deprecated argument"),
        ("group \"g\" {\n network {\n mbits = 10\n }\n}", "f:4,2-7: Deprecated argument"),
        ("task \"t\" {\n logs {\n enabled = true\n }\n}", "f:4,2-9: Deprecated argument"),
    ] {
        let (_, found) = read(&format!("job \"a\" {{\n{text}\n}}\n")).unwrap();
        assert_eq!(found.items.len(), 1, "{text}");
        assert!(found.to_string().starts_with(want), "{found}");
    }
    let (_, found) = read("job \"a\" {\n  priority = 5\n}\n").unwrap();
    assert!(found.items.is_empty());
}

#[test]
fn files_found_beside_the_job_give_values_and_nothing_else() {
    let text = "variable \"x\" {\n  default = 1\n}\njob \"a\" {\n  priority = var.x\n}\n";
    let with = |auto: &str, supplied: &str| {
        let options = ParseOptions {
            strict: true,
            auto_files: vec![Source::new("a.auto.vars", auto)],
            var_files: vec![Source::new("b.vars", supplied)],
            ..ParseOptions::default()
        };
        parse(&Source::new("f", text), &options).map(|(job, _)| job.priority)
    };
    assert_eq!(with("x = 2\nother = 3\n", "").unwrap(), Some(2));
    assert_eq!(with("x = 2\n", "x = 4\n").unwrap(), Some(4));
    assert!(with("x = \n", "").is_err());
}

#[test]
fn texts_may_begin_with_a_byte_order_mark_and_have_any_line_ends() {
    let text = "\u{feff}variable \"e\u{301}\" {\r\n}\r\njob \"a\" {\r\n  meta = { x = <<EOT\r\n${var.e\u{301}}\r\nEOT\r\n  }\r\n}\r\n";
    let options = ParseOptions {
        strict: true,
        var_files: vec![Source::new("b.vars", "\u{feff}e\u{301} = \"e\u{301}\"\r\n")],
        ..ParseOptions::default()
    };
    let (job, _) = parse(&Source::new("f", text), &options).unwrap();
    assert_eq!(job.meta.unwrap()["x"], "\u{e9}\r\n");
}

/// Checks that the first character selects the notation of a variable file, as for jobs.
#[test]
fn variable_files_may_be_json_under_any_name() {
    let text = "variable \"x\" {\n  type = number\n}\njob \"a\" {\n  priority = var.x\n}\n";
    let with = |name: &str, content: &str| {
        let options = ParseOptions {
            var_files: vec![Source::new(name, content)],
            strict: true,
            ..ParseOptions::default()
        };
        parse(&Source::new("f", text), &options).map(|(job, _)| job.priority).map_err(|e| e.to_string())
    };
    for (name, content) in [("b.vars", "{\"x\": 5}"), ("b.json", " {\"x\": \"5\"}"), ("b.json", "x = 5\n")] {
        assert_eq!(with(name, content).unwrap(), Some(5), "{name}: {content}");
    }
    for (content, want) in [
        ("{\"x\": 5, \"x\": 6}", "b.vars:1,10-13: Duplicate attribute definition"),
        ("{\"x\": {\"y\": 5, \"y\": 6}}", "b.vars:1,16-19: Duplicate object attribute"),
        ("variable \"x\" {\n}\n", "b.vars:1,1-9: Variable declaration in a .var file"),
        ("x = 5\nx = 6\n", "b.vars:2,1-2: Attribute redefined"),
    ] {
        let found = with("b.vars", content).unwrap_err();
        assert!(found.starts_with(want), "{found}");
    }
}

/// Checks that any variable may be null: Nomad has neither `nullable` nor `sensitive`.
#[test]
fn a_variable_may_be_null() {
    let text = "variable \"x\" {\n  type = string\n}\njob \"a\" {\n  region = var.x\n}\n";
    let options =
        ParseOptions { var_files: vec![Source::new("b.vars", "x = null\n")], ..ParseOptions::default() };
    let (job, _) = parse(&Source::new("f", text), &options).unwrap();
    assert_eq!(job.region, None);
}
