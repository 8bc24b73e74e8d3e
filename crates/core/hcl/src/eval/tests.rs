//! Tests of expressions: each result as JSON, or the text of the error.

mod rules;

use super::functions::Files;
use super::{Evaluator, Scope};
use crate::parse::native::parse_expression;
use crate::source::SourceId;
use crate::value::Value;

fn eval(text: &str) -> Result<String, String> {
    let expr = parse_expression(text, SourceId::default()).map_err(|e| {
        e.iter().map(|d| format!("{}; {}", d.summary, d.detail)).collect::<Vec<_>>().join("\n")
    })?;
    let mut evaluator = Evaluator::new(Files::Within(env!("CARGO_MANIFEST_DIR").into()));
    let var = [("n".to_owned(), Value::int(3)), ("name".to_owned(), Value::str("web"))].into();
    evaluator.set_root("var", Value::object(var));
    evaluator
        .eval(&expr, &Scope::default())
        .map(|v| v.to_json().to_string())
        .map_err(|d| format!("{}; {}", d.summary, d.detail))
}

#[test]
fn values() {
    for (text, want) in [
        ("1 + 2 * 3 - 4 / 2", "5"),
        ("(1 + 2) * 3", "9"),
        ("-2 + 5", "3"),
        ("9223372036854775807 - 1", "9223372036854775806"),
        ("true && !false || false", "true"),
        ("1 == 1.0", "true"),
        ("\"a\" == 1", "false"),
        ("null == null", "true"),
        ("[1, 2] == [1, 2]", "true"),
        ("var.n > 2 ? \"many\" : \"few\"", "\"many\""),
        ("true ? 1 : \"x\"", "\"1\""),
        ("true ? [1] : [\"a\", \"b\"]", "[\"1\"]"),
        ("false ? { a = 1 } : {}", "{}"),
        ("\"${var.name}-${var.n}\"", "\"web-3\""),
        ("\"%{ for x in [1, 2] }${x};%{ endfor }\"", "\"1;2;\""),
        ("\"a\\tb\\u0041\"", "\"a\\tbA\""),
        ("\"$${x} %%{y}\"", "\"${x} %{y}\""),
        ("[for x in [3, 1]: x * 2]", "[6,2]"),
        ("[for i, x in [\"a\"]: \"${i}${x}\"]", "[\"0a\"]"),
        ("{for k, v in {a = 1}: v => k}", "{\"1\":\"a\"}"),
        ("{for x in [\"a\", \"b\", \"a\"]: x => x...}", "{\"a\":[\"a\",\"a\"],\"b\":[\"b\"]}"),
        ("[for x in [1, 2, 3]: x if x > 1]", "[2,3]"),
        ("[{a = 1}, {a = 2}][*].a", "[1,2]"),
        ("[{a = 1}, {a = 2}].*.a", "[1,2]"),
        ("[[1], [2]][*][0]", "[1,2]"),
        ("null[*]", "[]"),
        ("[1, 2, 3][var.n - 1]", "3"),
        ("{a = {b = [10]}}.a.b[0]", "10"),
        ("{\"a b\" = 1}[\"a b\"]", "1"),
        ("{a: 1, b: 2}", "{\"a\":1,\"b\":2}"),
        ("attr.kernel.name", "\"${attr.kernel.name}\""),
        ("\"x${env[\"HOME\"]}y\"", "\"x${env[\\\"HOME\\\"]}y\""),
        ("\"${ NOMAD_IP_http }\"", "\"${ NOMAD_IP_http }\""),
        ("upper(\"${attr.a}\")", "\"${ATTR.A}\""),
        ("try(var.none, \"else\")", "\"else\""),
        ("can(var.name)", "true"),
        ("convert(\"5\", number) + 1", "6"),
        ("convert([\"b\", \"a\", \"b\"], set(string))", "[\"a\",\"b\"]"),
        ("max([1, 5, 3]...)", "5"),
        ("join(\"-\", [\"a\"], [\"b\", 1])", "\"a-b-1\""),
        ("format(\"%03d|%-4s|%.2f|%q\", 7, \"ab\", 2, \"q\")", "\"007|ab  |2.00|\\\"q\\\"\""),
        ("jsonencode({b = [1, null], a = \"<\"})", "\"{\\\"a\\\":\\\"\\\\u003c\\\",\\\"b\\\":[1,null]}\""),
        ("jsondecode(\"{\\\"n\\\": 12345678901234567890}\").n", "1.2345678901234567e+19"),
        (
            "yamldecode(\"a:\\n  - b: 1\\n    c: x\\n  - [1, 'two']\\nd: >\\n  f\\n  g\\n\")",
            "{\"a\":[{\"b\":1,\"c\":\"x\"},[1,\"two\"]],\"d\":\"f g\\n\"}",
        ),
        ("yamldecode(\"- a\\n-\\n  k: v\\n- ~\\n\")", "[\"a\",{\"k\":\"v\"},null]"),
        ("yamldecode(\"a: &x {k: 1, l: 2}\\nb:\\n  <<: *x\\n  k: 3\\n\").b", "{\"k\":3,\"l\":2}"),
        ("yamldecode(\"- {<<: {a: 1}, b: 2}\\n\")[0]", "{\"a\":1,\"b\":2}"),
        ("yamldecode(\"? a b\\n: 1\\nc: 2\\n\")", "{\"a b\":1,\"c\":2}"),
        (
            "yamldecode(\"a: !!str 5\\nb: !!float 2\\nc: !!seq\\n- 1\\nd: !!binary aGk=\\n\")",
            "{\"a\":\"5\",\"b\":2,\"c\":[1],\"d\":\"aGk=\"}",
        ),
        (
            "yamldecode(\"- 2001-12-14t21:59:43.10-05:00\\n- 2001-2-3 4:05:06\\n\")",
            "[\"2001-12-14T21:59:43-05:00\",\"2001-02-03T04:05:06Z\"]",
        ),
        ("csvdecode(\"a,b\\n1,\\\"x,y\\\"\\n\")", "[{\"a\":\"1\",\"b\":\"x,y\"}]"),
        (
            "formatdate(\"EEE D MMM YY hh:mm:ss ZZZZZ\", \"2024-02-29T23:59:58Z\")",
            "\"Thu 29 Feb 24 23:59:58 +00:00\"",
        ),
        ("timeadd(\"2024-02-29T00:00:00Z\", \"24h\")", "\"2024-03-01T00:00:00Z\""),
        ("cidrsubnets(\"10.1.0.0/16\", 4, 4, 8)", "[\"10.1.0.0/20\",\"10.1.16.0/20\",\"10.1.32.0/24\"]"),
        ("cidrhost(\"10.0.0.0/8\", -1)", "\"10.255.255.255\""),
        ("regex_replace(\"a[b&c\", \"[[&]\", \"-\")", "\"a-b-c\""),
        ("regex_replace(\"1٣ é\", \"\\\\d|\\\\w\", \"-\")", "\"-٣ é\""),
        ("regex_replace(\"a.b\", \"\\\\Q.\\\\E(b)\", \"<$1>\")", "\"a<b>\""),
        ("regex_replace(\"a1b22\", \"[0-9]+\", \"#\")", "\"a#b#\""),
        ("distinct([1, \"1\", 2])", "[\"1\",\"2\"]"),
        ("setunion([1], [\"1\", \"b\"])", "[\"1\",\"b\"]"),
        ("setintersection([1, 2], [2, 3])", "[2]"),
        ("title(\"it's a—b ćo\")", "\"It'S A—b Ćo\""),
        ("strlen(\"👩‍👩‍👧e\\u0301\")", "2"),
        ("\"${1 / 4}\"", "0.25"),
        ("\"x${1 / 4}\"", "\"x0.25\""),
        ("strlen(\"${2 / 3}\") > 150", "true"),
        ("18446744073709551615 * 3", "5.5340232221128655e+19"),
        ("\"x${18446744073709551615 * 3}\"", "\"x55340232221128654845\""),
        ("format(\"%g %g %.3g %e\", 1000000, 0.5, 3.14159, 12)", "\"1e+06 0.5 3.14 1.200000e+01\""),
        ("parseint(\"ffffffffffffffffffff\", 16) > 1e20", "true"),
        ("base64decode(\"aGVs\\nbG8=\")", "\"hello\""),
        ("setproduct([\"a\"], [1, 2])", "[[\"a\",1],[\"a\",2]]"),
        ("range(5, 0, -2)", "[5,3,1]"),
        ("fileexists(\"Cargo.toml\")", "true"),
        ("contains(fileset(\"src\", \"**/mod*.rs\"), \"nothing\")", "false"),
    ] {
        assert_eq!(eval(text).as_deref(), Ok(want), "{text}");
    }
}

