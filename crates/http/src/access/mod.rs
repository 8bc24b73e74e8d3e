//! Who may do what: asked once for each request, before its route.

mod table;

use crate::call::Call;
use crate::error::ApiError;
use caravan_server::{Caller, Handle, HostVolumeCap, Level, NsCap, VarCap};
use caravan_state::Root;
use caravan_types::wire::ExecOpen;
use caravan_types::{AllocId, DeploymentId, EvalId, HostVolumeId, Namespace};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::Value;
use table::Need;

pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-nomad-token");

/// Words for whoever may not.
const DENIED: &str = "Permission denied";
/// Words for jobs that only operators may register at the moment.
const REJECTED: &str = "Job registration, dispatch, and scale are disabled by the scheduler configuration";

/// The request may not.
pub(crate) fn denied() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, DENIED)
}

/// The secret that a request carries (`http-api` section 1.2).
pub(crate) fn secret(headers: &HeaderMap) -> String {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(token) = text(&TOKEN).filter(|token| !token.is_empty()) {
        return token.to_owned();
    }
    let mut words = text(&AUTHORIZATION).unwrap_or_default().split_whitespace();
    match (words.next(), words.next()) {
        (Some(scheme), Some(token)) if scheme.eq_ignore_ascii_case("bearer") => token.to_owned(),
        _ => String::new(),
    }
}

/// Finds out who asks and whether they may. `segments` are those of the path.
pub(crate) fn check(call: &Call, server: &Handle, segments: &[&str]) -> Result<Caller, ApiError> {
    let ["v1", rest @ ..] = segments else { return Ok(Caller::unrestricted()) };
    let need = table::need(&call.method, rest);
    let found = server.admin().caller(&secret(&call.headers));
    let caller = match (found, need) {
        (Ok(caller), _) => caller,
        (Err(_), Need::Open) => return Ok(Caller::nobody()),
        (Err(why), _) => return Err(ApiError::new(StatusCode::FORBIDDEN, why.to_string())),
    };
    if !server.admin().acl_enabled() {
        return Ok(caller);
    }
    let asked = Asked { call, caller: &caller, root: &server.store().snapshot(), segments: rest };
    match asked.verdict(need) {
        Verdict::Yes => Ok(caller),
        // Writing a variable tells an index even where nothing was written.
        Verdict::No if need == Need::Variable(VarCap::Write) => Err(denied().with_index(0)),
        Verdict::No => Err(denied()),
        Verdict::Hidden(error) => Err(error),
    }
}

/// Whether a caller may run something in a task. Of an allocation that is not there, in the given namespace.
fn runs_in(caller: &Caller, root: &Root, alloc: &AllocId, task: &str, otherwise: &Namespace) -> bool {
    let row = root.alloc(alloc);
    let namespace = row.map_or(otherwise, |row| &row.namespace);
    if !caller.may(namespace.as_str(), NsCap::AllocExec) {
        return false;
    }
    // What runs in such a task runs on the node itself.
    let bare = row
        .and_then(|alloc| alloc.group())
        .is_some_and(|group| group.tasks.iter().any(|t| t.name == task && t.driver == "raw_exec"));
    !bare || caller.may(namespace.as_str(), NsCap::AllocNodeExec)
}

/// Whether whoever another agent speaks for may run something in a task.
pub(crate) fn may_exec(server: &Handle, asked: &ExecOpen) -> Result<(), ApiError> {
    let caller = server.admin().caller(asked.secret.expose());
    let caller = caller.map_err(|why| ApiError::new(StatusCode::FORBIDDEN, why.to_string()))?;
    let root = server.store().snapshot();
    let may = !server.admin().acl_enabled()
        || runs_in(&caller, &root, &asked.alloc, &asked.task, &Namespace::default_namespace());
    if may { Ok(()) } else { Err(denied()) }
}

enum Verdict {
    Yes,
    No,
    Hidden(ApiError),
}

impl From<bool> for Verdict {
    fn from(may: bool) -> Self {
        if may { Self::Yes } else { Self::No }
    }
}

struct Asked<'a> {
    call: &'a Call,
    caller: &'a Caller,
    root: &'a Root,
    segments: &'a [&'a str],
}

