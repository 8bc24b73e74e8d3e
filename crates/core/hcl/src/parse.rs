//! Parses texts to syntax trees.

mod collections;
mod expr;
pub mod hcl1;
pub mod json;
mod lexical;
pub mod native;
mod scan;
mod template;

use crate::ast::Body;
use crate::diag::Diagnostic;
use crate::source::{SourceId, Sources};

/// The maximum nesting depth of blocks, expressions, templates and JSON values together. The parser checks it before
/// it recurses.
pub const MAX_DEPTH: usize = 96;

/// The maximum number of operators and computed steps (`a + b`, `a[b]`) in one argument, because a chain of them is a
/// deep tree too.
pub const MAX_LINKS: usize = 800;

/// Parses a file: as HCL-JSON if its first character is `{`, else in the native notation.
///
/// # Errors
/// The syntax errors that were found.
pub fn parse(sources: &Sources, id: SourceId) -> Result<Body, Vec<Diagnostic>> {
    let text = sources.get(id).map(|s| s.text.as_str()).unwrap_or_default();
    if text.trim_start().starts_with('{') { json::parse_body(text, id) } else { native::parse_body(text, id) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::eval::{Evaluator, Scope};
    use crate::job::{ParseOptions, parse as parse_job};
    use crate::source::Source;

    /// Generates fragments of the language in any order, more of which parse than of random text.
    fn soup() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "job \"a\" {\n",
            "group \"g\" {\n",
            "task \"t\" {\n",
            "}\n",
            "}",
            "{",
            "[",
            "]",
            "(",
            ")",
            "\"",
            "${",
            "%{",
            "if x",
            "else",
            "endif",
            "for a in b",
            "endfor",
            "~}",
            "=",
            "==",
            "?",
            ":",
            ",",
            ".",
            "...",
            "=>",
            "<<EOT\n",
            "<<-EOT\n",
            "EOT\n",
            "\n",
            " ",
            "x",
            "var.a",
            "local.b",
            "1",
            "1e400",
            "-",
            "!",
            "+",
            "/",
            "%",
            "&&",
            "\\u12",
            "\\",
            "null",
            "true",
            "upper(",
            "range(",
            "for x in [1] : x",
            "dynamic \"task\" {\n",
            "for_each = [1]\n",
            "content {\n",
            "#",
            "//",
            "/*",
            "*/",
            "é",
            "\r\n",
            "\t",
            "'",
            "variable \"v\" {\n",
            "locals {\n",
            "count = ",
            "meta {\n",
            "config {\n",
            "[*]",
            ".*",
            "[0]",
            "~",
            "\u{feff}",
            "\"type\": ",
            "\u{0}",
        ]);
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    fn try_everything(text: &str) {
        crate::probe::ALL.iter().for_each(|(_, probe)| probe(text));
    }

    /// Runs the seeds of the fuzz targets.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the seeds are files")]
    fn no_seed_makes_it_panic() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus");
        let mut seen = 0;
        for (name, probe) in crate::probe::ALL {
            for seed in std::fs::read_dir(corpus.join(name)).unwrap() {
                let bytes = std::fs::read(seed.unwrap().path()).unwrap();
                probe(&String::from_utf8_lossy(&bytes));
                seen += 1;
            }
        }
        assert!(seen > 40, "only {seen} seeds found");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            try_everything(&text);
        }

        #[test]
        fn no_soup_of_tokens_makes_it_panic(text in soup()) {
            try_everything(&text);
            try_everything(&format!("job \"a\" {{\n{text}"));
            try_everything(&format!("x = {text}"));
        }

        #[test]
        fn strings_read_back(text in "[^\\p{Cc}]{0,40}") {
            let mut quoted = String::new();
            for c in text.chars() {
                match c {
                    '"' => quoted.push_str("\\\""),
                    '\\' => quoted.push_str("\\\\"),
                    _ => quoted.push(c),
                }
            }
            let quoted = format!("\"{}\"", quoted.replace("${", "$${").replace("%{", "%%{"));
            let mut sources = Sources::default();
            let id = sources.add(Source::new("x", quoted.as_str()));
            let expr = native::parse_expression(&quoted, id).unwrap();
            let value = Evaluator::literals().eval(&expr, &Scope::default()).unwrap();
            prop_assert_eq!(value, crate::value::Value::str(text));
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the size of the stack is the point")]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let n = 5_000;
        let wrapped = |open: &str, close: &str| format!("x = {}1{}", open.repeat(n), close.repeat(n));
        let mut texts = vec![
            wrapped("(", ")"),
            wrapped("[", "]"),
            wrapped("{a=", "}"),
            wrapped("\"${", "}\""),
            wrapped("-", ""),
            wrapped("!", ""),
            wrapped("f(", ")"),
            wrapped("true ? ", " : 0"),
            wrapped("true ? 1 : ", ""),
            wrapped("[for x in y : ", "]"),
            wrapped("\"%{ if true }", "%{ endif }\""),
            format!("x = a{}", "[0]".repeat(n)),
            format!("x = a{}", ".b".repeat(n)),
            format!("x = a{}", "[b]".repeat(n)),
            format!("x = a{}", ".*".repeat(n)),
            format!("x = 1{}", " + 1".repeat(n)),
            format!("x = 1{}", " * 1 + 1".repeat(n)),
            format!("{}{}", "a {\n".repeat(n), "}\n".repeat(n)),
            format!("{}{}", "{\"a\":".repeat(n), "}".repeat(n)),
            format!("{{\"a\": {}{}}}", "[".repeat(n), "]".repeat(n)),
        ];
        let levels: String = "[b]".repeat(150);
        texts.push(format!("x = {}a{}", "(".repeat(80), format!("{levels})").repeat(80)));
        texts.push(format!("x = {}a{}", "(".repeat(80), format!("{})", "+b".repeat(150)).repeat(80)));
        texts.push(format!("x = {}a{}", "(".repeat(80), format!("{})", "+b".repeat(9)).repeat(80)));
        texts.push(format!("x = \"{}\"", "%{ if true }".repeat(n)));
        texts.push(format!("x = \"{}{}\"", "%{ if true }".repeat(n), "%{ endif }".repeat(n)));
        for text in texts {
            let inner = text.clone();
            // Use a small stack, like that of a server's threads.
            let thread = std::thread::Builder::new()
                .stack_size(2 << 20)
                .spawn(move || try_everything(&inner))
                .unwrap();
            assert!(thread.join().is_ok(), "{}", &text[..40]);
        }
    }

    #[test]
    fn growth_is_bounded() {
        let double: String =
            (0..64).map(|i| format!("l{} = \"${{local.l{i}}}${{local.l{i}}}\"\n", i + 1)).collect();
        let text = format!("locals {{\nl0 = \"0123456789\"\n{double}}}\njob \"a\" {{}}\n");
        let error = parse_job(&Source::new("x", text), &ParseOptions::default()).unwrap_err();
        assert!(error.to_string().contains("String too long"), "{error}");
        let nested = "job \"a\" {\n  name = jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : 1]]])\n}\n";
        let error = parse_job(&Source::new("x", nested), &ParseOptions::default()).unwrap_err();
        assert!(error.to_string().contains("Evaluation too long"), "{error}");
        let lists: String = (0..64).map(|i| format!("l{} = [local.l{i}, local.l{i}]\n", i + 1)).collect();
        let text = format!("locals {{\nl0 = [1]\n{lists}}}\njob \"a\" {{}}\n");
        let error = parse_job(&Source::new("x", text), &ParseOptions::default()).unwrap_err();
        assert!(error.to_string().contains("Evaluation too long"), "{error}");
        let blocks = "job \"a\" {\n  dynamic \"group\" {\n    for_each = range(1000)\n    labels = [\"g\"]\n    content {\n      dynamic \"task\" {\n        for_each = range(1000)\n        labels = [\"t\"]\n        content {\n        }\n      }\n    }\n  }\n}\n";
        let error = parse_job(&Source::new("x", blocks), &ParseOptions::default()).unwrap_err();
        assert!(error.to_string().contains("Evaluation too long"), "{error}");
        for costly in [
            "[for i in range(1000) : bcrypt(\"x\", 20)]",
            "[for i in range(1000) : [for j in range(1000) : \"%{ for k in range(1000) }%{ endfor }\"]]",
            "[for i in range(1000) : [for j in range(1000) : \"${1e-999 / 7}\"]]",
        ] {
            let text = format!("job \"a\" {{\n  name = jsonencode({costly})\n}}\n");
            let error = parse_job(&Source::new("x", text), &ParseOptions::default()).unwrap_err();
            assert!(error.to_string().contains("Evaluation too long"), "{error}");
        }
    }

    #[test]
    fn several_errors_of_one_file_are_found() {
        let text = "job \"a\" {\n  type = 'x'\n  count = 1 +\n  name = \"ok\"\n  group \"g\" {\n    count = [1, 2\n  }\n}\n";
        let mut sources = Sources::default();
        let id = sources.add(Source::new("x", text));
        let errors = parse(&sources, id).unwrap_err();
        assert!(errors.len() >= 3, "{errors:#?}");
    }
}