#[test]
fn errors() {
    for (text, want) in [
        ("1 +", "Missing expression"),
        ("[1, 2", "Unterminated tuple constructor"),
        ("\"abc", "Unterminated template string"),
        ("0 / 0", "Operation failed"),
        ("var.nane", "no attribute"),
        ("var.name.x", "Can't access attributes on a primitive-typed value"),
        ("[1][5]", "Invalid index"),
        ("uper(\"x\")", "There is no function named \"uper\""),
        ("upper()", "Not enough function arguments"),
        ("upper(1, 2)", "Too many function arguments"),
        ("upper(null)", "argument must not be null"),
        ("\"x${null}\"", "Cannot include a null value"),
        ("\"x${[1]}\"", "string required, but have tuple"),
        ("{for x in [1, 1]: x => x}", "Duplicate object key"),
        ("[for x in 5: x]", "Iteration over non-iterable value"),
        ("attr.a + 1", "Invalid operand"),
        ("file(\"../types/Cargo.toml\")", "outside the job file's directory"),
        ("file(\"/etc/passwd\")", "outside the job file's directory"),
        ("file(\"no\")", "no file exists at no"),
        ("range(1e9)", "more than 1024 values"),
        ("1 2", "Extra characters after expression"),
        ("true ? 1", "Missing false expression"),
        ("yamldecode(\".nan\")", "NaN is not supported"),
        ("yamldecode(\"a: !thing 5\")", "unsupported tag"),
        ("yamldecode(\"a: !!int x\")", "cannot parse"),
        ("yamldecode(\"<<: 1\")", "cannot merge"),
    ] {
        let error = eval(text).expect_err(text);
        let found = error.contains(want)
            || want == "no attribute" && error.contains("does not have an attribute named \"nane\"");
        assert!(found, "{text}: {error}");
    }
}
