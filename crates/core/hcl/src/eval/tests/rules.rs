//! Compares the results of expressions to recorded results of Nomad: one table per rule, and the places of errors.

use crate::eval::functions::Files;
use crate::eval::{Evaluator, Scope};
use crate::parse::native::parse_expression;
use crate::source::SourceId;
use crate::value::{Type, Value};

fn evaluator() -> Evaluator {
    let mut evaluator = Evaluator::new(Files::Within(env!("CARGO_MANIFEST_DIR").into()));
    let list = Type::List(Box::new(Type::Str));
    let var = [
        ("n".to_owned(), Value::int(3)),
        ("list".to_owned(), Value::strings(["a".to_owned(), "b".to_owned()])),
        ("map".to_owned(), Value::map(Type::Str, [("k".to_owned(), Value::str("v"))].into())),
        ("nolist".to_owned(), Value::Null(list)),
        ("nostr".to_owned(), Value::Null(Type::Str)),
    ];
    evaluator.set_root("var", Value::object(var.into()));
    evaluator
}

/// Returns the JSON of the value, or `start-end summary` of the error.
fn eval(text: &str) -> String {
    let found = parse_expression(text, SourceId::default())
        .map_err(|mut errors| Box::new(errors.remove(0)))
        .and_then(|expr| evaluator().eval(&expr, &Scope::default()));
    match found {
        Ok(value) => value.to_json().to_string(),
        Err(e) => {
            let span = e.span.unwrap();
            format!("{}-{} {}", span.start, span.end, e.summary)
        }
    }
}

