//! Rules for the blocks of a task that are stored unparsed: templates, artifacts, identities, secrets, ...

use super::{joined, one_of};
use caravan_types::Nanos;
use caravan_types::api::{self, from_value};
use caravan_types::identity::IdentitySpec;
use caravan_types::job::{Artifact, Task, Template, Unsupported};
use std::collections::HashSet;

pub(super) fn check(task: &Task, errors: &mut Vec<String>) {
    let mut destinations = HashSet::new();
    each(&task.templates, "Template", errors, |template, found| {
        self::template(template, found);
        let destination = template.dest_path.clone();
        if !destination.is_empty() && !destinations.insert(destination.clone()) {
            found.push(format!("another template has the destination \"{destination}\" too"));
        }
    });
    each(&task.artifacts, "Artifact", errors, artifact);
    if let Some(payload) = &task.dispatch_payload {
        if payload.file.is_empty() {
            errors.push("Dispatch Payload validation failed: file must be set".into());
        }
        // The file must be below `local`.
        if leads_out(0, &payload.file) {
            errors
                .push("Dispatch Payload validation failed: destination escapes allocation directory".into());
        }
    }
    if let Some(vault) = task.vault.as_deref().and_then(unsupported::<api::Vault>) {
        self::vault(&vault, errors);
    }
    if let Some(identity) = &task.identity {
        self::identity(identity, errors);
    }
    let mut names = HashSet::new();
    each(&task.identities, "Identity", errors, |identity, found| {
        self::identity(identity, found);
        if !names.insert(identity.name.clone()) {
            found.push(format!("Duplicate identity \"{}\" found", identity.name));
        }
    });
    let mut names = HashSet::new();
    let secrets: Vec<api::Secret> = task.secrets.iter().filter_map(unsupported).collect();
    each(&secrets, "Secret", errors, |secret, found| {
        self::secret(task, secret, found);
        if !names.insert(secret.name.clone()) {
            found.push(format!("Duplicate secret \"{}\" found", secret.name));
        }
    });
    let mut names = HashSet::new();
    each(&task.actions, "Action", errors, |action, found| {
        if action.command.is_empty() {
            found.push("command must be set".into());
        }
        let plain = !action.name.is_empty()
            && action.name.chars().count() <= 128
            && !action.name.contains(char::is_whitespace);
        if !plain {
            found.push(format!(
                "invalid name \"{}\": it must have 1 to 128 characters and no blanks",
                action.name
            ));
        }
        if !names.insert(action.name.clone()) {
            found.push(format!("Duplicate action \"{}\" found", action.name));
        }
    });
    let mut kinds = HashSet::new();
    each(&task.scaling_policies, "Scaling", errors, |policy, found| {
        match (policy.min.unwrap_or_default(), policy.max) {
            (_, None) => found.push("maximum must be specified".into()),
            (min, _) if min < 0 => found.push(format!("minimum must be at least zero, got {min}")),
            (min, Some(max)) if max < min => {
                found.push(format!("maximum ({max}) must not be less than minimum ({min})"));
            }
            _ => {}
        }
        if !kinds.insert(policy.kind.clone()) {
            found.push(format!("more than one policy of type {}", policy.kind));
        }
    });
}

fn unsupported<T: api::decode::ApiValue>(block: &Unsupported) -> Option<T> {
    from_value(&block.0).ok()
}

