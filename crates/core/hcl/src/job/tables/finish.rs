//! Computes keys after decoding: shortcuts, inherited blocks and the few defaults that belong to the language rather
//! than to the canonical form (docs/reference/jobspec.md, section 3).

use crate::diag::Diagnostic;
use crate::schema::{Header, Object};
use serde_json::{Value as Json, json};

type Done = Result<(), Box<Diagnostic>>;

fn default(object: &mut Object, key: &str, value: Json) {
    object.entry(key).or_insert(value);
}

fn array<'o>(object: &'o mut Object, key: &str) -> Option<&'o mut Vec<Json>> {
    object.get_mut(key).and_then(Json::as_array_mut)
}

fn objects<'o>(object: &'o mut Object, key: &str) -> impl Iterator<Item = &'o mut Object> {
    object.get_mut(key).and_then(Json::as_array_mut).into_iter().flatten().filter_map(Json::as_object_mut)
}

/// Expands shortcuts such as `version = "..."`. Later ones override earlier ones; empty ones are ignored.
pub(super) fn constraint(object: &mut Object, _: &Header<'_>) -> Done {
    for operator in ["version", "semver", "regexp", "set_contains_any", "set_contains_all", "set_contains"] {
        if let Some(value) = object.remove(&format!("~{operator}"))
            && value.as_str().is_some_and(|v| !v.is_empty())
        {
            object.insert("Operand".to_owned(), json!(operator));
            object.insert("RTarget".to_owned(), value);
        }
    }
    if let Some(value) = object.remove("~distinct_hosts") {
        object.insert("Operand".to_owned(), json!("distinct_hosts"));
        let text = if value == json!(true) { "true" } else { "false" };
        object.insert("RTarget".to_owned(), json!(text));
    }
    if let Some(attribute) = object.remove("~distinct_property") {
        object.insert("Operand".to_owned(), json!("distinct_property"));
        object.insert("LTarget".to_owned(), attribute);
    }
    if object.get("Operand").is_none_or(|o| o.as_str() == Some("")) {
        object.insert("Operand".to_owned(), json!("="));
    }
    Ok(())
}

pub(super) fn spread_target(object: &mut Object, header: &Header<'_>) -> Done {
    if let Some(label) = header.labels.first() {
        default(object, "Value", json!(label.text));
    }
    Ok(())
}

pub(super) fn port(object: &mut Object, header: &Header<'_>) -> Done {
    if let Some(label) = header.labels.first() {
        default(object, "Label", json!(label.text));
    }
    Ok(())
}

/// Splits ports into reserved ones, which have a number, and dynamic ones. If any port is set, `reserved_ports` has
/// no effect.
pub(super) fn network(object: &mut Object, _: &Header<'_>) -> Done {
    let Some(Json::Array(ports)) = object.remove("~Ports") else { return Ok(()) };
    object.remove("ReservedPorts");
    for port in ports {
        let fixed = port.get("Value").and_then(Json::as_i64).is_some_and(|v| v > 0);
        let key = if fixed { "ReservedPorts" } else { "DynamicPorts" };
        if let Json::Array(all) = object.entry(key).or_insert_with(|| json!([])) {
            all.push(port);
        }
    }
    Ok(())
}

pub(super) fn group_scaling(object: &mut Object, header: &Header<'_>) -> Done {
    match object.get("Type").and_then(Json::as_str) {
        None | Some("") => {
            object.insert("Type".to_owned(), json!("horizontal"));
            Ok(())
        }
        Some("horizontal") => Ok(()),
        Some(other) => {
            let at =
                header.arguments.iter().find(|a| a.name.text == "type").map_or(header.span, |a| a.value.span);
            Err(Box::new(Diagnostic::error(
                "E0411",
                at,
                "Invalid group scaling type",
                format!("The policy of a group is of type \"horizontal\", not {other:?}."),
            )))
        }
    }
}

pub(super) fn task_scaling(object: &mut Object, header: &Header<'_>) -> Done {
    let label = header.labels.first();
    let desired = match label.map(|l| l.text.to_ascii_lowercase()).as_deref() {
        Some("cpu") => "vertical_cpu",
        Some("mem") => "vertical_mem",
        _ => {
            return Err(Box::new(Diagnostic::error(
                "E0411",
                label.map_or(header.span, |l| l.span),
                "Invalid scaling policy name",
                "scaling policy name must be \"cpu\" or \"mem\"",
            )));
        }
    };
    match object.get("Type").and_then(Json::as_str) {
        None | Some("") => {
            object.insert("Type".to_owned(), json!(desired));
            Ok(())
        }
        Some(supplied) if supplied == desired => Ok(()),
        Some(other) => Err(scaling_type(header, desired, other)),
    }
}

