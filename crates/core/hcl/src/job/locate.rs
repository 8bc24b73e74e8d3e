//! Finds the source range of a part of a job. Servers report errors by path; people need the place in the file.

use super::tables::JOB;
use crate::ast::{Block, Body, ExprKind};
use crate::diag::Diagnostic;
use crate::parse;
use crate::schema::{BlockType, Content, Repeat, Schema};
use crate::source::{SourceId, Sources, Span};
use crate::value::Value;
use caravan_api::{JobPath, PathStep};
use serde_json::Value as Json;
use std::fmt;

/// A step from a block to an inner block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The type of the inner block.
    pub kind: &'static str,
    /// The selection of one block of that type.
    pub which: Which,
}

/// The selection of one of several blocks of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The only block, or an unknown one.
    Only,
    /// The block with this label or `name`.
    Named(String),
    /// The block with this index, from 0.
    Nth(usize),
    /// The block with this label or `name`. Where the text computes names, the block with this index, from 0.
    Listed(String, usize),
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
            Which::Named(name) | Which::Listed(name, _) => write!(f, "{} {name:?}", self.kind),
            Which::Nth(number) => write!(f, "{} {}", self.kind, number + 1),
        }
    }
}

/// A setting of a job, as the language writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Blocks from the job to the block that holds the setting.
    pub blocks: Vec<Step>,
    /// Arguments of the last block that write the setting, the usual one first.
    pub arguments: Vec<&'static str>,
}

impl Place {
    /// Finds the setting at a path in the JSON of a job. Follows the path as far as its fields are part of the
    /// language.
    #[must_use]
    pub fn of_path(path: &JobPath, job: &Json) -> Self {
        let mut out = Self::default();
        let (mut schema, mut value) = (&JOB, job);
        let mut steps = path.steps().iter().peekable();
        while let Some(PathStep::Field(key)) = steps.next() {
            let Some(block) = schema.blocks.iter().find(|block| is_key(block, key)) else {
                out.arguments = arguments(schema, key);
                break;
            };
            value = &value[key.as_ref()];
            let step = match (block.repeat, steps.peek()) {
                (Repeat::One, _) => Step::only(block.name),
                (Repeat::ByLabel, Some(PathStep::Key(name))) => Step::named(block.name, name),
                (Repeat::Many | Repeat::Distinct, Some(PathStep::Index(at))) => element(block, value, *at),
                // The list as a whole, or the only element that is no list in JSON.
                _ => Step::only(block.name),
            };
            match steps.peek() {
                Some(PathStep::Index(at)) => value = &value[*at],
                Some(PathStep::Key(name)) => value = &value[name.as_str()],
                _ => {}
            }
            steps.next_if(|step| !matches!(step, PathStep::Field(_)));
            out.blocks.push(step);
            match block.content {
                Content::Schema(inner) => schema = inner,
                _ => break,
            }
        }
        out
    }

    /// Returns the blocks that a title names: blocks of which there may be several, with the blocks around them.
    #[must_use]
    pub fn title(&self) -> &[Step] {
        let last = self.blocks.iter().rposition(|step| step.which != Which::Only);
        &self.blocks[..last.map_or(0, |last| last + 1)]
    }
}

/// Returns whether a block type writes a field of JSON. The decoder splits some blocks by their contents.
fn is_key(block: &BlockType, key: &str) -> bool {
    match block.key {
        "~Ports" => matches!(key, "DynamicPorts" | "ReservedPorts"),
        "Identities" => matches!(key, "Identities" | "Identity"),
        own => own == key,
    }
}

/// Returns the arguments that write a field. A shortcut writes several fields together: `regexp = "x"`.
fn arguments(schema: &Schema, key: &str) -> Vec<&'static str> {
    let own = schema.attributes.iter().filter(|attribute| attribute.key == key);
    let is_compared = matches!(key, "LTarget" | "RTarget" | "Operand");
    let shortcuts =
        schema.attributes.iter().filter(|attribute| is_compared && attribute.key.starts_with('~'));
    own.chain(shortcuts).map(|attribute| attribute.name).collect()
}

