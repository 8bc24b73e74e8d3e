//! Where in a job file a part of its job was written. Servers speak of jobs, people look at files.

use std::fmt;

use crate::ast::{Block, Body, ExprKind};
use crate::diag::Diagnostic;
use crate::parse;
use crate::source::{SourceId, Sources, Span};
use crate::value::Value;

/// One step from a block to a block in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The block's type in the language.
    pub kind: &'static str,
    /// Which of several.
    pub which: Which,
}

/// Which of several blocks of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// There is only one, or it is not known.
    Only,
    /// The one with this label, or with this `name`.
    Named(String),
    /// By its number, from 0.
    Nth(usize),
}

impl Step {
    /// The only block of a type.
    #[must_use]
    pub fn only(kind: &'static str) -> Self {
        Self { kind, which: Which::Only }
    }

    /// A block with a name.
    pub fn named(kind: &'static str, name: impl Into<String>) -> Self {
        Self { kind, which: Which::Named(name.into()) }
    }

    /// A block by its number, from 0.
    #[must_use]
    pub fn nth(kind: &'static str, number: usize) -> Self {
        Self { kind, which: Which::Nth(number) }
    }
}

/// `group "a"`, `constraint 2`, `update`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Only => f.write_str(self.kind),
            Which::Named(name) => write!(f, "{} {name:?}", self.kind),
            Which::Nth(number) => write!(f, "{} {}", self.kind, number + 1),
        }
    }
}

/// The place of what a path leads to: as far as the path can be followed in the text. Blocks that other blocks
/// generate have no place of their own, so the search ends around them. `arguments` are looked for at the end of the
/// path, the first that is there counts; an argument may stand in a block: `resources.memory`.
///
/// `None` for a text that is not in the native notation, or has no job.
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

/// What a server says is wrong with a part of a job, at its place. `whole` names the job: `job "a"`.
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
            // Generated ones count as well, but how many there are is not known here.
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

/// From the name of an argument to the end of its value, or the header of a block.
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
