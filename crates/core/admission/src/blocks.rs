//! Rules for the blocks of a task that are stored unparsed: templates, artifacts, identities, secrets and others.

use super::one_of;
use super::problem::{Findings, ProblemCode as Code};
use caravan_api::{self as api, from_value};
use caravan_types::Nanos;
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{Artifact, Task, Template, Unsupported};
use std::collections::HashSet;

pub(super) fn check(task: &Task, errors: &mut Findings) {
    let mut destinations = HashSet::new();
    each(&task.templates, ("Templates", "Template"), errors, |template, found| {
        self::template(template, found);
        let destination = template.dest_path.clone();
        if !destination.is_empty() && !destinations.insert(destination.clone()) {
            let text = format!("another template has the destination \"{destination}\" too");
            found.add(Code::Duplicate, "DestPath", text);
        }
    });
    each(&task.artifacts, ("Artifacts", "Artifact"), errors, artifact);
    if let Some(payload) = &task.dispatch_payload {
        if payload.file.is_empty() {
            let text = "Dispatch Payload validation failed: file must be set";
            errors.add(Code::Missing, "DispatchPayload.File", text);
        }
        // The file must be below `local`.
        if leads_out(0, &payload.file) {
            let text = "Dispatch Payload validation failed: destination escapes allocation directory";
            errors.add(Code::PathEscapes, "DispatchPayload.File", text);
        }
    }
    if let Some(vault) = task.vault.as_deref().and_then(unsupported::<api::Vault>) {
        self::vault(&vault, errors);
    }
    if let Some(identity) = &task.identity {
        let mut found = errors.below("Identity");
        self::identity(identity, &mut found);
        errors.found.append(found.found);
    }
    let mut names = HashSet::new();
    each(&task.identities, ("Identities", "Identity"), errors, |identity, found| {
        self::identity(identity, found);
        if !names.insert(identity.name.clone()) {
            found.add(Code::Duplicate, "Name", format!("Duplicate identity \"{}\" found", identity.name));
        }
    });
    let mut names = HashSet::new();
    let secrets: Vec<api::Secret> = task.secrets.iter().filter_map(unsupported).collect();
    each(&secrets, ("Secrets", "Secret"), errors, |secret, found| {
        self::secret(task, secret, found);
        if !names.insert(secret.name.clone()) {
            found.add(Code::Duplicate, "Name", format!("Duplicate secret \"{}\" found", secret.name));
        }
    });
    let mut names = HashSet::new();
    each(&task.actions, ("Actions", "Action"), errors, |action, found| {
        if action.command.is_empty() {
            found.add(Code::Missing, "Command", "command must be set");
        }
        let plain = !action.name.is_empty()
            && action.name.chars().count() <= 128
            && !action.name.contains(char::is_whitespace);
        if !plain {
            let text =
                format!("invalid name \"{}\": it must have 1 to 128 characters and no blanks", action.name);
            found.add(Code::InvalidName, "Name", text);
        }
        if !names.insert(action.name.clone()) {
            found.add(Code::Duplicate, "Name", format!("Duplicate action \"{}\" found", action.name));
        }
    });
    let mut kinds = HashSet::new();
    each(&task.scaling_policies, ("ScalingPolicies", "Scaling"), errors, |policy, found| {
        match (policy.min.unwrap_or_default(), policy.max) {
            (_, None) => found.add(Code::Missing, "Max", "maximum must be specified"),
            (min, _) if min < 0 => {
                let text = format!("minimum must be at least zero, got {min}");
                found.add(Code::BelowMinimum, "Min", text);
            }
            (min, Some(max)) if max < min => {
                let text = format!("maximum ({max}) must not be less than minimum ({min})");
                found.add(Code::Conflict, "Max", text);
            }
            _ => {}
        }
        if !kinds.insert(policy.kind.clone()) {
            found.add(Code::Duplicate, "Type", format!("more than one policy of type {}", policy.kind));
        }
    });
}

fn unsupported<T: api::decode::ApiValue>(block: &Unsupported) -> Option<T> {
    from_value(&block.0).ok()
}

