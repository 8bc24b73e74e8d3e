//! Access control: each request is checked once, before its handler runs.

mod line;
mod reference;
mod standing;
mod table;
#[cfg(test)]
mod tests;

pub use reference::{Route, page, routes};

pub(crate) use line::{Asks, BodyLimit, Line, Need, Object, On, Parse, Place, Scope, To};
pub(crate) use standing::{Watched, exec_lost, lost, watched};
pub(crate) use table::{find_method, find_path};

use crate::call::Call;
use crate::error::ApiError;
use crate::query::Query;
use caravan_messages::ExecOpen;
use caravan_server::{Caller, Handle, Level, NsCap, VarCap};
use caravan_state::Root;
use caravan_types::{AllocId, DeploymentId, EvalId, HostVolumeId, Namespace};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, StatusCode};
use line::Names;
use serde_json::Value;
use std::sync::Arc;

pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-nomad-token");

/// The refusal for callers without the right.
const DENIED: &str = "Permission denied";
/// The operator capability to save snapshots.
pub(crate) const SNAPSHOT_SAVE: &str = "snapshot-save";
/// The refusal of registrations while only operators may register jobs.
const REJECTED: &str = "Job registration, dispatch, and scale are disabled by the scheduler configuration";

/// Returns the error for callers without the right.
pub(crate) fn denied() -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, DENIED)
}

/// Returns the secret that a request carries (docs/reference/http-api.md, section 1.2).
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

/// Authenticates the caller of a request and checks the right that its route needs. Returns the caller.
///
/// # Errors
/// Returns the refusal, with the status that clients expect.
pub(crate) fn check(call: &Call, server: &Handle) -> Result<Caller, ApiError> {
    judge(call, server, &server.store().snapshot())
}

/// Checks a request again against the current state, and stores the caller's current rights in the call.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_again(call: &Call, server: &Handle, root: &Root) -> Result<(), ApiError> {
    if server.admin().acl_enabled() {
        call.caller.store(Arc::new(judge(call, server, root)?));
    }
    Ok(())
}

fn judge(call: &Call, server: &Handle, root: &Root) -> Result<Caller, ApiError> {
    let need = call.line.need;
    let caller = match server.admin().caller_in(root, &secret(&call.headers)) {
        Ok(caller) => caller,
        Err(_) if need == Need::Open => return Ok(Caller::nobody()),
        Err(why) => return Err(ApiError::new(StatusCode::FORBIDDEN, why.to_string())),
    };
    if !server.admin().acl_enabled() {
        return Ok(caller);
    }
    let asked = Asked { call, caller: &caller, root };
    match asked.verdict(need) {
        Verdict::Yes => Ok(caller),
        // The refusal of a variable's write carries index headers.
        Verdict::No if need == Need::Variable(VarCap::Write) => Err(denied().with_index(0)),
        Verdict::No => Err(denied()),
        Verdict::Hidden(error) => Err(error),
    }
}

/// Returns the namespace of a request, from the places that its line of the table names. The check and the handler
/// use this same namespace.
pub(crate) fn namespace(need: Need, query: &Query, body: &[u8]) -> Namespace {
    let asked = query.text("namespace");
    let body = match need.names() {
        Names::Query => Value::Null,
        // A namespace in the query decides before the body is parsed.
        Names::QueryThenBody | Names::Job if !asked.is_empty() => Value::Null,
        _ => parsed(body),
    };
    let named = text(&body, "Namespace");
    let places = match need.names() {
        Names::Query => [asked, "", ""],
        Names::QueryThenBody => [asked, named, ""],
        Names::BodyThenQuery => [named, asked, ""],
        Names::Job => [asked, named, text(field(&body, "Job"), "Namespace")],
    };
    places.into_iter().find(|name| !name.is_empty()).map_or_else(Namespace::default_namespace, Namespace::new)
}

/// Returns the first JSON value of a body, as the handlers parse it; null without one.
pub(crate) fn parsed(body: &[u8]) -> Value {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    values.next().and_then(Result::ok).unwrap_or_default()
}

/// Returns whether a caller may run a command in a task. For an allocation without a row, the namespace
/// `otherwise` applies.
fn runs_in(caller: &Caller, root: &Root, alloc: &AllocId, task: &str, otherwise: &Namespace) -> Verdict {
    let Some(row) = root.alloc(alloc) else { return unheld(caller, alloc, otherwise, &[NsCap::AllocExec]) };
    let namespace = row.namespace.as_str();
    if !caller.may(namespace, NsCap::AllocExec) {
        return Verdict::No;
    }
    // In a task without isolation, the command runs on the node itself.
    let bare =
        row.group().is_some_and(|group| group.tasks.iter().any(|t| t.name == task && t.driver == "raw_exec"));
    (!bare || caller.may(namespace, NsCap::AllocNodeExec)).into()
}