/// Returns the step to an element of a list.
fn element(block: &BlockType, list: &Json, at: usize) -> Step {
    let has_name = match block.content {
        Content::Schema(schema) => schema.attributes.iter().any(|attribute| attribute.key == "Name"),
        _ => false,
    };
    let keys: &[&str] = match (block.labels.is_empty(), has_name) {
        (false, _) => &["Name", "Label", "Value"],
        (true, true) => &["Name"],
        (true, false) => &[],
    };
    let name = |element: &Json| keys.iter().find_map(|key| element[*key].as_str().map(str::to_owned));
    let own = name(&list[at]).filter(|name| !name.is_empty());
    let is_unique = |own: &String| {
        list.as_array().into_iter().flatten().filter(|element| name(element).as_ref() == Some(own)).count()
            == 1
    };
    let which = own.filter(is_unique).map_or(Which::Nth(at), |name| Which::Listed(name, at));
    // Ports are two lists in JSON and one in the language.
    let which = match which {
        Which::Listed(name, _) if block.key == "~Ports" => Which::Named(name),
        Which::Nth(_) if block.key == "~Ports" => Which::Only,
        which => which,
    };
    Step { kind: block.name, which }
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
    let nth = |number: usize| {
        // Generated blocks count too, but their number is unknown here.
        let generated = |block: &Block| {
            block.kind.text == "dynamic" && block.labels.first().is_some_and(|l| l.text == step.kind)
        };
        if body.blocks.iter().any(generated) { None } else { of_kind.clone().nth(number) }
    };
    match &step.which {
        Which::Only => of_kind.next(),
        Which::Named(name) => of_kind.find(|block| is_named(block, name)),
        Which::Nth(number) => nth(*number),
        Which::Listed(name, number) => {
            let named = of_kind.clone().find(|block| is_named(block, name));
            // A block with another label is another block.
            named.or_else(|| nth(*number).filter(|block| block.labels.is_empty()))
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

    fn place(path: &str) -> (String, String, String) {
        let job =
            crate::job::parse(&Source::new("f", WHOLE), &crate::job::ParseOptions::default()).unwrap().0;
        let job = serde_json::to_value(job).unwrap();
        let place = Place::of_path(&path.parse().unwrap(), &job);
        let mut sources = Sources::default();
        let id = sources.add(Source::new("f", WHOLE));
        let span = locate(&sources, id, &place.blocks, &place.arguments).unwrap();
        let join = |steps: &[Step]| steps.iter().map(Step::to_string).collect::<Vec<_>>().join(" > ");
        (join(place.title()), place.arguments.join(" "), WHOLE[span.start..span.end].to_owned())
    }

    const WHOLE: &str = r#"
variable "name" { default = "api" }
job "a" {
  priority = 5
  update { canary = 1 }
  constraint { operator = "is_set" }
  constraint {
    attribute = "${attr.a}"
    regexp    = "["
  }
  group "g" {
    network {
      port "http" { to = 7 }
    }
    volume "v" { source = "s" }
    service { name = "web" }
    service { name = "${var.name}" }
    task "t" {
      driver = "exec"
      identity { name = "aws" }
      resources { memory = 1 }
      template { destination = "local/x" }
    }
  }
  group "g2" {
    task "u" { driver = "exec" }
  }
}
"#;

    #[test]
    fn paths_of_the_api_lead_to_arguments() {
        let memory = "TaskGroups[0].Tasks[0].Resources.MemoryMB";
        for (path, title, found) in [
            ("", "", "job \"a\""),
            ("Priority", "", "priority = 5"),
            ("Update.Canary", "", "canary = 1"),
            ("Constraints[1].RTarget", "constraint 2", "regexp    = \"[\""),
            ("Constraints[0].Operand", "constraint 1", "operator = \"is_set\""),
            (memory, "group \"g\" > task \"t\"", "memory = 1"),
            ("TaskGroups[0].Tasks[0].Resources.CPU", "group \"g\" > task \"t\"", "resources"),
            ("TaskGroups[0].Tasks[0].KillTimeout", "group \"g\" > task \"t\"", "task \"t\""),
            ("TaskGroups[1].Tasks[0].Driver", "group \"g2\" > task \"u\"", "driver = \"exec\""),
            ("TaskGroups[0].Volumes[\"v\"].Source", "group \"g\" > volume \"v\"", "source = \"s\""),
            ("TaskGroups[0].Services[1].Name", "group \"g\" > service \"api\"", "name = \"${var.name}\""),
            (
                "TaskGroups[0].Networks[0].DynamicPorts[0].To",
                "group \"g\" > network 1 > port \"http\"",
                "to = 7",
            ),
            (
                "TaskGroups[0].Tasks[0].Identities[0].Name",
                "group \"g\" > task \"t\" > identity \"aws\"",
                "name = \"aws\"",
            ),
            (
                "TaskGroups[0].Tasks[0].Templates[0].DestPath",
                "group \"g\" > task \"t\" > template 1",
                "destination = \"local/x\"",
            ),
            ("NewField.Inner[3]", "", "job \"a\""),
        ] {
            let (got_title, _, got) = place(path);
            assert_eq!((got_title.as_str(), got.as_str()), (title, found), "{path}");
        }
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