/// Checks one case per line: expression, `->`, result. Further lines of an expression begin with a bar.
fn check(table: &str) {
    let mut wrong = Vec::new();
    for line in table.lines().filter(|l| !l.trim().is_empty()) {
        let (text, want) = line.rsplit_once(" -> ").unwrap();
        let have = eval(text.trim());
        if have != want.trim() {
            wrong.push(format!("{text}\n  want {want}\n  have {have}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn strings_are_normalised_and_mapped_one_to_one() {
    check(
        r#"
"é" == "é" -> true
strlen("é") -> 1
{"é" = 1}["é"] -> 1
jsondecode("\"e\\u0301\"") == "é" -> true
{é = 1}.é -> 1
{"é" = 1}.é -> 1
[{é = 1}][*].é -> [1]
[{é = [1]}].*.é.0 -> [1]
keys({"é" = 1})[0] == "é" -> true
lower("İI") -> "ii"
upper("straße ŉ ΐ ᾳ") -> "STRAßE ŉ ΐ ᾼ"
title("ǆ ǉab ß ა o'neil a_b") -> "ǅ ǈab ß ა O'Neil A_b"
format("%.2s|", "éaáb") -> "éa|"
format("%5s|", "👩‍👩‍👧") -> "    👩‍👩‍👧|"
substr("héllo", -3, 0) -> "llo"
substr("héllo", 1, 0) -> ""
split("", "éa") -> ["é","a"]
"#,
    );
}

#[test]
fn heredocs_keep_their_line_ends() {
    assert_eq!(eval("<<EOT\r\na\r\n b\r\nEOT\r\n"), "\"a\\r\\n b\\r\\n\"");
    assert_eq!(eval("<<-EOT\r\n  a\r\n   ${1}\r\n  EOT\r\n"), "\"a\\r\\n 1\\r\\n\"");
    assert_eq!(eval("<<EOT\na\nEOT"), "10-10 Unterminated template string".replace("10-10", "11-11"));
    assert_eq!(eval("\"a\r\""), "2-3 Invalid multi-line string");
}

#[test]
fn formats_and_dates() {
    check(
        r#"
format("% d|%#x|%#o|%#b|%+d|%05d|%-5d|", 5, 255, 8, 2, 3, 42, 7) -> " 5|0xff|010|0b10|+3|00042|7    |"
format("%d", 1.5) -> 0-7 Error in function call
format("%d", "12") -> "12"
format("%v %v", 1000000, 0.00001) -> "1e+06 1e-05"
format("%F", 1) -> 0-7 Error in function call
format("%s") -> 0-7 Error in function call
format("x", 1) -> 12-13 Invalid function argument
format("%[2]s %[1]s", "a", "b") -> "b a"
format("%s", null) -> 0-7 Error in function call
format("%v", null) -> "null"
formatlist("%s-%d", ["a", "b"], [1, 2]) -> ["a-1","b-2"]
formatlist("%s-%d", ["a"], [1, 2]) -> 27-28 Invalid function argument
formatdate("'o''clock' ''H''", "2024-01-01T13:00:00Z") -> "o'clock '1'"
formatdate("YYYY-MM-DD'T'hh:mm:ssZ", "2024-02-29T23:59:58+05:30") -> "2024-02-29T23:59:58+05:30"
formatdate("'open", "2024-01-01T13:00:00Z") -> 12-17 Invalid function argument
formatdate("YYY", "2024-01-01T13:00:00Z") -> 12-15 Invalid function argument
formatdate("YYYY", "2024-02-30T13:00:00Z") -> 20-40 Invalid function argument
timeadd("2024-02-30T13:00:00Z", "1h") -> 0-8 Error in function call
timeadd("2024-01-01T00:00:00+24:00", "1h") -> 0-8 Error in function call
timeadd("0000-01-01T00:00:00Z", "-1ms") -> "-0001-12-31T23:59:59Z"
"#,
    );
}

#[test]
fn numbers() {
    check(
        r#"
"${-0}" -> 0
"x${-0}" -> "x-0"
jsonencode([-0, 0 * -1, 0 / -5]) -> "[-0,-0,-0]"
"x${ceil(-0.2)}${0 - 0}${-0 - 0}${-0 + 0}" -> "x00-00"
-0 == 0 -> true
5 % 0 -> 5
"x${1 / 0}" -> "x+Inf"
"x${-1 / 0}" -> "x-Inf"
0 / 0 -> 0-5 Operation failed
1 / 0 - 1 / 0 -> 0-13 Operation failed
1 / 0 > 5 -> true
jsonencode(1 / 0) -> 0-11 Error in function call
signum(-3) -> -1
signum(1.5) -> 0-7 Error in function call
convert(" 5", number) -> 9-11 Invalid function argument
convert("5 ", number) -> 9-11 Invalid function argument
convert("1e3", number) -> 1000
convert("0x1f", number) -> 9-13 Invalid function argument
"x${0.1 + 0.2}" -> "x0.3"
"x${pow(10, 1.5)}" -> "x31.622776601683796"
"x${pow(69, 10)}" -> "x2446194060654760000"
"x${log(1e30, 3)}" -> "x62.87709822868155"
"x${pow(95, 2) - pow(47, 10)}" -> "x-52599132235821020"
"x${1.5 % 0.4 == 0.3}" -> "xfalse"
1.e5 -> 100000
1.5.2 -> 0-5 Invalid number literal
-null -> 0-5 Operation failed
1 + null -> 0-8 Operation failed
"#,
    );
    assert!(eval("\"x${1 / 3}\"").starts_with("\"x0.3333333333333333333333333333333333333333333"));
}

#[test]
fn functions_refuse_what_the_reference_refuses() {
    check(
        r#"
length({a = 1}) -> 0-7 Error in function call
length(var.map) -> 1
contains(["a"], null) -> 16-20 Invalid function argument
contains(["a", null], "b") -> false
bcrypt("x", 32) -> 0-7 Error in function call
bcrypt("x", 1.5) -> 0-7 Error in function call
fileexists("src") -> 0-11 Error in function call
fileexists("nothing") -> false
cidrnetmask("2001:db8::/61") -> "ffff:ffff:ffff:fff8::"
csvdecode("a,a\n1,2") -> 0-10 Error in function call
csvdecode("a,b\r\n\"x\"\"y\",\"1\n2\"\n\n3,4") -> [{"a":"x\"y","b":"1\n2"},{"a":"3","b":"4"}]
csvdecode("a\n\"x\"y") -> 0-10 Error in function call
convert([["b"], ["a", "b"], ["a"]], set(list(string))) -> [["a","b"],["a"],["b"]]
convert(["b", null, "a"], set(string)) -> ["a","b",null]
index(["a"], "0") -> 0-6 Error in function call
lookup(var.map, "k", 5) -> "v"
lookup(var.map, "z", []) -> 21-22 Invalid function argument
slice([1, 2], 1, 3) -> 17-18 Invalid function argument
range(1, 5, -1) -> 9-10 Invalid function argument
setproduct(["a"], 1) -> 18-19 Invalid function argument
parseint(10, 10) -> 9-11 Invalid function argument
zipmap(["a"], ["x", "y"]) -> 0-7 Error in function call
max("x") -> 5-6 Invalid function argument
join(",", ["a", null]) -> 10-11 Invalid function argument
jsondecode("\"\\ud800x\"") -> "�x"
jsondecode("{\"a\":1,\"a\":\"x\"}") -> 0-11 Error in function call
coalesce(null, "", "x") -> ""
upper(1, 2) -> 9-10 Too many function arguments
upper() -> 6-7 Not enough function arguments
upper(null) -> 6-10 Invalid function argument
upper ("a") -> "A"
max([1, 2]...) -> 2
max(1...) -> 4-5 Invalid expanding argument value
try() -> 0-4 Error in function call
"#,
    );
}

#[test]
fn conversions() {
    check(
        r#"
convert([1, "a"], any) -> [1,"a"]
convert({a = 1}, object({a = any})) -> {"a":1}
convert([1, "a", true], list(any)) -> ["1","a","true"]
convert([1, [2]], list(any)) -> 8-9 Invalid function argument
convert({a = [1], b = ["x", "y"]}, map(any)) -> {"a":["1"],"b":["x","y"]}
convert("a", "string") -> 13-21 Invalid type specification
convert("a", (string)) -> 13-21 Invalid type specification
convert("a") -> 11-12 Not enough function arguments
convert(null, list(string)) -> null
convert(var.nolist, string) -> 8-18 Invalid function argument
convert("TRUE", bool) -> 9-13 Invalid function argument
convert(convert({a = "1"}, map(string)), object({a = number})) -> {"a":1}
true ? null : ["a"] -> null
true ? [1] : ["a", "b"] -> ["1"]
true ? {a = 1} : {b = "x"} -> {"a":"1"}
true ? 1 : [1] -> 7-14 Inconsistent conditional result types
null ? 1 : 2 -> 0-4 Null condition
var.nostr == null -> true
var.list == ["a", "b"] -> false
"#,
    );
}

#[test]
fn indexes_and_splats() {
    check(
        r#"
var.list.1 -> "b"
["a", "b"].0 -> "a"
{a = ["x"]}.a.0 -> "x"
[{a = ["x"]}].*.a.0 -> ["x"]
[{a = ["x"]}][*].a.0 -> ["x"]
var.list.0.1 -> 9-12 Invalid legacy index syntax
foo.0.1 -> 4-7 Invalid legacy index syntax
var.nolist[*] -> 0-10 Splat of null value
var.nostr[*] -> []
null[*].a -> []
(true ? null : ["a"])[*] -> 0-21 Splat of null value
[[{id = 1}, {id = 2}], [{id = 3}]][*][*].id -> [[1,2],[3]]
[{a = [{b = 1}, {b = 2}]}][*].a[*].b -> [[1,2]]
[{a = [{b = 1}]}].*.a.*.b -> 22-23 Nested splat expression not allowed
var.list[*] == var.list -> true
[[1, 2]] [ * ] . 0 -> [1]
foo .bar -> "${foo .bar}"
"a"[*] -> ["a"]
"#,
    );
}
