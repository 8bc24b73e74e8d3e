//! Blocks that are stored in the shape of the request. Settings that a raw request left out have the defaults of the
//! canonical form.

use crate as api;
use caravan_types::identity::IdentitySpec;
use caravan_types::job as kept;
use caravan_types::scaling::{ScalingPolicy, VersionTag};
use caravan_types::service::{CheckRestartSpec, CheckSpec, ServiceSpec, ServiceWeights};
use caravan_types::time::UnixNanos;

/// Converts every block of a list. A missing list becomes an empty one.
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

/// Converts a scaling policy. Its namespace is the namespace of its job, and is part of its target.
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

pub(super) fn ui(ui: &api::JobUi) -> kept::JobUi {
    let link = |link: &api::JobUiLink| kept::JobUiLink { label: link.label.clone(), url: link.url.clone() };
    kept::JobUi {
        description: ui.description.clone(),
        links: ui.links.as_ref().map(|links| links.iter().map(link).collect()),
    }
}

pub(super) fn consul(c: &api::Consul) -> kept::Consul {
    kept::Consul {
        namespace: c.namespace.clone(),
        cluster: c.cluster.clone(),
        partition: c.partition.clone(),
    }
}

pub(super) fn numa(n: &api::Numa) -> kept::Numa {
    kept::Numa { affinity: n.affinity.clone(), devices: n.devices.clone() }
}

pub(super) fn dns(dns: &api::Dns) -> kept::Dns {
    kept::Dns { servers: dns.servers.clone(), searches: dns.searches.clone(), options: dns.options.clone() }
}

/// Converts a service. Each of its checks already contains the `check_restart` of the service.
pub(super) fn service(s: &api::Service) -> ServiceSpec {
    ServiceSpec {
        name: s.name.clone(),
        tags: s.tags.clone(),
        canary_tags: s.canary_tags.clone(),
        enable_tag_override: s.enable_tag_override,
        port_label: s.port_label.clone(),
        address_mode: s.address_mode.clone(),
        address: s.address.clone(),
        checks: s.checks.as_ref().map(|checks| checks.iter().map(check).collect()),
        connect: s.connect.as_ref().map(|connect| Box::new(super::unsupported(connect))),
        meta: s.meta.clone(),
        canary_meta: s.canary_meta.clone(),
        tagged_addresses: s.tagged_addresses.clone(),
        task_name: s.task_name.clone(),
        on_update: s.on_update.clone(),
        identity: s.identity.as_ref().map(|i| Box::new(identity(i))),
        weights: s.weights.as_ref().map(|w| ServiceWeights { passing: w.passing, warning: w.warning }),
        provider: s.provider.clone(),
        cluster: s.cluster.clone(),
        kind: s.kind.clone(),
        namespace: None,
    }
}

fn check(c: &api::ServiceCheck) -> CheckSpec {
    CheckSpec {
        name: c.name.clone(),
        kind: c.kind.clone(),
        command: c.command.clone(),
        args: c.args.clone(),
        path: c.path.clone(),
        protocol: c.protocol.clone(),
        port_label: c.port_label.clone(),
        expose: c.expose,
        address_mode: c.address_mode.clone(),
        interval: c.interval,
        timeout: c.timeout,
        initial_status: c.initial_status.clone(),
        notes: c.notes.clone(),
        tls_server_name: c.tls_server_name.clone(),
        tls_skip_verify: c.tls_skip_verify,
        header: c.header.clone(),
        method: c.method.clone(),
        check_restart: c.check_restart.as_ref().map(|restart| CheckRestartSpec {
            limit: restart.limit,
            grace: restart.grace.unwrap_or_default(),
            ignore_warnings: restart.ignore_warnings,
        }),
        grpc_service: c.grpc_service.clone(),
        grpc_use_tls: c.grpc_use_tls,
        task_name: c.task_name.clone(),
        success_before_passing: c.success_before_passing,
        failures_before_critical: c.failures_before_critical,
        failures_before_warning: c.failures_before_warning,
        body: c.body.clone(),
        on_update: c.on_update.clone(),
    }
}