fn scaling_type(header: &Header<'_>, desired: &str, found: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(
        "E0411",
        header.span,
        "Invalid scaling policy type",
        format!("The policy type of this block must be {desired:?} but is {found:?}."),
    ))
}

/// Sets the spec type if the block sets times.
pub(super) fn periodic(object: &mut Object, _: &Header<'_>) -> Done {
    if object.contains_key("Spec") || object.contains_key("Specs") {
        default(object, "SpecType", json!("cron"));
    }
    Ok(())
}

pub(super) fn vault(object: &mut Object, _: &Header<'_>) -> Done {
    default(object, "Env", json!(true));
    default(object, "DisableFile", json!(false));
    default(object, "ChangeMode", json!("restart"));
    Ok(())
}

pub(super) fn template(object: &mut Object, _: &Header<'_>) -> Done {
    default(object, "ChangeMode", json!("restart"));
    default(object, "Splay", json!(5_000_000_000_i64));
    default(object, "Perms", json!("0644"));
    default(object, "ErrMissingKey", json!(false));
    Ok(())
}

pub(super) fn change_script(object: &mut Object, _: &Header<'_>) -> Done {
    default(object, "Args", json!([]));
    default(object, "Timeout", json!(5_000_000_000_i64));
    default(object, "FailOnError", json!(false));
    default(object, "RunOnFirstRender", json!(false));
    Ok(())
}

/// Turns the first identity without a name, or named `default`, into the task's default identity.
pub(super) fn task(object: &mut Object, _: &Header<'_>) -> Done {
    let Some(identities) = array(object, "Identities") else { return Ok(()) };
    let is_default = |i: &Json| matches!(i.get("Name").and_then(Json::as_str), None | Some("" | "default"));
    if let Some(at) = identities.iter().position(is_default) {
        let identity = identities.remove(at);
        object.insert("Identity".to_owned(), identity);
    }
    Ok(())
}

pub(super) fn group(object: &mut Object, _: &Header<'_>) -> Done {
    if let Some(vault) = object.remove("~Vault") {
        for task in objects(object, "Tasks") {
            default(task, "Vault", vault.clone());
        }
    }
    if let Some(secrets) = object.remove("~Secrets") {
        for task in objects(object, "Tasks") {
            match array(task, "Secrets") {
                // A task with its own secrets receives them twice, as in Nomad
                // (docs/reference/jobspec.md, section 3).
                Some(own) => own.extend(own.clone()),
                None => {
                    task.insert("Secrets".to_owned(), secrets.clone());
                }
            }
        }
    }
    Ok(())
}

pub(super) fn job(object: &mut Object, header: &Header<'_>) -> Done {
    if let Some(label) = header.labels.first() {
        default(object, "ID", json!(label.text));
        default(object, "Name", json!(label.text));
    }
    // Tasks directly in a job become separate groups, before the other groups.
    if let Some(Json::Array(tasks)) = object.remove("~Tasks") {
        let alone = tasks.into_iter().map(|task| {
            let name = task.get("Name").cloned().unwrap_or_default();
            json!({ "Name": name, "Tasks": [task] })
        });
        let mut groups: Vec<Json> = alone.collect();
        if let Some(Json::Array(others)) = object.remove("TaskGroups") {
            groups.extend(others);
        }
        object.insert("TaskGroups".to_owned(), Json::Array(groups));
    }
    let vault = object.remove("~Vault");
    let secrets = object.remove("~Secrets");
    for group in objects(object, "TaskGroups") {
        for task in objects(group, "Tasks") {
            if let Some(vault) = &vault {
                default(task, "Vault", vault.clone());
            }
            if let Some(Json::Array(secrets)) = &secrets {
                match array(task, "Secrets") {
                    Some(own) => own.extend(secrets.iter().cloned()),
                    None => {
                        task.insert("Secrets".to_owned(), Json::Array(secrets.clone()));
                    }
                }
            }
        }
    }
    Ok(())
}
