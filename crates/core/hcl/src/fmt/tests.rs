#![expect(clippy::disallowed_methods, reason = "the recorded cases are files")]

use super::*;
use crate::parse::parse;
use proptest::prelude::*;
use regex::Regex;

/// Returns the syntax tree without source ranges.
fn tree(text: &str) -> Option<String> {
    let mut sources = Sources::default();
    let id = sources.add(Source::new("x", text));
    let body = parse(&sources, id).ok()?;
    let span = Regex::new(r"Span \{ [^}]*\}").unwrap();
    // Ignore the run time text of variables and locals, which are never run time references.
    let runtime = Regex::new(r#"runtime: "\$\{[ ~]*(var|local)\b(\\.|[^"\\])*""#).unwrap();
    let text = format!("{body:?}");
    // Spaces between the steps of a reference belong to its text, but formatting removes them, as in Nomad.
    let steps = Regex::new(r"[ \t]*([.\[])[ \t]*").unwrap();
    let named = Regex::new(r#"runtime: "(\\.|[^"\\])*""#).unwrap();
    let text = span.replace_all(&text, "_");
    let text = runtime.replace_all(&text, "_");
    let close = |found: &regex::Captures<'_>| steps.replace_all(&found[0], "$1").into_owned();
    Some(named.replace_all(&text, close).into_owned())
}

fn same_and_settled(supplied: &str) {
    let once = text(supplied);
    assert_eq!(text(&once), once, "of {supplied:?}");
    if let Some(before) = tree(supplied) {
        assert!(tree(&once).as_ref() == Some(&before), "{supplied}\nbecame\n{once}");
    }
}

#[test]
fn layout() {
    let cases = [
        ("a=1\nlonger = 2\n\nb=3\n", "a      = 1\nlonger = 2\n\nb = 3\n"),
        (
            "job \"a\"   {\ntype=\"batch\"\n      group \"g\"{\n  count=1\n}\n}",
            "job \"a\" {\n  type = \"batch\"\n  group \"g\" {\n    count = 1\n  }\n}",
        ),
        ("a = 1 # one\nbb = 22 // two\n", "a  = 1  # one\nbb = 22 // two\n"),
        ("  # alone\na=[\n1,\n2 ,\n]\n", "# alone\na = [\n  1,\n  2,\n]\n"),
        ("x={a=1,b:2}\nyy={}\n", "x  = { a = 1, b : 2 }\nyy = {}\n"),
        ("x = [ for  k,v in m:k=>v if v>1 ]\n", "x = [for k, v in m : k => v if v > 1]\n"),
        ("x = - 1\ny = a-b - 2\nz=!  c\nw = f( a,b... )\n", "x = -1\ny = a-b - 2\nz = !c\nw = f(a, b...)\n"),
        ("x = a [0] . b\n", "x = a[0].b\n"),
        ("x = cond?1:2\n", "x = cond ? 1 : 2\n"),
        ("a {\n  b=1\n  long = [\n 1\n]\n  c=2\n}\n", "a {\n  b = 1\n  long = [\n    1\n  ]\n  c = 2\n}\n"),
        ("a {}\nb { c=1 }\n", "a {}\nb { c = 1 }\n"),
        ("f = g({\na=1\n})\nn=1\n", "f = g({\n  a = 1\n})\nn = 1\n"),
        ("m = \"a${  upper( var.x ) }b\"\n", "m = \"a${upper(var.x)}b\"\n"),
        ("x=<<EOT\n  keep   this = 1\n  EOT\nyy=1\n", "x  = <<EOT\n  keep   this = 1\n  EOT\nyy = 1\n"),
        ("x = [for a in [1]:a]\n", "x = [for a in [1] : a]\n"),
        ("a = 1   \n   \nb = 2\t\n", "a = 1\n\nb = 2\n"),
        ("a /* c */ = 1\n", "a /* c */ = 1\n"),
        ("a = 1\r\nbb = 2\r\n", "a  = 1\r\nbb = 2\r\n"),
        ("x = \"%{ if a }b%{ endif ~}\"\n", "x = \"%{if a}b%{endif~}\"\n"),
        ("x = a.*.b\ny = a[ * ].b\n", "x = a.*.b\ny = a[*].b\n"),
    ];
    for (supplied, expected) in cases {
        assert_eq!(text(supplied), expected, "of {supplied:?}");
        same_and_settled(supplied);
    }
}

#[test]
fn blanks_that_mean_something_stay() {
    for supplied in
        ["x = \"${ NOMAD_IP_http }\"\n", "x = \"${ env[\"HOME\"] }\"\n", "x = \"${  attr . os }\"\n"]
    {
        assert_eq!(text(supplied), supplied);
    }
    assert_eq!(text("x = \"${ var.a }\"\n"), "x = \"${var.a}\"\n");
}

#[test]
fn what_cannot_be_read_is_not_formatted() {
    let error = file(&Source::new("broken.hcl", "job \"a\" {")).unwrap_err().to_string();
    assert!(error.contains("broken.hcl:1,9-10: Unclosed configuration block"), "{error}");
}

#[test]
fn recorded_files_keep_their_meaning() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/jobspec/valid");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let supplied = std::fs::read_to_string(entry.unwrap().path().join("job.nomad.hcl")).unwrap();
        if !supplied.trim_start().starts_with('{') {
            same_and_settled(&supplied);
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn examples_are_formatted() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".nomad.hcl") {
            same_and_settled(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "2.5e3",
        "-1",
        "true",
        "null",
        "\"text\"",
        "\"a $${b} \\\" c\"",
        "var.a",
        "local.b[0]",
        "attr.os.name",
        "\"${NOMAD_IP}\"",
        "\"${ NOMAD_IP }\"",
        "\"x${ upper(var.a) }y\"",
        "\"%{ if true }a%{ else }b%{ endif }\"",
        "a.*.b",
        "a[*].b",
        "[]",
        "{}",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!(
                "[\n{}]",
                items.iter().map(|i| format!("{i},\n")).collect::<String>()
            )),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| {
                let lines = items.iter().enumerate().map(|(n, i)| format!("key{n}=  {i} # c\n"));
                format!("{{\n{}}}", lines.collect::<String>())
            }),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}==  {b}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}\n-\n{b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("{a} ?{b}:{c}")),
            inner.clone().prop_map(|a| format!("upper (  {a} )").replace("upper (", "upper(")),
            inner.clone().prop_map(|a| format!("[ for x in  [{a}] :x ]")),
            inner.prop_map(|a| format!("!{a}")),
        ]
    })
}

