//! The settings of known drivers (docs/reference/jobspec.md, section 10). The driver validates a task's `config` on
//! its node, but an unknown name is reported here as a warning.

use crate::ast::{Block, Body, ExprKind};
use crate::diag::{Diagnostic, nearest};
use crate::value::Value;

/// A driver, its required settings, and all its settings.
struct Driver {
    name: &'static str,
    required: &'static [&'static str],
    known: &'static [&'static str],
}

const DRIVERS: &[Driver] = &[
    Driver {
        name: "raw_exec",
        required: &["command"],
        known: &[
            "args",
            "cgroup_v1_override",
            "cgroup_v2_override",
            "command",
            "denied_envvars",
            "oom_score_adj",
            "work_dir",
        ],
    },
    Driver {
        name: "exec",
        required: &["command"],
        known: &["args", "cap_add", "cap_drop", "command", "ipc_mode", "pid_mode", "work_dir"],
    },
    Driver {
        name: "java",
        required: &[],
        known: &[
            "args",
            "cap_add",
            "cap_drop",
            "class",
            "class_path",
            "ipc_mode",
            "jar_path",
            "jvm_options",
            "pid_mode",
            "work_dir",
        ],
    },
    Driver {
        name: "qemu",
        required: &["image_path"],
        known: &[
            "accelerator",
            "args",
            "drive_interface",
            "emulator",
            "graceful_shutdown",
            "guest_agent",
            "image_path",
            "machine_type",
            "port_map",
        ],
    },
    Driver {
        name: "docker",
        required: &["image"],
        known: &[
            "advertise_ipv6_address",
            "args",
            "auth",
            "auth_soft_fail",
            "cap_add",
            "cap_drop",
            "cgroupns",
            "command",
            "container_exists_attempts",
            "cpu_cfs_period",
            "cpu_hard_limit",
            "cpuset_cpus",
            "devices",
            "dns_options",
            "dns_search_domains",
            "dns_servers",
            "entrypoint",
            "extra_hosts",
            "force_pull",
            "group_add",
            "healthchecks",
            "hostname",
            "image",
            "image_pull_timeout",
            "init",
            "interactive",
            "ipc_mode",
            "ipv4_address",
            "ipv6_address",
            "isolation",
            "labels",
            "load",
            "logging",
            "mac_address",
            "memory_hard_limit",
            "mount",
            "mounts",
            "network_aliases",
            "network_mode",
            "oom_score_adj",
            "pid_mode",
            "pids_limit",
            "port_map",
            "ports",
            "privileged",
            "readonly_rootfs",
            "runtime",
            "security_opt",
            "shm_size",
            "storage_opt",
            "sysctl",
            "tty",
            "ulimit",
            "userns_mode",
            "uts_mode",
            "volume_driver",
            "volumes",
            "work_dir",
        ],
    },
];

/// Checks the tasks of a job in the native notation.
pub(super) fn check(body: &Body, found: &mut Vec<Diagnostic>) {
    for block in &body.blocks {
        let dynamic = block.kind.text == "dynamic";
        let kind = if dynamic { block.labels.first() } else { Some(&block.kind) };
        let inner =
            if dynamic { block.body.blocks.iter().find(|b| b.kind.text == "content") } else { Some(block) };
        match (kind.map(|k| k.text.as_str()), inner) {
            (Some("group"), Some(inner)) => check(&inner.body, found),
            (Some("task"), Some(inner)) => task(&inner.body, found),
            _ => {}
        }
    }
}

fn task(body: &Body, found: &mut Vec<Diagnostic>) {
    let name = body.attributes.iter().find(|a| a.name.text == "driver").map(|a| &a.value.kind);
    let Some(ExprKind::Literal(Value::Str(name))) = name else { return };
    let Some(driver) = DRIVERS.iter().find(|d| d.name == &**name) else { return };
    for config in body.blocks.iter().filter(|b| b.kind.text == "config") {
        settings(driver, config, found);
    }
}

fn settings(driver: &Driver, config: &Block, found: &mut Vec<Diagnostic>) {
    let arguments = config.body.attributes.iter().map(|a| &a.name);
    let names: Vec<_> = arguments.chain(config.body.blocks.iter().map(|b| &b.kind)).collect();
    for name in &names {
        if driver.known.contains(&name.text.as_str()) {
            continue;
        }
        let near = nearest(&name.text, driver.known.iter().copied());
        let near = near.map(|n| format!(" Did you mean {n:?}?")).unwrap_or_default();
        found.push(Diagnostic::warning(
            "E0409",
            name.span,
            "Unknown driver setting",
            format!(
                "Driver {} has no setting named {:?}: the task would fail.{near}",
                driver.name, name.text
            ),
        ));
    }
    for desired in driver.required {
        if !names.iter().any(|name| name.text == *desired) {
            found.push(Diagnostic::warning(
                "E0409",
                config.kind.span,
                "Missing driver setting",
                format!("Driver {} needs {desired:?}: the task would fail.", driver.name),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{ParseOptions, parse};
    use crate::source::Source;

    #[test]
    fn misspelt_settings_are_reported() {
        let text = "job \"a\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"exec\"\n      config {\n        comand = \"x\"\n      }\n    }\n  }\n  dynamic \"task\" {\n    for_each = [1]\n    labels = [\"u\"]\n    content {\n      driver = \"docker\"\n      config {\n        image = \"x\"\n        mount {\n        }\n        port = 5\n      }\n    }\n  }\n  task \"v\" {\n    driver = \"other\"\n    config {\n      comand = 1\n    }\n  }\n}\n";
        let (_, found) = parse(&Source::new("f", text), &ParseOptions::default()).unwrap();
        assert_eq!(
            found.to_string(),
            "f:6,9-15: Unknown driver setting; Driver exec has no setting named \"comand\": the task would fail. Did you mean \"command\"?\n\
             f:5,7-13: Missing driver setting; Driver exec needs \"command\": the task would fail.\n\
             f:19,9-13: Unknown driver setting; Driver docker has no setting named \"port\": the task would fail. Did you mean \"ports\"?"
        );
    }
}
