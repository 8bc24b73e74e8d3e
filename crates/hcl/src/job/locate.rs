//! Finds the source range of a part of a job. Servers report errors by path; people need the place in the file.

use std::fmt;

use crate::ast::{Block, Body, ExprKind};
use crate::diag::Diagnostic;
use crate::parse;
use crate::source::{SourceId, Sources, Span};
use crate::value::Value;

/// A step from a block to an inner block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The type of the inner block.
    pub kind: &'static str,
    /// Which block of that type.
    pub which: Which,
}

/// The selection of one of several blocks of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The only block, or an unknown one.
    Only,
    /// The block with this label or `name`.
    Named(String),
    /// The block with this index, from 0.
    Nth(usize),
}

impl Step {
    /// Returns a step to the only block of a type.
    #[must_use]
    pub fn only(kind: &'static str) -> Self {
        Self { kind, which: Which::Only }
    }

    /// Returns a step to a named block.
    pub fn named(kind: &'static str, name: impl Into<String>) -> Self {
        Self { kind, which: Which::Named(name.into()) }
    }

    /// Returns a step to a block by its index, from 0.
    #[must_use]
    pub fn nth(kind: &'static str, number: usize) -> Self {
        Self { kind, which: Which::Nth(number) }
    }
}

/// Writes `group "a"`, `constraint 2`, `update`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Only => f.write_str(self.kind),
            Which::Named(name) => write!(f, "{} {name:?}", self.kind),
            Which::Nth(number) => write!(f, "{} {}", self.kind, number + 1),
        }
    }
}

/// Returns the source range that a path leads to, following the path as far as the text allows. Blocks that `dynamic`
/// generates have no range, so the search ends at the enclosing block. The first of `arguments` that the last block
/// sets is selected; an argument may be within a block: `resources.memory`.
///
/// Returns `None` if the text is not in the native notation, or has no job.
#[must_use]
pub fn locate(sources: &Sources, id: SourceId, path: &[Step], arguments: &[&str]) -> Option<Span> {
    let body = parse::parse(sources, id).ok().filter(|body| body.json.is_none())?;
    let mut block = body.blocks.iter().find(|block| block.kind.text == "job")?;
    for step in path {
        let Some(inner) = child(&block.body, step) else { return Some(block.header) };
        block = inner;
    }
    Some(arguments.iter().find_map(|name| argument(&block.body, name)).unwrap_or(block.header))
}

/// Returns a diagnostic for a server's error about a part of a job. `whole` names the job: `job "a"`.
#[must_use]
pub fn refused(whole: &str, path: &[Step], message: &str, span: Option<Span>) -> Diagnostic {
    let steps: Vec<String> =
        std::iter::once(whole.to_owned()).chain(path.iter().map(Step::to_string)).collect();
    Diagnostic::error("E0701", span, steps.join(" > "), message)
}

fn child<'b>(body: &'b Body, step: &Step) -> Option<&'b Block> {
    let mut of_kind = body.blocks.iter().filter(|block| block.kind.text == step.kind);
    match &step.which {
        Which::Only => of_kind.next(),
        Which::Named(name) => of_kind.find(|block| is_named(block, name)),
        Which::Nth(number) => {
            // Generated blocks count too, but their number is unknown here.
            let generated = |block: &Block| {
                block.kind.text == "dynamic" && block.labels.first().is_some_and(|l| l.text == step.kind)
            };
            if body.blocks.iter().any(generated) { None } else { of_kind.nth(*number) }
        }
    }
}

fn is_named(block: &Block, name: &str) -> bool {
    let by_argument = || {
        let argument = block.body.attributes.iter().find(|a| a.name.text == "name")?;
        match &argument.value.kind {
            ExprKind::Literal(Value::Str(text)) => Some(**text == *name),
            _ => None,
        }
    };
    match block.labels.first() {
        Some(label) => label.text == name,
        None => by_argument().unwrap_or(false),
    }
}

/// Returns the range from the name of an argument to the end of its value, or the header of a block.
fn argument(body: &Body, path: &str) -> Option<Span> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let block = || body.blocks.iter().find(|block| block.kind.text == name);
    match rest {
        Some(rest) => block().map(|block| argument(&block.body, rest).unwrap_or(block.header)),
        None => match body.attributes.iter().find(|a| a.name.text == name) {
            Some(attribute) => Some(attribute.name.span.to(attribute.value.span)),
            None => block().map(|block| block.header),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    const JOB: &str = "variable \"x\" {}\njob \"a\" {\n  constraint {}\n  constraint {\n    value = 1\n  }\n  group \"g\" {\n    \
                       service {\n      name = \"web\"\n    }\n    task \"t\" {\n      resources {\n        memory = 5\n      \
                       }\n    }\n    dynamic \"volume\" {}\n    volume \"v\" {}\n  }\n}\n";

    fn found(path: &[Step], arguments: &[&str]) -> String {
        let mut sources = Sources::default();
        let id = sources.add(Source::new("f", JOB));
        let span = locate(&sources, id, path, arguments).unwrap();
        JOB[span.start..span.end].to_owned()
    }

    #[test]
    fn paths_lead_to_blocks_and_arguments() {
        let group = || Step::named("group", "g");
        let task = || vec![group(), Step::named("task", "t")];
        assert_eq!(found(&[], &[]), "job \"a\"");
        assert_eq!(found(&[Step::nth("constraint", 1)], &["value"]), "value = 1");
        assert_eq!(found(&[group(), Step::named("service", "web")], &["name"]), "name = \"web\"");
        assert_eq!(found(&task(), &["resources.memory"]), "memory = 5");
        assert_eq!(found(&task(), &["driver", "resources.cpu"]), "resources");
        assert_eq!(found(&task(), &["driver"]), "task \"t\"");
        assert_eq!(found(&[group(), Step::named("volume", "v")], &[]), "volume \"v\"");
        assert_eq!(found(&[group(), Step::nth("volume", 0)], &[]), "group \"g\"");
        assert_eq!(found(&[Step::named("group", "other"), Step::only("update")], &[]), "job \"a\"");
        assert_eq!(Step::nth("constraint", 1).to_string(), "constraint 2");
        assert_eq!(group().to_string(), "group \"g\"");
    }
}
