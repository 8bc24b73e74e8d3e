//! Renders diagnostics for people: file, line, source text and an underline.

use super::{Diagnostic, Diagnostics, Severity};
use crate::source::Span;
use ariadne::{Config, Label, Report, ReportKind};
use std::ops::Range;

type Place = (String, Range<usize>);

/// Renders all diagnostics with source lines and underlines; `color` adds terminal colours.
#[must_use]
pub fn pretty(diagnostics: &Diagnostics, color: bool) -> String {
    let mut out = Vec::new();
    for item in diagnostics.items.iter().filter(|item| !item.echo) {
        if item.span.is_some_and(|s| diagnostics.sources.get(s.source).is_some()) {
            let mut one = Vec::new();
            if report(diagnostics, item, color, &mut one).is_ok() {
                out.extend_from_slice(&one);
                continue;
            }
        }
        let word = match item.severity {
            Severity::Error => "Error",
            Severity::Warning => "Warning",
        };
        out.extend_from_slice(
            format!("[{}] {word}: {}\n   {}\n", item.code, item.summary, item.detail).as_bytes(),
        );
        if let Some(hint) = &item.hint {
            out.extend_from_slice(format!("   Help: {hint}\n").as_bytes());
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Renders all diagnostics for programs: `{"diagnostics": [{severity, code, summary, detail, range, labels, hint}]}`.
/// A range has a `file`, and `start` and `end` with `line` and `column` (in characters, both from 1) and `byte`.
#[must_use]
pub fn json(diagnostics: &Diagnostics) -> serde_json::Value {
    use serde_json::json;
    let place = |span: Span, at: usize| {
        let (line, column) = diagnostics.sources.line_column(span.source, at);
        json!({ "line": line, "column": column, "byte": at })
    };
    let range = |span: Span| {
        let file = diagnostics.sources.get(span.source).map(|s| s.name.as_str());
        json!({ "file": file, "start": place(span, span.start), "end": place(span, span.end) })
    };
    let all: Vec<_> = diagnostics
        .items
        .iter()
        .filter(|item| !item.echo)
        .map(|item| {
            json!({
                "severity": match item.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                },
                "code": item.code,
                "summary": item.summary,
                "detail": item.detail,
                "range": item.span.map(range),
                "labels": item.labels.iter().map(|l| json!({ "range": range(l.span), "text": l.text })).collect::<Vec<_>>(),
                "hint": item.hint,
            })
        })
        .collect();
    json!({ "diagnostics": all })
}

fn report(all: &Diagnostics, item: &Diagnostic, color: bool, out: &mut Vec<u8>) -> std::io::Result<()> {
    let place = |span: Span| -> Place {
        let source = all.sources.get(span.source);
        let name = source.map(|s| s.name.clone()).unwrap_or_default();
        let text = source.map_or("", |s| s.text.as_str());
        // Positions in JSON strings ignore escapes, so they may fall within a character.
        let boundary = |at: &usize| text.is_char_boundary(*at);
        let (from, to) = (span.start.min(text.len()), span.end.max(span.start).min(text.len()));
        let start = (0..=from).rev().find(boundary).unwrap_or_default();
        (name, start..(to..=text.len()).find(boundary).unwrap_or(text.len()))
    };
    let Some(span) = item.span else { return Ok(()) };
    let kind = match item.severity {
        Severity::Error => ReportKind::Error,
        Severity::Warning => ReportKind::Warning,
    };
    let mut report = Report::build(kind, place(span))
        .with_code(item.code)
        .with_message(&item.summary)
        .with_config(Config::default().with_color(color).with_index_type(ariadne::IndexType::Byte))
        .with_label(Label::new(place(span)).with_message(&item.detail));
    for label in &item.labels {
        report = report.with_label(Label::new(place(label.span)).with_message(&label.text));
    }
    if let Some(hint) = &item.hint {
        report = report.with_help(hint);
    }
    let mut texts: Vec<(String, String)> = Vec::new();
    for span in std::iter::once(span).chain(item.labels.iter().map(|l| l.span)) {
        if let Some(source) = all.sources.get(span.source)
            && !texts.iter().any(|(name, _)| *name == source.name)
        {
            texts.push((source.name.clone(), source.text.clone()));
        }
    }
    report.finish().write(ariadne::sources(texts), out)
}