/// Checks every block of a list. The list has a field and a noun for titles, such as `("Templates", "Template")`.
/// Problems are reported under the number of the block.
fn each<T>(
    blocks: &[T],
    (field, what): (&'static str, &str),
    errors: &mut Findings,
    mut check: impl FnMut(&T, &mut Findings),
) {
    for (index, block) in blocks.iter().enumerate() {
        let mut found = errors.element(field, index);
        check(block, &mut found);
        errors.nest(format!("{what} {} validation failed: ", index + 1), found);
    }
}

/// Returns whether a path, relative to a directory of the task, leads out of the allocation's directory. The node
/// checks paths with variables after their interpolation.
fn escapes(path: &str) -> bool {
    // The task's directory is one level below the allocation's directory.
    leads_out(1, path)
}

/// Returns whether a path leads out of the directory that is `above` levels above its start.
fn leads_out(above: i64, path: &str) -> bool {
    let mut depth = above;
    path.split('/').any(|part| {
        depth += match part {
            "" | "." => 0,
            ".." => -1,
            _ => 1,
        };
        depth < 0
    })
}

/// Checks `change_mode` with the signal that the mode `signal` requires.
fn change_mode(mode: &str, signal: &str, known: &[&str], errors: &mut Findings) {
    if !known.contains(&mode) {
        errors.add(Code::UnknownWord, "ChangeMode", one_of("Invalid change mode given:", mode, known));
    }
    if mode == "signal" && signal.is_empty() {
        let text = "Must specify signal value when change mode is signal";
        errors.add(Code::Missing, "ChangeSignal", text);
    }
}

fn template(template: &Template, errors: &mut Findings) {
    let (source, data, destination) = (&template.source_path, &template.embedded_tmpl, &template.dest_path);
    if source.is_empty() && data.is_empty() {
        let text = "Must specify a source path or have an embedded template";
        errors.add(Code::Missing, "EmbeddedTmpl", text);
    }
    if !source.is_empty() && !data.is_empty() {
        let text = "A template has a source path or is embedded, not both";
        errors.add(Code::Conflict, "SourcePath", text);
    }
    if destination.is_empty() {
        errors.add(Code::Missing, "DestPath", "Must specify a destination for the template");
    } else if escapes(destination) {
        errors.add(Code::PathEscapes, "DestPath", "template destination escapes allocation directory");
    }
    if escapes(source) {
        errors.add(Code::PathEscapes, "SourcePath", "template source escapes allocation directory");
    }
    let mode = &template.change_mode;
    change_mode(mode, &template.change_signal, &["noop", "restart", "signal", "script"], errors);
    if template.envvars && matches!(mode.as_str(), "signal" | "script") {
        let text = format!("cannot use change mode {mode} with env var templates");
        errors.add(Code::Conflict, "ChangeMode", text);
    }
    if mode == "script" {
        match &template.change_script {
            None => {
                let text = "must specify change script configuration value when change mode is script";
                errors.add(Code::Missing, "ChangeScript", text);
            }
            Some(script) if script.command.is_empty() => {
                let text = "must specify script command value when change mode is script";
                errors.add(Code::Missing, "ChangeScript.Command", text);
            }
            Some(_) => {}
        }
    }
    if template.splay < Nanos::ZERO {
        errors.add(Code::BelowMinimum, "Splay", "Must specify positive splay value");
    }
    let perms = &template.perms;
    if !perms.is_empty() && !u32::from_str_radix(perms, 8).is_ok_and(|bits| bits <= 0o7777) {
        let text = format!("Failed to parse \"{perms}\" as octal permissions");
        errors.add(Code::InvalidValue, "Perms", text);
    }
    if let Some(wait) = &template.wait {
        match (wait.min, wait.max) {
            (Some(min), Some(max)) if min < Nanos::ZERO || max < min => {
                errors.add(Code::Conflict, "Wait.Min", format!("wait min {min} is greater than max {max}"));
            }
            (Some(_), Some(_)) => {}
            _ => errors.add(Code::Missing, "Wait", "wait must have both min and max"),
        }
    }
}

fn artifact(artifact: &Artifact, errors: &mut Findings) {
    match artifact.getter_source.as_str() {
        "" => errors.add(Code::Missing, "GetterSource", "source must be specified"),
        source if source.contains("${") => {}
        source
            if ["http::", "https::"]
                .iter()
                .find_map(|getter| source.strip_prefix(getter))
                .unwrap_or(source)
                .split_once("://")
                .is_some_and(|(scheme, _)| matches!(scheme, "http" | "https")) => {}
        // No node can fetch such a source, so the task would wait forever.
        source => {
            let way = source
                .split_once("::")
                .or_else(|| source.split_once("://"))
                .map_or("elsewhere", |(way, _)| way);
            let text = format!(
                "artifacts from {way} are not supported yet: the source must be an http:// or https:// URL"
            );
            errors.add(Code::Unsupported, "GetterSource", text);
        }
    }
    let mode = artifact.getter_mode.as_str();
    if !matches!(mode, "" | "any" | "file" | "dir") {
        let text = one_of("invalid artifact mode", mode, &["any", "file", "dir"]);
        errors.add(Code::UnknownWord, "GetterMode", text);
    }
    if escapes(&artifact.relative_dest) {
        errors.add(Code::PathEscapes, "RelativeDest", "destination escapes allocation directory");
    }
    if let Some(checksum) = artifact.getter_options.get("checksum")
        && !checksum.contains("${")
        && let Err((code, text)) = self::checksum(checksum)
    {
        let path = errors.path.clone().field("GetterOptions").key("checksum");
        errors.add_at(code, path, text);
    }
}

/// Checks a checksum of the form `type:digits`.
fn checksum(checksum: &str) -> Result<(), (Code, String)> {
    let known = [("md5", 32), ("sha1", 40), ("sha256", 64), ("sha512", 128)];
    let Some((kind, digits)) = checksum.trim().split_once(':') else {
        let text = format!("checksum must be given as \"type:value\", not \"{checksum}\"");
        return Err((Code::InvalidValue, text));
    };
    match known.iter().find(|(name, _)| *name == kind) {
        Some((_, length)) if digits.len() == *length && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Ok(())
        }
        Some(_) => {
            let text = format!("invalid checksum \"{checksum}\": wrong length or digits for {kind}");
            Err((Code::InvalidValue, text))
        }
        None if kind == "file" => Ok(()),
        None => {
            let text = one_of("checksum type not supported:", kind, &known.map(|(name, _)| name));
            Err((Code::UnknownWord, text))
        }
    }
}

