//! Errors for names that a table does not have.

use super::Schema;
use crate::ast::{Attribute, Block, Body};
use crate::diag::{Diagnostic, nearest};

/// Returns the errors for arguments and blocks that the table does not have.
pub(crate) fn unexpected(body: &Body, schema: &Schema, is_json: bool) -> Vec<Diagnostic> {
    let has_argument = |name: &str| schema.attributes.iter().any(|a| a.name == name);
    let has_block = |name: &str| schema.blocks.iter().any(|b| b.name == name);
    let arguments = body.attributes.iter().filter(|a| !has_argument(&a.name.text));
    let arguments = arguments.map(|a| argument(a, body, schema, is_json));
    let blocks = body.blocks.iter().filter(|b| !has_block(&b.kind.text)).map(|b| block(b, schema));
    arguments.chain(blocks).collect()
}

/// Returns the error for an argument of a body that the table does not have.
pub(super) fn argument(attribute: &Attribute, body: &Body, schema: &Schema, is_json: bool) -> Diagnostic {
    let name = attribute.name.text.as_str();
    let unset = schema.attributes.iter().map(|a| a.name);
    let unset = unset.filter(|known| !body.attributes.iter().any(|a| a.name.text == *known));
    let mut blocks = schema.blocks.iter().map(|b| b.name);
    if is_json {
        let near = nearest(name, unset.chain(blocks)).map(meant).unwrap_or_default();
        let detail = format!("No argument or block type is named {name:?}.{near}");
        return Diagnostic::error("E0401", attribute.name.span, "Extraneous JSON object property", detail);
    }
    let mut detail = format!("An argument named {name:?} is not expected here.");
    if blocks.any(|block| block == name) {
        detail.push_str(&format!(" Did you mean to define a block of type {name:?}?"));
    } else if let Some(near) = nearest(name, unset) {
        detail.push_str(&meant(near));
    }
    Diagnostic::error("E0401", attribute.name.span, "Unsupported argument", detail)
}

/// Returns the error for a block that the table does not have.
pub(super) fn block(block: &Block, schema: &Schema) -> Diagnostic {
    let name = block.kind.text.as_str();
    let mut detail = format!("Blocks of type {name:?} are not expected here.");
    if schema.attributes.iter().any(|a| a.name == name) {
        detail.push_str(&format!(
            " Did you mean to define argument {name:?}? If so, use the equals sign to assign it a value."
        ));
    } else if let Some(near) = nearest(name, schema.blocks.iter().map(|b| b.name)) {
        detail.push_str(&meant(near));
    }
    Diagnostic::error("E0402", block.kind.span, "Unsupported block type", detail)
}

fn meant(near: &str) -> String {
    format!(" Did you mean {near:?}?")
}