/// Checks every block of a list; errors are reported under the block's number.
fn each<T>(blocks: &[T], what: &str, errors: &mut Vec<String>, mut check: impl FnMut(&T, &mut Vec<String>)) {
    for (index, block) in blocks.iter().enumerate() {
        let mut found = Vec::new();
        check(block, &mut found);
        if !found.is_empty() {
            errors.push(format!("{what} {} validation failed: {}", index + 1, joined(&found)));
        }
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

/// Checks `change_mode`, and the signal if the mode needs one.
fn change_mode(mode: &str, signal: &str, known: &[&str], errors: &mut Vec<String>) {
    if !known.contains(&mode) {
        errors.push(one_of("Invalid change mode given:", mode, known));
    }
    if mode == "signal" && signal.is_empty() {
        errors.push("Must specify signal value when change mode is signal".into());
    }
}

fn template(template: &Template, errors: &mut Vec<String>) {
    let (source, data, destination) = (&template.source_path, &template.embedded_tmpl, &template.dest_path);
    if source.is_empty() && data.is_empty() {
        errors.push("Must specify a source path or have an embedded template".into());
    }
    if !source.is_empty() && !data.is_empty() {
        errors.push("A template has a source path or is embedded, not both".into());
    }
    if destination.is_empty() {
        errors.push("Must specify a destination for the template".into());
    } else if escapes(destination) {
        errors.push("template destination escapes allocation directory".into());
    }
    if escapes(source) {
        errors.push("template source escapes allocation directory".into());
    }
    let mode = &template.change_mode;
    change_mode(mode, &template.change_signal, &["noop", "restart", "signal", "script"], errors);
    if template.envvars && matches!(mode.as_str(), "signal" | "script") {
        errors.push(format!("cannot use change mode {mode} with env var templates"));
    }
    if mode == "script" {
        match &template.change_script {
            None => errors
                .push("must specify change script configuration value when change mode is script".into()),
            Some(script) if script.command.is_empty() => {
                errors.push("must specify script command value when change mode is script".into());
            }
            Some(_) => {}
        }
    }
    if template.splay < Nanos::ZERO {
        errors.push("Must specify positive splay value".into());
    }
    let perms = &template.perms;
    if !perms.is_empty() && !u32::from_str_radix(perms, 8).is_ok_and(|bits| bits <= 0o7777) {
        errors.push(format!("Failed to parse \"{perms}\" as octal permissions"));
    }
    if let Some(wait) = &template.wait {
        match (wait.min, wait.max) {
            (Some(min), Some(max)) if min < Nanos::ZERO || max < min => {
                errors.push(format!("wait min {min} is greater than max {max}"));
            }
            (Some(_), Some(_)) => {}
            _ => errors.push("wait must have both min and max".into()),
        }
    }
}

fn artifact(artifact: &Artifact, errors: &mut Vec<String>) {
    match artifact.getter_source.as_str() {
        "" => errors.push("source must be specified".into()),
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
            errors.push(format!(
                "artifacts from {way} are not supported yet: the source must be an http:// or https:// URL"
            ));
        }
    }
    let mode = artifact.getter_mode.as_str();
    if !matches!(mode, "" | "any" | "file" | "dir") {
        errors.push(one_of("invalid artifact mode", mode, &["any", "file", "dir"]));
    }
    if escapes(&artifact.relative_dest) {
        errors.push("destination escapes allocation directory".into());
    }
    if let Some(checksum) = artifact.getter_options.get("checksum")
        && !checksum.contains("${")
    {
        let known = [("md5", 32), ("sha1", 40), ("sha256", 64), ("sha512", 128)];
        match checksum.trim().split_once(':') {
            Some((kind, digits)) => match known.iter().find(|(name, _)| *name == kind) {
                Some((_, length))
                    if digits.len() == *length && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {}
                Some(_) => {
                    errors.push(format!("invalid checksum \"{checksum}\": wrong length or digits for {kind}"))
                }
                None if kind == "file" => {}
                None => {
                    errors.push(one_of("checksum type not supported:", kind, &known.map(|(name, _)| name)))
                }
            },
            None => errors.push(format!("checksum must be given as \"type:value\", not \"{checksum}\"")),
        }
    }
}

fn vault(vault: &api::Vault, errors: &mut Vec<String>) {
    let mode = vault.change_mode.as_deref().unwrap_or("restart");
    let signal = vault.change_signal.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    change_mode(mode, signal, &["noop", "restart", "signal"], &mut found);
    if !found.is_empty() {
        errors.push(format!("Vault validation failed: {}", joined(&found)));
    }
}

/// Returns whether a name has 1 to 128 characters: letters, digits and the given marks.
fn is_name(name: &str, marks: &[u8]) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || marks.contains(&b))
}

fn identity(identity: &IdentitySpec, errors: &mut Vec<String>) {
    let default = matches!(identity.name.as_str(), "" | "default");
    if !default && !is_name(&identity.name, b"-_") {
        errors.push(format!(
            "invalid name \"{}\": it must have 1 to 128 letters, digits, dashes and underscores",
            identity.name
        ));
    }
    if default && identity.ttl != Nanos::ZERO {
        errors.push("ttl for default identity not yet supported".into());
    }
    if identity.ttl < Nanos::ZERO {
        errors.push("ttl must be >= 0".into());
    }
    if identity.audience.iter().flatten().any(String::is_empty) {
        errors.push("an empty string is an invalid audience".into());
    }
    if !identity.change_mode.is_empty() {
        change_mode(&identity.change_mode, &identity.change_signal, &["noop", "restart", "signal"], errors);
    }
    if identity.change_mode != "signal" && !identity.change_signal.is_empty() {
        errors.push("can only use change_signal with change_mode = \"signal\"".into());
    }
    if escapes(&identity.filepath) {
        errors.push("identity filepath escapes allocation directory".into());
    }
}

fn secret(task: &Task, secret: &api::Secret, errors: &mut Vec<String>) {
    if !is_name(&secret.name, b"_") {
        errors.push(format!(
            "secret name must have 1 to 128 letters, digits and underscores, not \"{}\"",
            secret.name
        ));
    }
    if secret.provider.is_empty() {
        errors.push("secret must have a provider".into());
    }
    if secret.path.is_empty() {
        errors.push("secret must have a path".into());
    }
    if secret.provider == "vault" && task.vault.is_none() {
        errors.push("secrets of provider vault need a vault block".into());
    }
    if matches!(secret.provider.as_str(), "vault" | "nomad")
        && secret.env.as_ref().is_some_and(|e| !e.is_empty())
    {
        errors.push(format!("secrets of provider {} cannot have env", secret.provider));
    }
}
