//! Reads `variable` blocks and their values (docs/reference/jobspec.md, section 2.1). Sources in ascending priority:
//! default, environment, variable files, command line.

mod declare;

use self::declare::{Origin, Variable, declarations};
use super::ParseOptions;
use crate::ast::Body;
use crate::diag::{Diagnostic, nearest};
use crate::eval::functions::Files;
use crate::eval::{Evaluator, Scope};
use crate::parse;
use crate::parse::json::{Members, Strings};
use crate::source::{Source, Sources, Span};
use crate::value::{Type, Value, convert};
use std::collections::BTreeMap;

/// A variable's value from the command line, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarInput {
    /// The variable's name.
    pub name: String,
    /// The variable's value, as typed.
    pub value: String,
}

impl VarInput {
    /// Splits `name=value`; `None` without an equals sign.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        Some(Self { name: name.trim().to_owned(), value: value.to_owned() })
    }
}

type Items = Vec<Diagnostic>;

/// Reads declarations and values, and sets the root `var`.
pub(super) fn load(
    body: &Body,
    options: &ParseOptions,
    evaluator: &mut Evaluator,
    sources: &mut Sources,
    items: &mut Items,
) {
    let mut declared = declarations(body, items);
    for (key, text) in &options.env {
        let name = key.strip_prefix("CARAVAN_VAR_").or_else(|| key.strip_prefix("NOMAD_VAR_"));
        if let Some(variable) = name.and_then(|n| declared.get_mut(n)) {
            from_text(variable, text, (Origin::Environment, key), sources, items);
        }
    }
    for file in &options.auto_files {
        from_file(file, &mut declared, Unknown::Ignored, sources, items);
    }
    let unknown_names = if options.strict { Unknown::Refused } else { Unknown::Warned };
    for file in &options.var_files {
        from_file(file, &mut declared, unknown_names, sources, items);
    }
    for input in &options.variables {
        if let Some(variable) = declared.get_mut(&input.name) {
            let origin = format!("<value for var.{} from arguments>", input.name);
            from_text(variable, &input.value, (Origin::Argument, &origin), sources, items);
        } else {
            let mut found = unknown(
                &input.name,
                options.strict,
                "Undefined -var variable",
                "was passed in the command line",
                None,
            );
            found.hint = nearest(&input.name, declared.keys().map(String::as_str))
                .map(|n| format!("there is a variable {n:?}"));
            items.push(found);
        }
    }
    let mut values = BTreeMap::new();
    for variable in declared.values() {
        match &variable.value {
            Some(value) => {
                values.insert(variable.name.clone(), value.clone());
            }
            None if !variable.failed => items.push(Diagnostic::error(
                "E0304",
                variable.span,
                format!("Unset variable {:?}", variable.name),
                "A used variable must be set or have a default value: with -var, in a variable file, or in the environment.",
            )),
            None => {}
        }
    }
    for variable in declared.values() {
        validate(variable, sources, items);
    }
    evaluator.set_root("var", Value::object(values));
}

fn unknown(name: &str, strict: bool, summary: &str, how: &str, span: Option<Span>) -> Diagnostic {
    let detail = format!(
        "A {name:?} variable {how} but was not found in known variables. To declare variable {name:?}, place this block in your job file: variable {name:?} {{ ... }}"
    );
    if strict {
        Diagnostic::error("E0305", span, summary, detail)
    } else {
        Diagnostic::warning("E0305", span, summary, detail)
    }
}

/// Converts a text to a value. Primitive and untyped variables take the text itself; collections parse it as an
/// expression.
fn from_text(
    variable: &mut Variable,
    text: &str,
    (how, origin): (Origin, &str),
    sources: &mut Sources,
    items: &mut Items,
) {
    let literal = matches!(variable.kind, None | Some(Type::Any))
        || variable.kind.as_ref().is_some_and(Type::is_primitive);
    let id = sources.add(Source::new(origin, text));
    let span = Span { source: id, start: 0, end: text.len() };
    let value = if literal {
        Ok(Value::str(text))
    } else {
        parse::native::parse_expression(text, id)
            .and_then(|e| Evaluator::literals().eval(&e, &Scope::default()).map_err(|e| vec![*e]))
    };
    match value {
        Ok(value) => assign(variable, value, (how, span), items),
        Err(errors) => {
            variable.failed = true;
            items.extend(errors);
        }
    }
}

