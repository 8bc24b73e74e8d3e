//! Renders the description of the job language for people.

use super::{Place, places};
use crate::eval::functions;
use crate::schema::{Attribute, BlockType, Content, Kind, Repeat, Schema};
use std::fmt::Write as _;

const HEAD: &str = r#"# The job language

<!-- Made from the tables of crates/core/hcl by `cargo xtask docs`. Changes belong there. -->

A job file holds one `job` block, written in HCL2 (or as HCL-JSON, when its first character is `{`).
`caravan job init` writes an example, `caravan job validate` checks a file, `caravan fmt` puts it into its canonical
layout, and `caravan job schema` prints a JSON Schema of jobs in the JSON of the API.

## Files

```hcl
variable "release" {
  type        = string
  default     = "one"
  description = "What is rolled out."
  validation {
    condition     = length(var.release) > 0
    error_message = "The release must have a name."
  }
}

locals {
  image = "registry.example/web:${var.release}"
}

job "web" {
  # ...
}
```

- The top level has `variable`, `variables`, `locals` and one `job`.
- Variables get their values, later ones winning, from: the default; the environment (`CARAVAN_VAR_name`,
  `NOMAD_VAR_name`); files next to the job file (`*.auto.vars`, `*.auto.vars.json`); files (`-var-file`);
  `-var name=value`.
- `var.name` and `local.name` are replaced when the file is read. Every other reference, such as `${attr.kernel.name}`,
  `${node.class}`, `${meta.rack}` or `${NOMAD_PORT_http}`, stays unchanged and is replaced when the task runs.
  `$${` and `%%{` are plain text.
- `dynamic "kind" { for_each = ... content { ... } }` makes a block for each element; `kind.key` and
  `kind.value` are the element, `labels` its labels, `iterator` another name for it. It works for
  every block except blocks with free content (`config`, `policy`).
- Durations are strings such as `"1h30m"`; a number means nanoseconds.
- Blocks with free content become lists of objects, also when there is only one.

## Functions

"#;

/// Returns the whole page in Markdown.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    let mut names: Vec<&str> = functions::names().collect();
    names.sort_unstable();
    let mut line = String::new();
    for name in names {
        if line.len() + name.len() > 110 {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
        }
        // Writing to a string cannot fail.
        let _ = write!(line, "`{name}` ");
    }
    out.push_str(line.trim_end());
    out.push_str(
        "\n\nFunctions that read files look in the directory of the job file and below, nowhere else.\n\n## Blocks\n",
    );
    let places = places();
    for place in &places {
        section(&mut out, place, &places);
    }
    out
}

/// Returns the title of a section: the block's name, and its parent if several blocks share the name.
fn title(place: &Place, all: &[Place]) -> String {
    let way = &place.ways[0];
    let name = way.last().copied().unwrap_or_default();
    let same = |other: &&Place| other.ways[0].last() == way.last();
    match way.len().checked_sub(2).and_then(|at| way.get(at)) {
        Some(parent) if all.iter().filter(same).count() > 1 => format!("{name} in {parent}"),
        _ => name.to_owned(),
    }
}

/// Returns the anchor that links within the page use for a heading.
fn anchor(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

fn section(out: &mut String, place: &Place, all: &[Place]) {
    let title = title(place, all);
    let _ = write!(out, "\n### {title}\n\n");
    let ways: Vec<String> = place.ways.iter().map(|way| format!("`{}`", way.join(" > "))).collect();
    if place.ways[0].len() > 1 {
        let _ = write!(out, "Stands in: {}.\n\n", shortened(ways));
    }
    let schema = place.schema;
    if schema.attributes.is_empty() && schema.blocks.is_empty() {
        out.push_str("Nothing is inside.\n");
        return;
    }
    if !schema.attributes.is_empty() {
        out.push_str("| Argument | Type | Default | |\n|---|---|---|---|\n");
        for attribute in schema.attributes {
            argument(out, attribute);
        }
        if !schema.blocks.is_empty() {
            out.push('\n');
        }
    }
    if !schema.blocks.is_empty() {
        out.push_str("| Block | How often | |\n|---|---|---|\n");
        for block in schema.blocks {
            inner(out, block, all);
        }
    }
}

/// Shortens a long list of paths.
fn shortened(mut ways: Vec<String>) -> String {
    const SHOWN: usize = 4;
    let more = ways.len().saturating_sub(SHOWN);
    ways.truncate(SHOWN);
    let shown = ways.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Str => "string",
        Kind::Bool => "bool",
        Kind::Int | Kind::LowByte => "whole number",
        Kind::SmallInt => "-128 to 127",
        Kind::Byte => "0 to 255",
        Kind::Port => "0 to 65535",
        Kind::Unsigned | Kind::Unsigned32 => "whole number, not negative",
        Kind::Duration => "duration",
        Kind::Strings => "list of strings",
        Kind::Ports => "list of numbers from 0 to 65535",
        Kind::StringMap => "map of strings",
    }
}

fn argument(out: &mut String, attribute: &Attribute) {
    let default = match (attribute.required, attribute.default) {
        (true, _) => "required".to_owned(),
        (false, "") => String::new(),
        (false, default) if default.contains(' ') => cell(default),
        (false, default) => format!("`{}`", cell(default)),
    };
    let mut doc = cell(attribute.doc);
    if !attribute.values.is_empty() {
        let values: Vec<String> = attribute
            .values
            .iter()
            .map(|v| if v.is_empty() { "`\"\"`".to_owned() } else { format!("`{v}`") })
            .collect();
        let _ = write!(doc, " One of {}.", values.join(", "));
    }
    if let Some(instead) = attribute.deprecated {
        let _ = write!(doc, " **Only for older files**: {}", cell(instead));
    }
    let _ = writeln!(out, "| `{}` | {} | {default} | {} |", attribute.name, kind(attribute.kind), doc.trim());
}

fn inner(out: &mut String, block: &BlockType, all: &[Place]) {
    let often = match block.repeat {
        Repeat::One => "once",
        Repeat::Many | Repeat::Distinct | Repeat::ByLabel => "any number",
    };
    let labels: String = block.labels.iter().map(|label| format!(" \"{label}\"")).collect();
    let link = |schema: &'static Schema| {
        all.iter().find(|place| std::ptr::eq(place.schema, schema)).map(|place| anchor(&title(place, all)))
    };
    let name = match block.content {
        Content::Schema(schema) => match link(schema) {
            Some(anchor) => format!("[`{}{labels}`](#{anchor})", block.name),
            None => format!("`{}{labels}`", block.name),
        },
        _ => format!("`{}{labels}`", block.name),
    };
    let holds = match block.content {
        Content::Schema(_) => "",
        Content::Free => " Free content.",
        Content::Strings => " Names with strings.",
        Content::StringsOrAttribute => " Names with strings; as an argument (`= { ... }`) too.",
        Content::StringLists => " Names with lists of strings.",
    };
    let _ = writeln!(out, "| {name} | {often} | {}{holds} |", cell(block.doc));
}

/// Escapes a text for a table cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
