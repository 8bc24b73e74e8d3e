//! Tests the content of blocks and its JSON, in both notations.

use super::read;
use serde_json::Value;

/// Returns the first error without its detail, or the JSON value at the pointer.
fn answer(text: &str, pointer: &str) -> String {
    match read(text) {
        Ok((job, _)) => job.pointer(pointer).cloned().unwrap_or_default().to_string(),
        Err(found) => {
            let line = found.to_string();
            let line = line.lines().next().unwrap_or_default();
            line.strip_prefix("f:").unwrap_or(line).split("; ").next().unwrap_or_default().to_owned()
        }
    }
}

/// Checks text, pointer and expected result of each case. JSON is compared as a value.
fn check(cases: &[(&str, &str, &str)]) {
    let mut wrong = Vec::new();
    for (text, pointer, want) in cases {
        let have = answer(text, pointer);
        let same = match (serde_json::from_str::<Value>(&have), serde_json::from_str::<Value>(want)) {
            (Ok(have), Ok(want)) => have == want,
            _ => have == *want,
        };
        if !same {
            wrong.push(format!("{text}\n  want {want}\n  have {have}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns a job around the body of a task.
fn task(body: &str) -> String {
    format!("job \"a\" {{\n group \"g\" {{\n  task \"t\" {{\n{body}\n  }}\n }}\n}}\n")
}

/// Returns the JSON value of a task in a job.
fn task_json(body: &str) -> String {
    format!(r#"{{"job": {{"a": {{"group": {{"g": {{"task": {{"t": {body}}}}}}}}}}}}}"#)
}

fn check_tasks(cases: &[(&str, &str, &str)], wrap: fn(&str) -> String) {
    let cases: Vec<(String, String, &str)> = cases
        .iter()
        .map(|(body, key, want)| (wrap(body), format!("/TaskGroups/0/Tasks/0/{key}"), *want))
        .collect();
    let cases: Vec<_> = cases.iter().map(|(t, p, w)| (t.as_str(), p.as_str(), *w)).collect();
    check(&cases);
}

#[test]
fn a_variable_takes_the_arguments_of_the_reference() {
    let with = |body: &str| format!("variable \"x\" {{\n{body}\n}}\njob \"a\" {{}}\n");
    let rule = |condition: &str, message: &str| {
        with(&format!(
            "default = 1\nvalidation {{\ncondition = {condition}\nerror_message = \"{message}\"\n}}"
        ))
    };
    let cases = [
        (with("default = 1\nsensitive = true"), "3,1-10: Unsupported argument"),
        (with("default = 1\nnullable = true"), "3,1-9: Unsupported argument"),
        (with("default = 1\ndescription = null"), "3,15-19: Unsuitable value type"),
        (with("default = 1\ntype = \"number\""), "3,8-16: Invalid type specification"),
        (with("default = []\ntype = list(\"string\")"), "3,13-21: Invalid type specification"),
        (rule("var.x > 0", "no period"), "\"a\""),
        (rule("var.x > 0", ""), "5,17-19: Invalid validation error message"),
        (rule("var.x > 0", "  "), "5,17-21: Invalid validation error message"),
        (rule("var.y > 0", "no"), "4,13-18: Invalid reference in variable validation"),
        (rule("var.x > local.y", "no"), "4,21-28: Invalid reference in variable validation"),
        (rule("length([for a in [1] : a]) == var.x", "no"), "\"a\""),
        (rule("true", "no"), "4,13-17: Invalid variable validation condition"),
        (
            r#"{"variable": {"x": {"default": 1, "sensitive": true}}, "job": {"a": {}}}"#.to_owned(),
            "1,35-46: Extraneous JSON object property",
        ),
        (
            r#"{"variable": {"x": {"default": 1, "type": "\"number\""}}, "job": {"a": {}}}"#.to_owned(),
            "1,43-55: Invalid type specification",
        ),
        (
            r#"{"variable": {"x": {"default": 1, "validation": {"condition": "${var.x > 0}", "error_message": " "}}}, "job": {"a": {}}}"#.to_owned(),
            "1,96-99: Invalid validation error message",
        ),
    ];
    let cases: Vec<_> = cases.iter().map(|(text, want)| (text.as_str(), "/ID", *want)).collect();
    check(&cases);
}

#[test]
fn blocks_need_the_arguments_of_the_reference() {
    check_tasks(
        &[
            (
                "template {\n change_script {}\n}",
                "Templates/0/ChangeScript",
                r#"{"Command": null, "Args": [], "Timeout": 5000000000, "FailOnError": false, "RunOnFirstRender": false}"#,
            ),
            ("template {\n wait {}\n}", "Templates/0/Wait", r#"{"Min": null, "Max": null}"#),
            ("template {\n wait {\n max = \"1s\"\n }\n}", "Templates/0/Wait/Max", "1000000000"),
            ("action \"x\" {\n args = []\n}", "Actions", "4,12-12: Missing required argument"),
            ("lifecycle {\n}", "Lifecycle", "4,11-11: Missing required argument"),
            ("scaling \"cpu\" {\n}", "ScalingPolicies/0/Max", "null"),
        ],
        task,
    );
    check_tasks(
        &[
            (r#"{"action": {"x": {"args": []}}}"#, "Actions", "1,74-75: Missing required argument"),
            (r#"{"template": {"change_script": {}}}"#, "Templates/0/ChangeScript/FailOnError", "false"),
            (r#"{"template": {"wait": {}}}"#, "Templates/0/Wait/Min", "null"),
        ],
        task_json,
    );
    check(&[
        ("job \"a\" {\n group \"g\" {\n  scaling {\n  }\n }\n}\n", "", "3,11-11: Missing required argument"),
        ("job \"a\" {\n periodic {}\n}\n", "/Periodic/SpecType", "null"),
        ("job \"a\" {\n periodic {\n  crons = [\"@daily\"]\n }\n}\n", "/Periodic/SpecType", "\"cron\""),
        ("job \"a\" {\n periodic {\n  cron = \"@daily\"\n }\n}\n", "/Periodic/SpecType", "\"cron\""),
        (r#"{"job": {"a": {"periodic": {"enabled": true}}}}"#, "/Periodic/SpecType", "null"),
    ]);
}

#[test]
fn scaling_policies_differ_in_their_labels() {
    check_tasks(
        &[
            (
                "scaling \"cpu\" {\n max = 1\n}\nscaling \"CPU\" {\n max = 2\n}",
                "",
                "7,1-14: Duplicate scaling \"cpu\" block",
            ),
            (
                "scaling \"Mem\" {\n max = 1\n}\nscaling \"cpu\" {\n max = 2\n}",
                "ScalingPolicies/0/Type",
                "\"vertical_mem\"",
            ),
            ("scaling \"disk\" {\n max = 1\n}", "", "4,9-15: Invalid scaling policy name"),
            (
                "scaling \"cpu\" {\n max = 1\n type = \"vertical_mem\"\n}",
                "",
                "4,1-14: Invalid scaling policy type",
            ),
        ],
        task,
    );
    check_tasks(
        &[(
            r#"{"scaling": {"cpu": {"max": 1}, "CPU": {"max": 2}}}"#,
            "",
            "1,85-86: Duplicate scaling \"cpu\" block",
        )],
        task_json,
    );
}

#[test]
fn the_default_identity_leaves_an_empty_list() {
    check_tasks(
        &[
            ("identity {}", "Identities", "[]"),
            ("identity {}", "Identity/Name", "\"\""),
            ("identity {\n name = \"x\"\n}", "Identity", "null"),
            ("identity {\n name = \"default\"\n}\nidentity {}", "Identities/0/Name", "\"\""),
            ("driver = \"exec\"", "Identities", "null"),
        ],
        task,
    );
    check_tasks(&[(r#"{"identity": {"env": true}}"#, "Identities", "[]")], task_json);
}

#[test]
fn ports_replace_reserved_ports() {
    let network =
        |body: &str| format!("job \"a\" {{\n group \"g\" {{\n  network {{\n{body}\n  }}\n }}\n}}\n");
    let reserved = "reserved_ports \"r\" {\n static = 99\n}\n";
    let fixed = "port \"s\" {\n static = 80\n}\n";
    let dynamic = "port \"d\" {}\n";
    let cases = [
        (network(&format!("{reserved}{fixed}{dynamic}")), "ReservedPorts/0/Value", "80"),
        (network(&format!("{reserved}{fixed}{dynamic}")), "ReservedPorts/1", "null"),
        (network(&format!("{fixed}{reserved}")), "ReservedPorts/0/Label", "\"s\""),
        (network(&format!("{fixed}{reserved}")), "DynamicPorts", "null"),
        (network(&format!("{dynamic}{reserved}")), "ReservedPorts", "null"),
        (network(reserved), "ReservedPorts/0/Value", "99"),
        (network("port \"z\" {\n static = 0\n}"), "DynamicPorts/0/Label", "\"z\""),
        (
            r#"{"job": {"a": {"group": {"g": {"network": {"reserved_ports": {"r": {"static": 99}}, "port": {"s": {"static": 80}, "d": {}}}}}}}}"#
                .to_owned(),
            "ReservedPorts/0/Value",
            "80",
        ),
    ];
    let cases: Vec<_> = cases
        .iter()
        .map(|(text, key, want)| (text.as_str(), format!("/TaskGroups/0/Networks/0/{key}"), *want))
        .collect();
    let cases: Vec<_> = cases.iter().map(|(text, pointer, want)| (*text, pointer.as_str(), *want)).collect();
    check(&cases);
}

/// Checks that an argument with the name of a block is rejected, except `meta` of jobs, groups and tasks and `env` of
/// tasks.
#[test]
fn arguments_with_names_of_blocks_point_to_the_block() {
    for (text, name) in [
        ("job \"a\" {\n group \"g\" {\n  service {\n   meta = {}\n  }\n }\n}\n", "meta"),
        ("job \"a\" {\n group \"g\" {\n  service {\n   canary_meta = {}\n  }\n }\n}\n", "canary_meta"),
        (
            "job \"a\" {\n group \"g\" {\n  task \"t\" {\n   artifact {\n    options = {}\n   }\n  }\n }\n}\n",
            "options",
        ),
        ("job \"a\" {\n group \"g\" {\n  task \"t\" {\n   config = {}\n  }\n }\n}\n", "config"),
        (
            "job \"a\" {\n group \"g\" {\n  task \"t\" {\n   secret \"s\" {\n    env = {}\n   }\n  }\n }\n}\n",
            "env",
        ),
        ("job \"a\" {\n group \"g\" {\n  update = {}\n }\n}\n", "update"),
        ("job \"a\" {\n multiregion {\n  region \"r\" {\n   meta = {}\n  }\n }\n}\n", "meta"),
        ("job = {}\n", "job"),
    ] {
        let found = read(text).unwrap_err().to_string();
        let want = format!(
            "Unsupported argument; An argument named \"{name}\" is not expected here. Did you mean to define a block of type \"{name}\"?"
        );
        assert!(found.contains(&want), "{text}{found}");
    }
    check(&[
        ("job \"a\" {\n meta = {}\n}\n", "/Meta", "{}"),
        ("job \"a\" {\n group \"g\" {\n  meta = { x = 1 }\n }\n}\n", "/TaskGroups/0/Meta/x", "\"1\""),
    ]);
    check_tasks(&[("env = { x = true }", "Env/x", "\"true\"")], task);
}

#[test]
fn null_leaves_only_optional_values_unset() {
    let unsuitable = |place: &str| format!("{place}: Unsuitable value type");
    for (body, place) in [
        ("driver = null", "4,10-14"),
        ("leader = null", "4,10-14"),
        ("volume_mount {}\nkind = null", "5,8-12"),
        ("lifecycle {\n hook = null\n}", "5,9-13"),
        ("env = { x = null }", "4,7-8"),
        ("dispatch_payload {\n file = null\n}", "5,9-13"),
        ("restart {\n interval = null\n}", "5,13-17"),
        ("service {\n tags = [\"a\", null]\n}", "5,9-10"),
    ] {
        check_tasks(&[(body, "", &unsuitable(place))], task);
    }
    check_tasks(
        &[
            ("resources {\n cpu = null\n}", "Resources/CPU", "null"),
            ("template {\n data = null\n}", "Templates/0/EmbeddedTmpl", "null"),
            ("env = null", "Env", "null"),
            ("constraint {\n value = null\n distinct_hosts = null\n}", "Constraints/0/Operand", "\"=\""),
        ],
        task,
    );
    check_tasks(
        &[
            (r#"{"driver": null}"#, "", "1,57-61: Unsuitable value type"),
            (r#"{"leader": null}"#, "", "1,57-61: Unsuitable value type"),
            (r#"{"user": 5}"#, "User", "\"5\""),
        ],
        task_json,
    );
}

#[test]
fn booleans_and_small_numbers_are_checked_at_their_place() {
    check(&[
        (
            "job \"a\" {\n constraint {\n  distinct_hosts = \"yes\"\n }\n}\n",
            "",
            "3,20-25: Incorrect attribute value type",
        ),
        (
            "job \"a\" {\n constraint {\n  distinct_hosts = \"true\"\n }\n}\n",
            "/Constraints/0/RTarget",
            "\"true\"",
        ),
        ("job \"a\" {\n spread {\n  weight = 128\n }\n}\n", "", "3,12-15: Unsuitable value type"),
        ("job \"a\" {\n spread {\n  weight = -128\n }\n}\n", "/Spreads/0/Weight", "-128"),
        (
            "job \"a\" {\n spread {\n  target \"x\" {\n   percent = 256\n  }\n }\n}\n",
            "",
            "4,14-17: Unsuitable value type",
        ),
        ("job \"a\" {\n affinity {\n  weight = 300\n }\n}\n", "/Affinities/0/Weight", "44"),
        ("job \"a\" {\n priority = 9223372036854775808\n}\n", "", "2,13-32: Unsuitable value type"),
        ("job \"a\" {\n all_at_once = 1\n}\n", "", "2,16-17: Unsuitable value type"),
        (
            r#"{"job": {"a": {"constraint": {"distinct_hosts": "yes"}}}}"#,
            "",
            "1,49-54: Incorrect attribute value type",
        ),
    ]);
}

#[test]
fn a_name_stands_once_in_json() {
    check(&[
        (r#"{"job": {"a": {"type": "batch", "type": "batch"}}}"#, "", "1,33-39: Duplicate argument"),
        (r#"{"job": {"a": {"meta": {"x": 1, "x": 2}}}}"#, "", "1,33-36: Duplicate object attribute"),
        (r#"{"job": {"a": {"meta": {"x": 1}, "meta": {"y": 2}}}}"#, "", "1,42-43: Duplicate meta block"),
        (r#"{"locals": {"x": 1, "x": 2}, "job": {"a": {}}}"#, "", "1,21-24: Duplicate attribute definition"),
        (
            r#"{"variables": {"x": 1, "x": 2}, "job": {"a": {}}}"#,
            "",
            "1,24-27: Duplicate attribute definition",
        ),
        (
            r#"{"locals": {"x": {"y": 1, "y": 2}}, "job": {"a": {}}}"#,
            "",
            "1,27-30: Duplicate object attribute",
        ),
    ]);
    check_tasks(
        &[
            (r#"{"driver": "exec", "driver": "docker"}"#, "", "1,65-73: Duplicate argument"),
            (
                r#"{"config": {"command": "x", "command": "y"}}"#,
                "",
                "1,74-83: Duplicate attribute definition",
            ),
            (r#"{"config": {"x": {"y": 1, "y": 2}}}"#, "", "1,72-75: Duplicate object attribute"),
            (r#"{"template": [{"data": "x"}, {"data": "y"}]}"#, "Templates/1/EmbeddedTmpl", "\"y\""),
        ],
        task_json,
    );
}

/// Checks that the free-form `config` of a task and similar blocks reach drivers unchanged.
#[test]
fn free_bodies_become_what_drivers_read() {
    check_tasks(
        &[
            ("config {\n a = null\n}", "Config", "{}"),
            (
                "config {\n m {\n a = null\n b = [null]\n }\n}",
                "Config",
                r#"{"m": [{"a": null, "b": [null]}]}"#,
            ),
            ("config {\n m = { a = null }\n}", "Config", r#"{"m": [{"a": null}]}"#),
            ("config {\n m = { a = { b = 1 } }\n}", "Config", r#"{"m": [{"a": {"b": 1}}]}"#),
            ("config {\n m = [{ a = 1 }]\n}", "Config", r#"{"m": [{"a": 1}]}"#),
            ("config {\n m = ({ a = 1 })\n}", "Config", r#"{"m": {"a": 1}}"#),
            ("config {\n m = merge({ a = 1 }, { b = 2 })\n}", "Config", r#"{"m": {"a": 1, "b": 2}}"#),
            (
                "config {\n m = convert({ x = { a = 1 } }, map(map(string)))\n}",
                "Config",
                r#"{"m": [{"a": "1"}]}"#,
            ),
            (
                "config {\n m = convert({ x = { a = 1 } }, map(object({ a = number })))\n}",
                "Config",
                r#"{"m": [{"a": 1}]}"#,
            ),
            (
                "config {\n m = convert([{ a = 1 }, { a = 2 }], set(map(string)))\n}",
                "Config",
                r#"{"m": [{"a": "1"}, {"a": "2"}]}"#,
            ),
            ("config {\n m = convert({ x = \"y\" }, map(string))\n}", "Config", r#"{"m": {"x": "y"}}"#),
            (
                "config {\n m \"x\" \"y\" {\n a = 1\n }\n m \"x\" \"z\" {\n }\n}",
                "Config",
                r#"{"m": [{"x": [{"y": [{"a": 1}]}]}, {"x": [{"z": [{}]}]}]}"#,
            ),
            ("config {\n m = { a = 1 }\n m {\n b = 2\n }\n}", "Config", r#"{"m": [{"b": 2}]}"#),
            ("secret \"s\" {\n config {\n m = { a = 1 }\n }\n}", "Secrets/0/Config", r#"{"m": [{"a": 1}]}"#),
            (
                "scaling \"cpu\" {\n max = 1\n policy {\n m {\n a = null\n }\n }\n}",
                "ScalingPolicies/0/Policy",
                r#"{"m": [{"a": null}]}"#,
            ),
        ],
        task,
    );
    check_tasks(
        &[
            (r#"{"config": {"a": null, "m": {"a": null}}}"#, "Config", r#"{"m": {"a": null}}"#),
            (r#"{"config": {"m": {"a": {"b": 1}}}}"#, "Config", r#"{"m": {"a": {"b": 1}}}"#),
            (r#"{"config": {"m": [{"a": 1}]}}"#, "Config", r#"{"m": [{"a": 1}]}"#),
            (r#"{"config": {"m": [{"a": 1}, {"b": 2}]}}"#, "Config", r#"{"m": [{"a": 1}, {"b": 2}]}"#),
            (r#"{"config": {"m": [[{"a": 1}]]}}"#, "Config", r#"{"m": [[{"a": 1}]]}"#),
            (r#"{"config": [{"m": {"a": 1}}]}"#, "Config", r#"{"m": {"a": 1}}"#),
            (r#"{"secret": {"s": {"config": {"m": {"a": 1}}}}}"#, "Secrets/0/Config", r#"{"m": {"a": 1}}"#),
        ],
        task_json,
    );
}

/// Checks that unknown settings are only warnings: the driver, on the task's node, validates its settings.
#[test]
fn unknown_settings_of_drivers_are_warnings() {
    for text in [
        task("driver = \"exec\"\nconfig {\n commnd = \"x\"\n}"),
        task("driver = \"docker\"\nconfig {\n image = \"x\"\n unknown {\n a = 1\n }\n}"),
        task("driver = \"raw_exec\"\nconfig {}"),
        task("driver = \"new\"\nconfig {\n any = 1\n}"),
        task_json(r#"{"driver": "exec", "config": {"commnd": "x"}}"#),
    ] {
        let (job, found) = read(&text).unwrap_or_else(|e| panic!("{text}{e}"));
        assert!(!found.has_errors(), "{found}");
        assert!(job.pointer("/TaskGroups/0/Tasks/0/Config").is_some_and(Value::is_object), "{text}");
    }
}