fn vault(vault: &api::Vault, errors: &mut Findings) {
    let mode = vault.change_mode.as_deref().unwrap_or("restart");
    let signal = vault.change_signal.as_deref().unwrap_or_default();
    let mut found = errors.below("Vault");
    change_mode(mode, signal, &["noop", "restart", "signal"], &mut found);
    errors.nest("Vault validation failed: ", found);
}

/// Whether a name has 1 to 128 letters, digits and permitted marks.
fn is_name(name: &str, marks: &[u8]) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
}

fn identity(identity: &IdentitySpec, errors: &mut Findings) {
    let default = matches!(identity.name.as_str(), "" | "default");
    if !default && !is_name(&identity.name, b"-_") {
        let text = format!(
            "invalid name \"{}\": it must have 1 to 128 letters, digits, dashes and underscores",
            identity.name
        );
        errors.add(Code::InvalidName, "Name", text);
    }
    if default && identity.ttl != Nanos::ZERO {
        errors.add(Code::Unsupported, "TTL", "ttl for default identity not yet supported");
    }
    if identity.ttl < Nanos::ZERO {
        errors.add(Code::BelowMinimum, "TTL", "ttl must be >= 0");
    }
    if let Some(at) = identity.audience.iter().flatten().position(String::is_empty) {
        let path = errors.path.clone().field("Audience").index(at);
        errors.add_at(Code::Missing, path, "an empty string is an invalid audience");
    }
    if !identity.change_mode.is_empty() {
        change_mode(&identity.change_mode, &identity.change_signal, &["noop", "restart", "signal"], errors);
    }
    if identity.change_mode != "signal" && !identity.change_signal.is_empty() {
        let text = "can only use change_signal with change_mode = \"signal\"";
        errors.add(Code::Conflict, "ChangeSignal", text);
    }
    if escapes(&identity.filepath) {
        errors.add(Code::PathEscapes, "Filepath", "identity filepath escapes allocation directory");
    }
}

fn secret(task: &Task, secret: &api::Secret, errors: &mut Findings) {
    if !is_name(&secret.name, b"_") {
        let text = format!(
            "secret name must have 1 to 128 letters, digits and underscores, not \"{}\"",
            secret.name
        );
        errors.add(Code::InvalidName, "Name", text);
    }
    if secret.provider.is_empty() {
        errors.add(Code::Missing, "Provider", "secret must have a provider");
    }
    if secret.path.is_empty() {
        errors.add(Code::Missing, "Path", "secret must have a path");
    }
    if secret.provider == "vault" && task.vault.is_none() {
        let text = "secrets of provider vault need a vault block";
        errors.add(Code::UndefinedReference, "Provider", text);
    }
    if matches!(secret.provider.as_str(), "vault" | "nomad")
        && secret.env.as_ref().is_some_and(|e| !e.is_empty())
    {
        let text = format!("secrets of provider {} cannot have env", secret.provider);
        errors.add(Code::Conflict, "Env", text);
    }
}