fn items() -> impl Strategy<Value = String> {
    let item = prop_oneof![
        4 => ("[a-z]{1,8}", expression()).prop_map(|(name, value)| format!("  {name}  =   {value}")),
        1 => Just("# a comment   ".to_owned()),
        1 => Just("// another".to_owned()),
        1 => Just(String::new()),
        1 => ("[a-z]{1,8}", expression()).prop_map(|(name, value)| format!("{name}={value} # behind")),
        1 => "[a-z]{1,8}".prop_map(|name| format!("{name} = <<-EOT\n   a ${{var.x}}\n  b\n   EOT")),
    ];
    let list = prop::collection::vec(item, 0..5);
    list.clone()
        .prop_recursive(3, 12, 3, move |inner| {
            (list.clone(), inner).prop_map(|(mut before, inside)| {
                before.push(format!("block \"x\"  name{{\n{}\n}}", inside.join("\n")));
                before
            })
        })
        .prop_map(|lines| format!("{}\n", lines.join("\n")))
}

proptest! {
    #[test]
    fn formatting_settles_and_changes_nothing(supplied in items()) {
        same_and_settled(&supplied);
    }

    #[test]
    fn any_text_keeps_all_but_blanks(supplied in "(?s).{0,120}") {
        let plain = |t: &str| t.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r')).collect::<String>();
        prop_assert_eq!(plain(&text(&supplied)), plain(&supplied));
    }

    #[test]
    fn tokens_of_the_language_settle(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", "(", ")", "\"", "${", "%{", "~}", "=", "==", "?", ":", ",", ".", "...", "<<EOT\n", "EOT\n",
            "\n", " ", "x", "in", "1", "-", "!", "#", "//", "/*", "*/", "é", "\r\n", "\t", "\\",
        ]), 0..40)
    ) {
        let once = text(&pieces.concat());
        let plain = |t: &str| t.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r')).collect::<String>();
        prop_assert_eq!(plain(&once), plain(&pieces.concat()));
    }
}
