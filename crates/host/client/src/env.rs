//! The environment of a task and the interpolation of its texts (docs/reference/jobspec.md, sections 9.1 and 9.2).
//! Pure.

use caravan_lang::interpolate;
use caravan_types::alloc::{AllocatedPort, Allocation, NetworkStatus};
use caravan_types::job::{Job, Task, TaskGroup};
use caravan_types::node::Node;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Directories as the task sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenDirs {
    /// The shared directory, set as `NOMAD_ALLOC_DIR`.
    pub(crate) alloc: String,
    /// The directory `local`, set as `NOMAD_TASK_DIR`.
    pub(crate) local: String,
    /// The directory `secrets`, set as `NOMAD_SECRETS_DIR`.
    pub(crate) secrets: String,
}

/// The inputs of an environment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inputs<'a> {
    /// The node that runs the task.
    pub(crate) node: &'a Arc<Node>,
    /// The node's region.
    pub(crate) region: &'a str,
    /// The task's allocation.
    pub(crate) alloc: &'a Allocation,
    /// The allocation's job.
    pub(crate) job: &'a Job,
    /// The task's group.
    pub(crate) group: &'a TaskGroup,
    /// The task that the variables are for.
    pub(crate) task: &'a Task,
    /// The task's directories, as it sees them.
    pub(crate) dirs: &'a SeenDirs,
    /// The parent of the task's control group.
    pub(crate) cgroup_parent: &'a str,
    /// The host's environment, for drivers that pass it on.
    pub(crate) host: &'a BTreeMap<String, String>,
    /// Variables that hooks of the task add. Texts may refer to them, and the job file may override them.
    pub(crate) hooks: &'a BTreeMap<String, String>,
}

/// The environment of a task, and the node whose properties its texts may refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskEnv {
    env: BTreeMap<String, String>,
    node: Arc<Node>,
    region: String,
}

/// Variables of the host that tasks never receive, unless the agent's configuration allows them.
pub(crate) const DENIED: &[&str] = &[
    "CONSUL_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "NOMAD_TOKEN",
    "CARAVAN_TOKEN",
    "VAULT_TOKEN",
    "NOMAD_LICENSE",
    "NOMAD_LICENSE_PATH",
    "CONSUL_LICENSE",
    "CONSUL_LICENSE_PATH",
    "VAULT_LICENSE",
    "VAULT_LICENSE_PATH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_METADATA_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
];