impl Asked<'_> {
    fn verdict(&self, need: Need) -> Verdict {
        let acl = &self.caller.acl;
        match need {
            Need::Open | Need::Shown => Verdict::Yes,
            Need::Management => acl.is_management().into(),
            Need::Namespace(caps) => {
                self.registers(acl.namespace_any(self.call.query.namespace().as_str(), caps))
            }
            Need::Rows(_) if self.call.query.text("namespace") == "*" => Verdict::Yes,
            Need::Rows(caps) => acl.namespace_any(self.call.query.namespace().as_str(), caps).into(),
            Need::Job(caps) => {
                let body = self.body();
                self.registers(self.job(&body, caps))
            }
            Need::Body(caps) => self.volumes(caps).into(),
            Need::Alloc(at, caps) => self.in_namespace(self.alloc(at), caps).into(),
            Need::HiddenAlloc(at, caps) => match self.in_namespace(self.alloc(at), caps) {
                true => Verdict::Yes,
                false => Verdict::Hidden(ApiError::internal(format!(
                    "Unknown allocation \"{}\"",
                    self.segment(at)
                ))),
            },
            Need::Exec(at) => self.exec(self.segment(at)).into(),
            Need::Action => self.exec(self.call.query.text("allocID")).into(),
            Need::Eval(at, caps) => {
                let row = self.root.eval(&EvalId::new(self.segment(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::Deployment(at, caps) => {
                let row = self.root.deployment(&DeploymentId::new(self.segment(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::HostVolume(at, caps) => {
                let row = self.root.host_volume(&HostVolumeId::new(self.segment(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::HostClaim(at, caps) => {
                let row = self.root.host_claims().find(|row| row.id == self.segment(at));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            // Tasks find services and nodes by themselves.
            Need::Node(Level::Read) if self.caller.is_workload() => Verdict::Yes,
            Need::Node(level) => acl.node(level).into(),
            Need::Agent(level) => acl.agent(level).into(),
            Need::Operator(level) => acl.operator(level).into(),
            Need::OperatorCap(cap, level) => acl.operator_cap(cap, level).into(),
            Need::Quota(level) => acl.quota(level).into(),
            Need::Plugin(level) => acl.plugin(level).into(),
            Need::Pool(at, cap) => {
                let name = self.segments.get(at..).unwrap_or_default().join("/");
                acl.node_pool(&name, cap).into()
            }
            Need::PoolBody(cap) => {
                let body = self.body();
                acl.node_pool(text(&body, "Name"), cap).into()
            }
            Need::AnyPool(cap) => acl.any_node_pool(cap).into(),
            Need::Variable(cap) => {
                let path = self.segments[1..].join("/");
                let namespace = match cap {
                    VarCap::Write => self.namespace_of(&self.body()),
                    _ => self.call.query.namespace().to_string(),
                };
                match path.is_empty() {
                    // The route tells what is wrong.
                    true => Verdict::Yes,
                    false => self.caller.variable(&namespace, &path, cap).into(),
                }
            }
        }
    }

    /// What registers, dispatches or scales a job may be closed to all but operators.
    fn registers(&self, may: bool) -> Verdict {
        let writes = self.call.is_put()
            && match self.segments {
                ["jobs"] => true,
                ["job", .., last] => {
                    matches!(*last, "dispatch" | "payload" | "scale") || self.segments.len() == 2
                }
                _ => false,
            };
        match may {
            true if writes
                && self.root.scheduler_config().reject_job_registration
                && !self.caller.is_management() =>
            {
                Verdict::Hidden(ApiError::new(StatusCode::FORBIDDEN, REJECTED))
            }
            may => may.into(),
        }
    }

    fn segment(&self, at: usize) -> &str {
        self.segments.get(at).copied().unwrap_or_default()
    }

    fn alloc(&self, at: usize) -> Option<Namespace> {
        let row = self.root.alloc(&AllocId::new(self.segment(at)));
        row.map(|row| row.namespace.clone())
    }

    /// In the namespace of an object; of one that is not there, in that of the query.
    fn in_namespace(&self, namespace: Option<Namespace>, caps: &[NsCap]) -> bool {
        let namespace = namespace.unwrap_or_else(|| self.call.query.namespace());
        self.caller.acl.namespace_any(namespace.as_str(), caps)
    }

    fn exec(&self, alloc: &str) -> bool {
        let (alloc, task) = (AllocId::new(alloc), self.call.query.text("task"));
        runs_in(self.caller, self.root, &alloc, task, &self.call.query.namespace())
    }

    fn body(&self) -> Value {
        let mut values = serde_json::Deserializer::from_slice(&self.call.body).into_iter::<Value>();
        values.next().and_then(Result::ok).unwrap_or_default()
    }

    /// The query's namespace, else the body's.
    fn namespace_of(&self, body: &Value) -> String {
        match text(body, "Namespace") {
            "" => self.call.query.namespace().to_string(),
            // The body of a variable wins over the query.
            namespace => namespace.to_owned(),
        }
    }

    fn job(&self, body: &Value, caps: &[NsCap]) -> bool {
        let job = field(body, "Job");
        let namespace = [self.call.query.text("namespace"), text(body, "Namespace"), text(job, "Namespace")]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or("default");
        let acl = &self.caller.acl;
        if namespace == "*" || !acl.namespace_any(namespace, caps) {
            return false;
        }
        if caps.first() != Some(&NsCap::SubmitJob) {
            return true;
        }
        let groups = field(job, "TaskGroups").as_array().map(Vec::as_slice).unwrap_or_default();
        groups.iter().all(|group| {
            let volumes = field(group, "Volumes").as_object();
            let mounts = volumes.into_iter().flatten().all(|(_, volume)| match text(volume, "Type") {
                "csi" => acl.namespace(namespace, NsCap::CsiMountVolume),
                _ => self.host_volume(namespace, volume),
            });
            let tasks = field(group, "Tasks").as_array().map(Vec::as_slice).unwrap_or_default();
            let plugin = tasks.iter().any(|task| field(task, "CSIPluginConfig").is_object());
            mounts && (!plugin || acl.namespace(namespace, NsCap::CsiRegisterPlugin))
        })
    }

    /// Host volumes that users made belong to a namespace; those of the agents' configuration are allowed by name.
    fn host_volume(&self, namespace: &str, volume: &Value) -> bool {
        let (source, read_only) = (text(volume, "Source"), field(volume, "ReadOnly") == &Value::Bool(true));
        let cap = if read_only { HostVolumeCap::MountReadonly } else { HostVolumeCap::MountReadwrite };
        let acl = &self.caller.acl;
        acl.host_volume(source, cap)
            || (self.root.host_volumes().any(|row| row.name == source && row.namespace == *namespace)
                && acl.namespace(namespace, NsCap::HostVolumeRead))
    }

    /// Every volume of the body.
    fn volumes(&self, caps: &[NsCap]) -> bool {
        let body = self.body();
        let all = field(&body, "Volumes").as_array().cloned().unwrap_or_default();
        let one = field(&body, "Volume");
        let query = self.call.query.text("namespace");
        let default =
            [query, text(&body, "Namespace")].into_iter().find(|n| !n.is_empty()).unwrap_or("default");
        let mut named: Vec<&str> = all
            .iter()
            .chain([one])
            .map(|volume| text(volume, "Namespace"))
            .filter(|n| !n.is_empty())
            .collect();
        named.push(default);
        named.iter().all(|namespace| self.caller.acl.namespace_any(namespace, caps))
    }
}

static NULL: Value = Value::Null;

/// A field, whatever the case of its name. Of several spellings the last one that says something counts, as for whoever
/// reads the body: what is checked must be what is done.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let fields = value.as_object().into_iter().flatten();
    let mut named = fields.filter(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null());
    named.next_back().map_or(&NULL, |(_, value)| value)
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    field(value, name).as_str().unwrap_or_default()
}

/// Whether somebody may hear of a topic in a namespace (`http-api` section 4.3). `topic` may have a key.
pub(crate) fn event_topic(caller: &Caller, topic: &str, namespace: &str) -> bool {
    let acl = &caller.acl;
    match topic.split(':').next().unwrap_or_default() {
        "Deployment" | "Evaluation" | "Allocation" | "Job" | "Service" | "CSIPlugin" => {
            acl.namespace(namespace, NsCap::ReadJob)
        }
        "HostVolume" => acl.namespace(namespace, NsCap::HostVolumeRead),
        "CSIVolume" => acl.namespace(namespace, NsCap::CsiReadVolume),
        "Node" => acl.node(Level::Read),
        "Operator" => acl.operator(Level::Read),
        "Variable" => acl.is_management() || acl.any_variable(namespace),
        _ => acl.is_management(),
    }
}

impl Call {
    /// Whether the caller may do something in a namespace: for rows of lists over all namespaces.
    pub(crate) fn may(&self, namespace: &Namespace, cap: NsCap) -> bool {
        self.caller.may(namespace.as_str(), cap)
    }
}
