//! Blocks that are kept in the shape in which they came, with the canonical form's defaults for what a raw request left
//! out.

use crate::api;
use crate::identity::IdentitySpec;
use crate::job as kept;
use crate::scaling::{ScalingPolicy, VersionTag};
use crate::time::UnixNanos;

/// Converts every block of a list; no list is an empty one.
pub(super) fn all<T, K>(blocks: Option<&Vec<T>>, convert: impl Fn(&T) -> K) -> Vec<K> {
    blocks.into_iter().flatten().map(convert).collect()
}

pub(super) fn periodic(p: &api::Periodic) -> kept::Periodic {
    kept::Periodic {
        enabled: p.enabled.unwrap_or(true),
        spec: p.spec.clone().unwrap_or_default(),
        specs: p.specs.clone().unwrap_or_default(),
        spec_type: p.spec_type.clone().unwrap_or_else(|| "cron".to_owned()),
        prohibit_overlap: p.prohibit_overlap.unwrap_or_default(),
        time_zone: p.time_zone.clone().unwrap_or_else(|| "UTC".to_owned()),
    }
}

pub(super) fn parameterized(p: &api::Parameterized) -> kept::Parameterized {
    kept::Parameterized {
        payload: p.payload.clone(),
        meta_required: p.meta_required.clone(),
        meta_optional: p.meta_optional.clone(),
    }
}

pub(super) fn version_tag(tag: &api::VersionTag) -> VersionTag {
    VersionTag {
        name: tag.name.clone(),
        description: tag.description.clone(),
        tagged_time: UnixNanos(tag.tagged_time),
    }
}

/// The namespace of a policy is its job's, and is part of its target.
pub(super) fn scaling(s: &api::ScalingPolicy) -> ScalingPolicy {
    ScalingPolicy {
        min: s.min,
        max: s.max,
        policy: s.policy.clone(),
        enabled: s.enabled,
        kind: s.kind.clone(),
        id: s.id.clone(),
        target: s.target.clone(),
        create_index: s.create_index,
        modify_index: s.modify_index,
    }
}

pub(super) fn template(t: &api::Template) -> kept::Template {
    let default = kept::Template::default();
    kept::Template {
        source_path: t.source.clone().unwrap_or_default(),
        dest_path: t.destination.clone().unwrap_or_default(),
        embedded_tmpl: t.data.clone().unwrap_or_default(),
        change_mode: t.change_mode.clone().unwrap_or(default.change_mode),
        change_script: t.change_script.as_ref().map(|script| Box::new(change_script(script))),
        change_signal: t.change_signal.clone().unwrap_or_default(),
        once: t.once.unwrap_or_default(),
        splay: t.splay.unwrap_or(default.splay),
        perms: t.perms.clone().unwrap_or(default.perms),
        uid: t.uid,
        gid: t.gid,
        left_delim: t.left_delim.clone().unwrap_or(default.left_delim),
        right_delim: t.right_delim.clone().unwrap_or(default.right_delim),
        envvars: t.env.unwrap_or_default(),
        vault_grace: t.vault_grace.unwrap_or_default(),
        wait: t.wait.as_ref().map(|wait| kept::WaitConfig { min: wait.min, max: wait.max }),
        err_missing_key: t.error_on_missing_key.unwrap_or_default(),
    }
}

fn change_script(s: &api::ChangeScript) -> kept::ChangeScript {
    kept::ChangeScript {
        command: s.command.clone().unwrap_or_default(),
        args: s.args.clone().unwrap_or_default(),
        timeout: s.timeout.unwrap_or(kept::ChangeScript::default().timeout),
        fail_on_error: s.fail_on_error.unwrap_or_default(),
        run_on_first_render: s.run_on_first_render.unwrap_or_default(),
    }
}

pub(super) fn artifact(a: &api::Artifact) -> kept::Artifact {
    kept::Artifact {
        getter_source: a.source.clone().unwrap_or_default(),
        getter_options: a.options.clone().unwrap_or_default(),
        getter_headers: a.headers.clone().unwrap_or_default(),
        getter_mode: a.mode.clone().unwrap_or_default(),
        getter_insecure: a.insecure.unwrap_or_default(),
        relative_dest: a.destination.clone().unwrap_or_default(),
        chown: a.chown,
    }
}

pub(super) fn dispatch_payload(p: &api::DispatchPayload) -> kept::DispatchPayload {
    kept::DispatchPayload { file: p.file.clone() }
}

pub(super) fn action(a: &api::Action) -> kept::Action {
    kept::Action { name: a.name.clone(), command: a.command.clone(), args: a.args.clone() }
}

pub(super) fn identity(i: &api::WorkloadIdentity) -> IdentitySpec {
    IdentitySpec {
        name: i.name.clone(),
        audience: i.audience.clone(),
        change_mode: i.change_mode.clone(),
        change_signal: i.change_signal.clone(),
        env: i.env,
        file: i.file,
        filepath: i.filepath.clone(),
        service_name: i.service_name.clone(),
        ttl: i.ttl,
        extra_claims: i.extra_claims.clone(),
    }
}