impl TaskEnv {
    /// Builds the environment.
    pub(crate) fn build(inputs: &Inputs<'_>) -> Self {
        let Inputs { node, region, alloc, job, group, task, dirs, .. } = *inputs;
        let mut this = Self { env: BTreeMap::new(), node: Arc::clone(node), region: region.to_owned() };
        let mut set = |key: &str, value: String| {
            this.env.insert(key.to_owned(), value);
        };
        set("NOMAD_ALLOC_DIR", dirs.alloc.clone());
        set("NOMAD_TASK_DIR", dirs.local.clone());
        set("NOMAD_SECRETS_DIR", dirs.secrets.clone());
        set("NOMAD_ALLOC_ID", alloc.id.to_string());
        set("NOMAD_SHORT_ALLOC_ID", alloc.id.short().to_owned());
        set("NOMAD_ALLOC_NAME", alloc.name.clone());
        set("NOMAD_ALLOC_INDEX", alloc.index().map_or_else(String::new, |n| n.to_string()));
        set("NOMAD_GROUP_NAME", group.name.clone());
        set("NOMAD_TASK_NAME", task.name.clone());
        set("NOMAD_JOB_ID", job.id.to_string());
        set("NOMAD_JOB_NAME", job.name.clone());
        if !job.parent_id.is_empty() {
            set("NOMAD_JOB_PARENT_ID", job.parent_id.to_string());
        }
        set("NOMAD_DC", node.datacenter.clone());
        set("NOMAD_REGION", region.to_owned());
        set("NOMAD_NAMESPACE", alloc.namespace.to_string());
        set("NOMAD_PARENT_CGROUP", inputs.cgroup_parent.to_owned());
        let allocated = alloc.allocated_resources.as_ref().and_then(|r| r.tasks.get(&task.name));
        let cpu = allocated.map_or(task.resources.cpu, |g| g.cpu.cpu_shares);
        let memory = allocated.map_or(task.resources.memory_mb, |g| g.memory.memory_mb);
        let memory_max = allocated.map_or(task.resources.memory_max_mb, |g| g.memory.memory_max_mb);
        set("NOMAD_CPU_LIMIT", cpu.to_string());
        set("NOMAD_MEMORY_LIMIT", memory.to_string());
        if memory_max > 0 && memory_max != memory {
            set("NOMAD_MEMORY_MAX_LIMIT", memory_max.to_string());
        }
        let cores = allocated
            .map_or_else(String::new, |g| caravan_types::cores::format(g.cpu.reserved_cores.iter().copied()));
        // Nomad writes a blank if no cores are reserved.
        set("NOMAD_CPU_CORES", if cores.is_empty() { " ".to_owned() } else { cores });
        let shared = alloc.allocated_resources.as_ref().map(|r| &r.shared);
        for port in shared.into_iter().flat_map(|s| &s.ports) {
            this.add_port(port, alloc.network_status.as_deref());
        }
        // Optional metadata that a dispatch did not set is present and empty.
        let optional =
            job.parameterized_job.iter().filter(|_| job.dispatched).flat_map(|rule| rule.optional());
        let optional = optional.map(|key| (key.clone(), String::new())).collect();
        this.add_meta([&optional, &job.meta, &group.meta, &task.meta]);
        for (key, value) in inputs.hooks.iter().chain(inputs.host) {
            this.env.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let own: Vec<_> = task.env.iter().map(|(k, v)| (this.text(k), this.text(v))).collect();
        this.env.extend(own);
        this
    }

    fn add_port(&mut self, port: &AllocatedPort, network: Option<&NetworkStatus>) {
        let (label, ip) = (&port.label, &port.host_ip);
        let inner = if port.to > 0 { port.to } else { port.value };
        let mut set = |name: String, value: String| {
            self.env.insert(clean(&name), value);
        };
        set(format!("NOMAD_IP_{label}"), ip.clone());
        set(format!("NOMAD_PORT_{label}"), inner.to_string());
        set(format!("NOMAD_ADDR_{label}"), address(ip, port.value));
        set(format!("NOMAD_HOST_IP_{label}"), ip.clone());
        set(format!("NOMAD_HOST_PORT_{label}"), port.value.to_string());
        set(format!("NOMAD_HOST_ADDR_{label}"), address(ip, port.value));
        set(format!("NOMAD_ALLOC_PORT_{label}"), inner.to_string());
        if let Some(network) = network.filter(|network| !network.address.is_empty()) {
            set(format!("NOMAD_ALLOC_INTERFACE_{label}"), network.interface_name.clone());
            set(format!("NOMAD_ALLOC_IP_{label}"), network.address.clone());
            set(format!("NOMAD_ALLOC_ADDR_{label}"), address(&network.address, inner));
        }
    }

    fn add_meta(&mut self, layers: [&BTreeMap<String, String>; 4]) {
        let mut meta = BTreeMap::new();
        for layer in layers {
            meta.extend(layer.iter().map(|(k, v)| (self.text(k), self.text(v))));
        }
        for (key, value) in meta {
            self.env.insert(clean(&format!("NOMAD_META_{}", key.to_uppercase())), value.clone());
            self.env.insert(clean(&format!("NOMAD_META_{key}")), value);
        }
    }

    /// Returns a text with its references replaced; unknown ones stay.
    pub(crate) fn text(&self, text: &str) -> String {
        interpolate(text, |name| self.env.get(name).cloned().or_else(|| self.property(name)))
    }

    /// Returns a property of the node by its name in texts.
    fn property(&self, name: &str) -> Option<String> {
        let node = &self.node;
        match name.split_once('.')? {
            ("attr", key) => node.attributes.get(key).cloned(),
            ("meta", key) => node.meta.get(key).cloned(),
            ("node", "unique.id") => Some(node.id.to_string()),
            ("node", "unique.name") => Some(node.name.to_string()),
            ("node", "datacenter") => Some(node.datacenter.clone()),
            ("node", "region") => Some(self.region.clone()),
            ("node", "class") => Some(node.node_class.clone()),
            ("node", "pool") => Some(node.node_pool.clone()),
            _ => None,
        }
    }

    /// Returns a driver's configuration with the references in its strings replaced. The form `${env["X"]}` works too.
    pub(crate) fn config(&self, config: &BTreeMap<String, Value>) -> Value {
        Value::Object(config.iter().map(|(k, v)| (k.clone(), self.value(v))).collect())
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&plain_references(text))),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(k, v)| (self.text(k), self.value(v))).collect())
            }
            other => other.clone(),
        }
    }

    /// Returns the environment with more variables, which override existing ones.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut with = self.clone();
        with.env.extend(more);
        with
    }

    /// Returns the variables of the environment.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.env
    }
}

