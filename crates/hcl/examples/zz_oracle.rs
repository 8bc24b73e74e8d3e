#![allow(warnings)]
use caravan_hcl::diag::Diagnostic;
use caravan_hcl::eval::functions::Files;
use caravan_hcl::eval::{Evaluator, Scope};
use caravan_hcl::source::{SourceId, Span};
use caravan_hcl::value::{MapKind, SeqKind, Type, Value};
use std::io::{BufRead, Write};

fn js(s: &str) -> String {
    // Go escapes U+2028 and U+2029 even without HTML escaping, and control characters its own way.
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}
fn typ(t: &Type) -> String {
    match t {
        Type::Any => "any".into(),
        Type::Str => "string".into(),
        Type::Num => "number".into(),
        Type::Bool => "bool".into(),
        Type::List(t) => format!("list({})", typ(t)),
        Type::Set(t) => format!("set({})", typ(t)),
        Type::Map(t) => format!("map({})", typ(t)),
        Type::Tuple(ts) => format!("tuple([{}])", ts.iter().map(typ).collect::<Vec<_>>().join(",")),
        Type::Object(ts) => format!(
            "object({{{}}})",
            ts.iter().map(|(k, t)| format!("{}={}", js(k), typ(t))).collect::<Vec<_>>().join(",")
        ),
    }
}
fn show(v: &Value) -> String {
    match v {
        Value::Null(t) => format!("null({})", typ(t)),
        Value::Bool(b) => b.to_string(),
        Value::Num(n) => n.to_string(),
        Value::Str(s) => js(s),
        Value::Seq(k, t, items) => {
            let k = match k {
                SeqKind::Tuple => "tuple".into(),
                SeqKind::List => format!("list({})", typ(t)),
                SeqKind::Set => format!("set({})", typ(t)),
            };
            format!("{k}[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
        }
        Value::Map(k, t, map) => {
            let k = match k {
                MapKind::Object => "object".into(),
                MapKind::Map => format!("map({})", typ(t)),
            };
            format!(
                "{k}{{{}}}",
                map.iter().map(|(k, v)| format!("{}={}", js(k), show(v))).collect::<Vec<_>>().join(",")
            )
        }
    }
}
fn diag(d: &Diagnostic) -> String {
    let at = d.span.map_or("nil".into(), |s| format!("{}-{}", s.start, s.end));
    format!("error@{at} {}; {}", d.summary, d.detail.replace('\n', " "))
}
fn body(b: &caravan_hcl::ast::Body, ev: &Evaluator) -> String {
    let mut out = String::new();
    let mut attrs: Vec<_> = b.attributes.iter().collect();
    attrs.sort_by(|a, b| a.name.text.cmp(&b.name.text));
    for a in attrs {
        out += &match ev.eval(&a.value, &Scope::default()) {
            Ok(v) => format!("{}={};", a.name.text, show(&v)),
            Err(d) => format!("{}={};", a.name.text, diag(&d)),
        };
    }
    for bl in &b.blocks {
        let labels: Vec<_> = bl.labels.iter().map(|l| format!("{:?}", l.text)).collect();
        out += &format!("{}[{}]{{{}}}", bl.kind.text, labels.join(" "), body(&bl.body, ev));
    }
    out
}
fn eval(text: &str, mode: &str) -> String {
    let mut ev = Evaluator::new(Files::Within(std::env::current_dir().unwrap()));
    ev.set_root(
        "var",
        Value::object(
            [
                ("n".to_owned(), Value::int(3)),
                ("name".to_owned(), Value::str("web")),
                ("nolist".to_owned(), Value::Null(Type::List(Box::new(Type::Str)))),
                ("nomap".to_owned(), Value::Null(Type::Map(Box::new(Type::Str)))),
                ("nostr".to_owned(), Value::Null(Type::Str)),
                ("list".to_owned(), Value::strings(["a".to_owned(), "b".to_owned()])),
                ("map".to_owned(), Value::map(Type::Str, [("k".to_owned(), Value::str("v"))].into())),
            ]
            .into(),
        ),
    );
    let id = SourceId::default();
    let run = |e: Result<caravan_hcl::ast::Expr, Vec<Diagnostic>>| match e {
        Err(d) => format!("parse{}", diag(&d[0])),
        Ok(e) => match ev.eval(&e, &Scope::default()) {
            Ok(v) => show(&v),
            Err(d) => diag(&d),
        },
    };
    match mode {
        "" | "expr" => run(caravan_hcl::parse::native::parse_expression(text, id)),
        "template" => run(caravan_hcl::parse::native::parse_template_text(
            text,
            Span { source: id, start: 0, end: text.len() + 2 },
        )),
        "json" => run(caravan_hcl::parse::json::parse_json(text, id).and_then(|j| {
            caravan_hcl::parse::json::expression(&j, caravan_hcl::parse::json::Strings::Templates)
        })),
        "type" => match caravan_hcl::parse::native::parse_expression(text, id) {
            Err(d) => format!("parse{}", diag(&d[0])),
            Ok(e) => match caravan_hcl::types::type_expression(&e) {
                Ok(t) => typ(&t),
                Err(d) => diag(&d),
            },
        },
        "body" => match caravan_hcl::parse::native::parse_body(text, id) {
            Err(d) => format!("parse{}", diag(&d[0])),
            Ok(b) => body(&b, &ev),
        },
        "parse" => match caravan_hcl::parse::native::parse_body(text, id) {
            Err(d) => format!("parse{}", diag(&d[0])),
            Ok(_) => "ok".into(),
        },
        "job" | "jobjson" => {
            let src = caravan_hcl::source::Source::new("f", text);
            let opts = caravan_hcl::job::ParseOptions { strict: true, ..Default::default() };
            let r = if mode == "job" {
                caravan_hcl::job::parse(&src, &opts)
                    .map(|(j, w)| format!("{} W:{}", clean(serde_json::to_value(&j).unwrap()), w))
                    .map_err(|e| e.to_string())
            } else {
                caravan_hcl::job::parse_api_json(text)
                    .map(|j| format!("{}", serde_json::to_value(&j).unwrap()))
                    .map_err(|e| e.to_string())
            };
            match r {
                Ok(s) => s,
                Err(e) => format!("ERR {e}"),
            }
        }
        "yaml" => match caravan_hcl::eval::functions::of_text("yamldecode", text) {
            Ok(v) => show(&v),
            Err(e) => format!("error@nil {e}"),
        },
        _ => "?".into(),
    }
}
fn main() {
    for line in std::io::stdin().lock().lines() {
        let v: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        println!(
            "{}",
            eval(v["Expr"].as_str().unwrap(), v["Mode"].as_str().unwrap_or("")).replace('\n', "\\n")
        );
    }
}

fn clean(v: serde_json::Value) -> serde_json::Value {
    use serde_json::Value as J;
    match v {
        J::Object(m) => {
            J::Object(m.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, clean(v))).collect())
        }
        J::Array(a) => J::Array(a.into_iter().map(clean).collect()),
        v => v,
    }
}