/// Judges access to an allocation without a row, whose files a node may still keep. Its namespace is unknown, so
/// only management tokens have access. Other callers receive the error for a missing allocation.
fn unheld(caller: &Caller, alloc: &AllocId, namespace: &Namespace, caps: &[NsCap]) -> Verdict {
    if caller.is_management() {
        return Verdict::Yes;
    }
    match caller.acl.namespace_any(namespace.as_str(), caps) {
        true if alloc.is_empty() => Verdict::Hidden(ApiError::bad_request("must provide a valid alloc id")),
        true => Verdict::Hidden(ApiError::not_found(format!("Unknown allocation \"{alloc}\""))),
        false => Verdict::No,
    }
}

/// Checks whether a caller may run a command in a task. Another agent sends this request for the caller.
pub(crate) fn may_exec(server: &Handle, asked: &ExecOpen) -> Result<(), ApiError> {
    let caller = server.admin().caller(asked.secret.expose());
    let caller = caller.map_err(|why| ApiError::new(StatusCode::FORBIDDEN, why.to_string()))?;
    if !server.admin().acl_enabled() {
        return Ok(());
    }
    let root = server.store().snapshot();
    match runs_in(&caller, &root, &asked.alloc, &asked.task, &Namespace::default_namespace()) {
        Verdict::Yes => Ok(()),
        Verdict::No => Err(denied()),
        Verdict::Hidden(error) => Err(error),
    }
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
}