fn assign(variable: &mut Variable, value: Value, (how, span): (Origin, Span), items: &mut Items) {
    let converted = match &variable.kind {
        Some(t) => convert(value, t),
        None => Ok(value),
    };
    match converted {
        Ok(value) => {
            variable.value = Some(value);
            variable.origin = Some((how, span));
        }
        Err(e) => {
            variable.failed = true;
            items.push(
                Diagnostic::error(
                    "E0306",
                    span,
                    "Invalid value for variable",
                    format!(
                        "The value for {} is not compatible with the variable's type constraint: {e}.",
                        variable.name
                    ),
                )
                .label(variable.span, "declared here"),
            );
        }
    }
}

/// The treatment of a value for an undeclared variable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refused,
    Warned,
    /// A value to ignore: files that are loaded by default may serve several jobs.
    Ignored,
}

fn from_file(
    file: &Source,
    declared: &mut BTreeMap<String, Variable>,
    unknown_names: Unknown,
    sources: &mut Sources,
    items: &mut Items,
) {
    let id = sources.add(file.clone());
    let body = match parse::parse(sources, id) {
        Ok(body) => match &body.json {
            Some(json) => json.read(Strings::Literal, Members::Arguments, items),
            None => body,
        },
        Err(errors) => {
            items.extend(errors);
            return;
        }
    };
    let mut declares = false;
    for block in &body.blocks {
        let is_declaration = block.kind.text == "variable";
        let summary = if is_declaration {
            "Variable declaration in a .var file".to_owned()
        } else {
            format!("Unexpected {:?} block", block.kind.text)
        };
        let detail = "Blocks are not allowed in a variable file; it has lines of the form name = value.";
        items.push(Diagnostic::error("E0402", block.kind.span, summary, detail));
        declares |= is_declaration;
    }
    if declares {
        return;
    }
    let literals = Evaluator::literals();
    for attribute in &body.attributes {
        let Some(variable) = declared.get_mut(&attribute.name.text) else {
            if unknown_names == Unknown::Ignored {
                continue;
            }
            let mut found = unknown(
                &attribute.name.text,
                unknown_names == Unknown::Refused,
                "Undefined variable",
                "was set",
                Some(attribute.name.span),
            );
            found.hint = nearest(&attribute.name.text, declared.keys().map(String::as_str))
                .map(|n| format!("there is a variable {n:?}"));
            items.push(found);
            continue;
        };
        match literals.eval(&attribute.value, &Scope::default()) {
            Ok(value) => assign(variable, value, (Origin::File, attribute.value.span), items),
            Err(error) => {
                variable.failed = true;
                items.push(*error);
            }
        }
    }
}

/// Validates the final value. A condition can refer only to the variable itself.
fn validate(variable: &Variable, sources: &Sources, items: &mut Items) {
    let Some(value) = &variable.value else { return };
    for rule in &variable.rules {
        let mut evaluator = Evaluator::new(Files::Off);
        evaluator.set_root("var", Value::object([(variable.name.clone(), value.clone())].into()));
        match evaluator.truth(
            &rule.condition,
            &Scope::default(),
            "Invalid variable validation result",
            "Invalid variable validation result",
        ) {
            result if rule.refers_elsewhere => items.extend(result.err().map(|error| error.echo())),
            Ok(true) => {}
            Ok(false) => {
                let (how, at) = variable.origin.unwrap_or((Origin::Default, variable.span));
                let error = Diagnostic::error(
                    "E0308",
                    at,
                    format!("Invalid value for {} variable", how.name()),
                    format!(
                        "{}\n\nThis was checked by the validation rule at {}.",
                        rule.message,
                        sources.show(rule.span)
                    ),
                );
                items.push(error.label(rule.span, format!("the rule of variable {:?}", variable.name)));
            }
            Err(error) => items.push(*error),
        }
    }
}
