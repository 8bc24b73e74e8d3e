//! What is taken but told about, and values that are taken.

use super::super::{ParseOptions, parse};
use super::read;
use crate::source::Source;

#[test]
fn deprecated_arguments_are_told() {
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
    let with = |auto: &str, given: &str| {
        let options = ParseOptions {
            strict: true,
            auto_files: vec![Source::new("a.auto.vars", auto)],
            var_files: vec![Source::new("b.vars", given)],
            ..ParseOptions::default()
        };
        parse(&Source::new("f", text), &options).map(|(job, _)| job.priority)
    };
    assert_eq!(with("x = 2\nother = 3\n", "").unwrap(), Some(2));
    assert_eq!(with("x = 2\n", "x = 4\n").unwrap(), Some(4));
    assert!(with("x = \n", "").is_err());
}

/// The reference has neither `nullable` nor `sensitive`: any variable may be null.
#[test]
fn a_variable_may_be_null() {
    let text = "variable \"x\" {\n  type = string\n}\njob \"a\" {\n  region = var.x\n}\n";
    let options =
        ParseOptions { var_files: vec![Source::new("b.vars", "x = null\n")], ..ParseOptions::default() };
    let (job, _) = parse(&Source::new("f", text), &options).unwrap();
    assert_eq!(job.region, None);
}