impl Asked<'_> {
    fn verdict(&self, need: Need) -> Verdict {
        let acl = &self.caller.acl;
        let namespace = self.call.namespace.as_str();
        match need {
            Need::Open | Need::Shown => Verdict::Yes,
            Need::Management => acl.is_management().into(),
            Need::Refused(status, text) => Verdict::Hidden(ApiError::new(status, text)),
            Need::Namespace(caps) => self.registers(acl.namespace_any(namespace, caps)),
            Need::Rows(_) if namespace == "*" => Verdict::Yes,
            Need::Rows(caps) | Need::Body(caps) => acl.namespace_any(namespace, caps).into(),
            // A job is in one namespace, so `*` is refused.
            Need::Job(caps) => self.registers(namespace != "*" && acl.namespace_any(namespace, caps)),
            Need::Deregister => {
                // The handler refuses a value that is not a flag.
                let purges = !matches!(self.call.query.flag("purge"), Ok(None | Some(false)));
                let cap = if purges { NsCap::PurgeJob } else { NsCap::DeregisterJob };
                acl.namespace_any(namespace, &[NsCap::SubmitJob, cap]).into()
            }
            Need::Alloc(at, caps) => self.in_namespace(self.alloc(at), caps).into(),
            Need::HiddenAlloc(at, caps) => match self.in_namespace(self.alloc(at), caps) {
                true => Verdict::Yes,
                false => {
                    Verdict::Hidden(ApiError::internal(format!("Unknown allocation \"{}\"", self.named(at))))
                }
            },
            Need::Held(at, caps) => match self.alloc(at) {
                Some(namespace) => acl.namespace_any(namespace.as_str(), caps).into(),
                None => unheld(self.caller, &AllocId::new(self.named(at)), &self.call.namespace, caps),
            },
            Need::Exec(at) => self.exec(&self.named(at)),
            Need::Action => self.exec(self.call.query.text("allocID")),
            Need::Eval(at, caps) => {
                let row = self.root.eval(&EvalId::new(self.named(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::Deployment(at, caps) => {
                let row = self.root.deployment(&DeploymentId::new(self.named(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::HostVolume(at, caps) => {
                let row = self.root.host_volume(&HostVolumeId::new(self.named(at)));
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            Need::HostClaim(at, caps) => {
                let named = self.named(at);
                let row = self.root.host_claims().find(|row| row.id == named);
                self.in_namespace(row.map(|row| row.namespace.clone()), caps).into()
            }
            // Tasks discover services and nodes with their workload identity.
            Need::Node(Level::Read) if self.caller.is_workload() => Verdict::Yes,
            Need::Node(level) => acl.node(level).into(),
            Need::Agent(level) => acl.agent(level).into(),
            Need::Operator(level) => acl.operator(level).into(),
            Need::OperatorCap(cap, level) => acl.operator_cap(cap, level).into(),
            Need::SaveSnapshot => {
                // The handler refuses a value that is not a flag. The key opens all secrets.
                let has_key = !matches!(self.call.query.flag("key"), Ok(None | Some(false)));
                let may =
                    if has_key { acl.is_management() } else { acl.operator_cap(SNAPSHOT_SAVE, Level::Write) };
                may.into()
            }
            Need::Quota(level) => acl.quota(level).into(),
            Need::Plugin(level) => acl.plugin(level).into(),
            Need::Pool(at, cap) => acl.node_pool(&self.named(at), cap).into(),
            Need::PoolBody(cap) => acl.node_pool(text(&parsed(&self.call.body), "Name"), cap).into(),
            Need::AnyPool(cap) => acl.any_node_pool(cap).into(),
            Need::Variable(cap) => match self.named(1).as_str() {
                // The handler reports the missing name.
                "" => Verdict::Yes,
                path => self.caller.variable(namespace, path, cap).into(),
            },
        }
    }

    /// Judges a registration, dispatch or scaling: the scheduler configuration may restrict them to operators.
    fn registers(&self, may: bool) -> Verdict {
        match may {
            true if self.call.line.registers
                && self.root.scheduler_config().reject_job_registration
                && !self.caller.is_management() =>
            {
                Verdict::Hidden(ApiError::new(StatusCode::FORBIDDEN, REJECTED))
            }
            may => may.into(),
        }
    }

    /// Returns the name of an object: the part of the path that matches the star at segment `at` after `v1`. The
    /// handler reads the same part.
    fn named(&self, at: usize) -> String {
        let before = self.call.line.path.split('/').take(at).filter(|part| part.starts_with('*')).count();
        self.call.star(before)
    }

    fn alloc(&self, at: usize) -> Option<Namespace> {
        let row = self.root.alloc(&AllocId::new(self.named(at)));
        row.map(|row| row.namespace.clone())
    }

    /// Checks a capability in the namespace of an object; for an unknown object, in the namespace of the query.
    fn in_namespace(&self, namespace: Option<Namespace>, caps: &[NsCap]) -> bool {
        let namespace = namespace.as_ref().unwrap_or(&self.call.namespace);
        self.caller.acl.namespace_any(namespace.as_str(), caps)
    }

    fn exec(&self, alloc: &str) -> Verdict {
        let (alloc, task) = (AllocId::new(alloc), self.call.query.text("task"));
        runs_in(self.caller, self.root, &alloc, task, &self.call.namespace)
    }
}

static NULL: Value = Value::Null;

/// Returns a field, ignoring the case of its name. If several spellings occur, the last one that is not null applies,
/// as in the parser of bodies: the check must read the same value as the handler.
pub(crate) fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let fields = value.as_object().into_iter().flatten();
    let mut named = fields.filter(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_null());
    named.next_back().map_or(&NULL, |(_, value)| value)
}

/// Returns a text field, with the rules of [`field`]; empty without it.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    field(value, name).as_str().unwrap_or_default()
}

/// Returns whether a caller may receive events of a topic in a namespace (docs/reference/http-api.md, section 4.3).
/// `topic` may have a key.
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
        "Namespace" if namespace != "*" => acl.sees_namespace(namespace),
        _ => acl.is_management(),
    }
}

/// Returns whether a caller may receive any event of a topic, in a namespace or, for `*`, in at least one namespace.
pub(crate) fn any_event(caller: &Caller, topic: &str, namespace: &str) -> bool {
    let acl = &caller.acl;
    match topic.split(':').next().unwrap_or_default() {
        "Deployment" | "Evaluation" | "Allocation" | "Job" | "Service" | "CSIPlugin" => {
            acl.namespace_any(namespace, &[NsCap::ReadJob])
        }
        "HostVolume" => acl.namespace_any(namespace, &[NsCap::HostVolumeRead]),
        "CSIVolume" => acl.namespace_any(namespace, &[NsCap::CsiReadVolume]),
        "Namespace" if namespace == "*" => acl.sees_some_namespace(),
        topic => event_topic(caller, topic, namespace),
    }
}

impl Call {
    /// Returns whether the caller has a capability in a namespace; for rows of lists over all namespaces.
    pub(crate) fn may(&self, namespace: &Namespace, cap: NsCap) -> bool {
        let caller = self.caller.load();
        // The names of the rows' namespaces are scattered in memory, so they are not read for a caller with all
        // rights.
        caller.is_management() || caller.may(namespace.as_str(), cap)
    }

    /// Checks the right of this route in the namespace of an object that the body describes.
    ///
    /// # Errors
    /// Returns the refusal if the caller does not have the right.
    pub(crate) fn permit(&self, namespace: &str) -> Result<(), ApiError> {
        let caps = self.line.need.caps();
        let one = !matches!(namespace, "" | "*");
        match one && self.caller.load().acl.namespace_any(namespace, caps) {
            true => Ok(()),
            // The server reports an invalid name, to callers that may see it.
            false if self.caller.load().is_management() => Ok(()),
            false => Err(denied()),
        }
    }
}