/// Returns the host's environment without the variables that tasks must not see.
pub(crate) fn host_env(
    all: impl Iterator<Item = (String, String)>,
    denied: Option<Vec<String>>,
) -> BTreeMap<String, String> {
    let denied = denied.unwrap_or_else(|| DENIED.iter().map(|d| (*d).to_owned()).collect());
    all.filter(|(key, _)| !denied.contains(key)).collect()
}

/// Rewrites `${env["X"]}` and `${attr["x"]}` to `${X}` and `${attr.x}`.
fn plain_references(text: &str) -> String {
    if !text.contains("[\"") {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let from = &rest[at..];
        let whole = from.find('}').map(|end| &from[..=end]);
        match whole.and_then(|w| indexed(w).map(|plain| (w, plain))) {
            Some((whole, plain)) => {
                out.push_str(&plain);
                rest = &from[whole.len()..];
            }
            None => {
                out.push_str("${");
                rest = &from[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn indexed(reference: &str) -> Option<String> {
    let inside = reference.strip_prefix("${")?.strip_suffix('}')?.trim();
    let (space, key) = inside.split_once("[\"")?;
    let key = key.strip_suffix("\"]")?;
    Some(if space == "env" { format!("${{{key}}}") } else { format!("${{{space}.{key}}}") })
}

fn address(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Replaces characters that shells do not allow in names by `_`, for the prefixes where Nomad does so.
fn clean(name: &str) -> String {
    const CLEANED: [&str; 5] = ["NOMAD_ADDR_", "NOMAD_IP_", "NOMAD_PORT_", "NOMAD_HOST_PORT_", "NOMAD_META_"];
    if !CLEANED.iter().any(|prefix| name.starts_with(prefix)) {
        return name.to_owned();
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::alloc::{AllocatedResources, AllocatedSharedResources};
    use proptest::prelude::*;

    fn env_of(task: &Task, alloc: &Allocation) -> TaskEnv {
        let mut node = Node { name: "n1".into(), datacenter: "dc1".into(), ..Default::default() };
        node.attributes.insert("kernel.name".into(), "linux".into());
        node.meta.insert("rack".into(), "r7".into());
        let job =
            Job { id: "j".into(), meta: [("owner-x".into(), "me".into())].into(), ..Default::default() };
        let group = TaskGroup { name: "g".into(), ..Default::default() };
        let dirs = SeenDirs { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        let host = BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]);
        TaskEnv::build(&Inputs {
            node: &Arc::new(node),
            region: "global",
            alloc,
            job: &job,
            group: &group,
            task,
            dirs: &dirs,
            cgroup_parent: "/caravan",
            host: &host,
            hooks: &BTreeMap::from([("CSI_ENDPOINT".to_owned(), "unix:///csi/csi.sock".to_owned())]),
        })
    }

    fn alloc() -> Allocation {
        let port = AllocatedPort {
            label: "http-x".into(),
            value: 25000,
            to: 8080,
            host_ip: "10.0.0.1".into(),
            ..Default::default()
        };
        Allocation {
            id: "0123456789".into(),
            name: "j.g[3]".into(),
            namespace: "default".into(),
            allocated_resources: Some(Arc::new(AllocatedResources {
                shared: AllocatedSharedResources { ports: vec![port], ..Default::default() },
                ..Default::default()
            })),
            ..Default::default()
        }
    }

    #[test]
    fn variables_are_those_of_the_reference() {
        let mut task = Task { name: "t".into(), ..Default::default() };
        task.resources.cpu = 100;
        task.env
            .insert("WHERE".into(), "${meta.rack} ${attr.kernel.name} ${NOMAD_ALLOC_INDEX} ${nope}".into());
        let env = env_of(&task, &alloc());
        let get = |key: &str| env.variables()[key].as_str();
        assert_eq!(get("NOMAD_SHORT_ALLOC_ID"), "01234567");
        assert_eq!(get("NOMAD_CPU_LIMIT"), "100");
        assert_eq!(get("NOMAD_CPU_CORES"), " ");
        assert_eq!(get("NOMAD_PORT_http_x"), "8080");
        assert_eq!(get("NOMAD_ADDR_http_x"), "10.0.0.1:25000");
        assert_eq!(get("NOMAD_ALLOC_PORT_http-x"), "8080", "this family keeps its characters");
        assert!(!env.variables().contains_key("NOMAD_ALLOC_IP_http-x"), "the host's network");
        let status = NetworkStatus {
            interface_name: "eth0".into(),
            address: "172.26.64.2".into(),
            address_ipv6: "fd00::2".into(),
            dns: None,
        };
        let inside = env_of(&task, &Allocation { network_status: Some(Arc::new(status)), ..alloc() });
        let of_alloc = |key: &str| inside.variables()[key].as_str();
        assert_eq!(of_alloc("NOMAD_ALLOC_INTERFACE_http-x"), "eth0");
        assert_eq!(of_alloc("NOMAD_ALLOC_IP_http-x"), "172.26.64.2");
        assert_eq!(of_alloc("NOMAD_ALLOC_ADDR_http-x"), "172.26.64.2:8080");
        assert_eq!(get("NOMAD_META_owner_x"), "me");
        assert_eq!(get("NOMAD_META_OWNER_X"), "me");
        assert_eq!(get("WHERE"), "r7 linux 3 ${nope}");
        assert_eq!(get("PATH"), "/bin");
        assert_eq!(get("CSI_ENDPOINT"), "unix:///csi/csi.sock");
    }

    #[test]
    fn what_hooks_add_is_known_to_texts_and_yields_to_the_job_file() {
        let mut task = Task { name: "t".into(), ..Default::default() };
        task.env.insert("SOCKET".into(), "${CSI_ENDPOINT}".into());
        let env = env_of(&task, &alloc());
        assert_eq!(env.text("--endpoint=${CSI_ENDPOINT}"), "--endpoint=unix:///csi/csi.sock");
        assert_eq!(env.variables()["SOCKET"], "unix:///csi/csi.sock");
        task.env.insert("CSI_ENDPOINT".into(), "unix:///own.sock".into());
        assert_eq!(env_of(&task, &alloc()).text("${CSI_ENDPOINT}"), "unix:///own.sock");
    }

    #[test]
    fn configuration_strings_are_interpolated_at_any_depth() {
        let env = env_of(&Task::default(), &alloc());
        let config = BTreeMap::from([(
            "args".to_owned(),
            serde_json::json!(["${NOMAD_TASK_DIR}/x", {"a": "${env[\"NOMAD_DC\"]}", "n": 1}, "${meta[\"rack\"]}"]),
        )]);
        let expected = serde_json::json!({"args": ["/local/x", {"a": "dc1", "n": 1}, "r7"]});
        assert_eq!(env.config(&config), expected);
    }

    #[test]
    fn the_host_keeps_its_tokens() {
        let all = [("VAULT_TOKEN", "s"), ("HOME", "/root")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(host_env(all.into_iter(), None).keys().collect::<Vec<_>>(), ["HOME"]);
    }

    proptest! {
        #[test]
        fn interpolation_never_panics(text in "[${}\\[\\]\"a-zA-Z_.é]{0,40}") {
            let env = env_of(&Task::default(), &alloc());
            env.config(&BTreeMap::from([("x".to_owned(), Value::String(text))]));
        }
    }
}
