//! Checks kinds, statuses, codes and texts of errors, variant by variant.

use super::*;
use crate::endpoint::fault::{DispatchFault, ScaleFault};
use crate::host_volume::fault::Call;
use caravan_admission::ProblemCode;
use caravan_api::JobPath;
use caravan_types::JobKey;
use caravan_types::job::JobType;

/// An error with its expected kind, status, code and text.
type Row = (ServerError, Kind, u16, Code, &'static str);

fn row(error: impl Into<ServerError>, kind: Kind, text: &'static str) -> Row {
    let (status, code) = match kind {
        Kind::NotFound => (404, Code::NotFound),
        Kind::BadRequest => (400, Code::Invalid),
        Kind::Unauthorized => (401, Code::Permission),
        Kind::Forbidden => (403, Code::Permission),
        Kind::Refused => (500, Code::Conflict),
        Kind::Unavailable => (500, Code::Unavailable),
        Kind::Retry => (500, Code::Retryable),
        Kind::NotLeader => (500, Code::NotLeader),
        Kind::Internal => (500, Code::Internal),
    };
    (error.into(), kind, status, code, text)
}

fn assert_rows(rows: impl IntoIterator<Item = Row>) {
    for (error, kind, status, code, text) in rows {
        assert_eq!((error.kind(), error.http_status()), (kind, status), "{error:?}");
        assert_eq!(error.to_string(), text, "{error:?}");
        assert_eq!(caravan_sys::describe(&error), text, "no cause is joined twice: {error:?}");
        let rpc = RpcError::from(error);
        assert_eq!((rpc.code, rpc.http_status, rpc.message.as_str()), (code, Some(status), text));
    }
}

fn key() -> VolumeKey {
    VolumeKey::new("team", "data")
}

fn taken() -> Refusal {
    Refusal::StorageTaken { plugin: "disk".into(), storage: "s1".into(), other: key() }
}

fn plugin_says(text: &str) -> RpcError {
    RpcError::new(Code::Internal, text)
}

#[test]
fn refusals_and_calls_keep_their_sentences() {
    assert_rows([
        row(Refusal::NotFound { what: "job web".into() }, Kind::NotFound, "job web not found"),
        row(Refusal::Changed { what: "node n1".into() }, Kind::Refused, "node n1 changed meanwhile"),
        row(
            Refusal::UnknownKey { key: "k".into() },
            Kind::Retry,
            "the root key k, with which this was sealed, was deleted meanwhile",
        ),
        row(
            Refusal::NodeSecret { node: "n1".into() },
            Kind::Forbidden,
            "node secret ID does not match. Not registering node n1",
        ),
        row(taken(), Kind::Refused, "storage \"s1\" of plugin \"disk\" is another volume's already"),
        row(caravan_consensus::Error::NotLeader { leader: None }, Kind::NotLeader, "No cluster leader"),
        row(RpcError::new(Code::NoPath, "no path"), Kind::NotFound, "no path"),
        row(RpcError::new(Code::Deadline, "too late"), Kind::Unavailable, "too late"),
        row(plugin_says("broken"), Kind::Internal, "broken"),
        row(ServerError::Stopped("planner"), Kind::Unavailable, "the planner has stopped"),
        row(Denial::Any, Kind::Forbidden, "Permission denied"),
        row(
            Denial::Clone { volume: "data".into() },
            Kind::Forbidden,
            "Permission denied: volume \"data\" is not the caller's to clone",
        ),
    ]);
}

#[test]
fn a_failed_log_names_all_its_causes_once() {
    let cause = std::io::Error::other("no space left");
    let error = caravan_consensus::Error::DataDir { path: "/data".into(), source: cause };
    let text = "the data directory /data cannot be used: no space left";
    assert_rows([row(ServerError::Storage(Arc::new(error)), Kind::Unavailable, text)]);
}

#[test]
fn jobs_and_nodes_keep_their_sentences() {
    let web = || JobKey::new("default", "web");
    assert_rows([
        row(JobFault::NotFound, Kind::NotFound, "job not found"),
        row(JobFault::NothingToLaunch, Kind::Refused, "job not found"),
        row(JobFault::NothingToScale("web".into()), Kind::NotFound, "job \"web\" not found"),
        row(JobFault::NothingToRevert("web".into()), Kind::Refused, "job \"web\" not found"),
        row(
            JobFault::NoVersion { key: web(), version: 3 },
            Kind::Refused,
            "job \"web\" in namespace \"default\" at version 3 not found",
        ),
        row(
            JobFault::OtherVersion { current: 2, expected: 1 },
            Kind::Refused,
            "Current job has version 2; enforcing version 1",
        ),
        row(JobFault::Periodic, Kind::Refused, "can't evaluate periodic job"),
        row(JobFault::NotTracked(web()), Kind::Refused, "can't force run non-tracked job \"web\" (default)"),
        row(
            JobFault::Scale(ScaleFault::System(JobType::System)),
            Kind::BadRequest,
            "jobs of type \"system\" can only be scaled between 0 and 1",
        ),
        row(
            JobFault::Dispatch(DispatchFault::MissingMeta(vec!["a".into(), "b".into()])),
            Kind::Refused,
            "Dispatch did not provide required meta keys: [a b]",
        ),
        row(NodeFault::NotFound("n1".into()), Kind::NotFound, "node n1 not found"),
        row(NodeFault::NothingToChange, Kind::Refused, "node not found"),
        row(NodeFault::Missing("Name"), Kind::BadRequest, "missing node Name for client registration"),
        row(
            NodeFault::Unreachable { node: "n1".into(), error: plugin_says("no path to node") },
            Kind::Unavailable,
            "node n1 cannot be asked: no path to node",
        ),
        row(
            NodeFault::Fence(Refusal::Invalid("the node is in contact".into())),
            Kind::BadRequest,
            "the node is in contact",
        ),
        row(EvalFault::NotFound, Kind::NotFound, "eval not found"),
        row(EvalFault::NothingToDelete, Kind::Refused, "eval not found"),
        row(DeploymentFault::Terminal { verb: "pause" }, Kind::Refused, "can't pause terminal deployment"),
        row(
            TaskFault::NoIdentity { task: "t".into(), name: "aws".into() },
            Kind::NotFound,
            "task \"t\" has no identity \"aws\"",
        ),
    ]);
}

#[test]
fn volumes_keep_their_sentences() {
    assert_rows([
        row(VolumeFault::NoDefinition, Kind::BadRequest, "missing volume definition"),
        row(VolumeFault::NotFound(key()), Kind::NotFound, "volume not found: data"),
        row(VolumeFault::NoNamespace(key()), Kind::Refused, "volume data is in nonexistent namespace team"),
        row(
            VolumeFault::NoHealthyController("disk".into()),
            Kind::Unavailable,
            "no healthy controllers for CSI plugin: disk",
        ),
        row(
            VolumeFault::StillRuns {
                alloc: "0123456789".into(),
                job: "web".into(),
                volume: "data".into(),
                node: "abcdefghij".into(),
            },
            Kind::Refused,
            "allocation 01234567 of job \"web\" still runs with volume data on node abcdefgh: stop it first",
        ),
        row(
            VolumeFault::Detach(plugin_says("no path to node")),
            Kind::Refused,
            "could not detach from node: no path to node",
        ),
        row(
            VolumeFault::ClaimElsewhere { alloc: "a1".into(), node: "n1".into() },
            Kind::Forbidden,
            "the claim of allocation a1 is not on node n1",
        ),
        row(
            HostVolumeFault::Retried {
                call: Call::Create,
                error: plugin_says("no space"),
                volume: "v1".into(),
            },
            Kind::Unavailable,
            "HostVolume.Create error: no space (volume v1 is tried again; delete it to give up)",
        ),
        row(HostVolumeFault::NotFound("v1".into()), Kind::NotFound, "no such volume: v1"),
        row(
            HostVolumeFault::InUse { volume: "v1".into(), allocs: vec!["a1".into(), "a2".into()] },
            Kind::Refused,
            "volume v1 in use by allocations: [a1 a2]",
        ),
        row(
            SnapshotFault::Listed(Box::new(SnapshotFault::NoId)),
            Kind::Refused,
            "1 error occurred:\n\t* missing snapshot id\n\n",
        ),
        row(
            SnapshotFault::OtherPlugin {
                volume: "data".into(),
                actual: "disk".into(),
                expected: "tape".into(),
            },
            Kind::Refused,
            "volume \"data\" is of plugin \"disk\", not of \"tape\"",
        ),
    ]);
}

#[test]
fn operators_keep_their_sentences() {
    assert_rows([
        row(
            AdminFault::Refused(Refusal::NotFound { what: "role r1".into() }),
            Kind::Refused,
            "role r1 not found",
        ),
        row(
            AdminFault::BadRequest(Refusal::NotFound { what: "token t1".into() }),
            Kind::BadRequest,
            "token t1 not found",
        ),
        row(
            AdminFault::Namespace { namespace: "a b".into(), problems: vec!["bad name".into()] },
            Kind::Refused,
            "Invalid namespace \"a b\": 1 error occurred:\n\t* bad name\n\n",
        ),
        row(
            AdminFault::invalid("auth method", vec!["missing name".into()]),
            Kind::BadRequest,
            "auth method 0 invalid: 1 error occurred:\n\t* missing name\n\n",
        ),
        row(AdminFault::Removed("auth-method"), Kind::NotFound, "ACL auth-method not found"),
        row(LoginFault::NoMethod("sso".into()), Kind::BadRequest, "auth-method \"sso\" not found"),
        row(LoginFault::NoKey, Kind::Refused, "the auth method has no public key that can be read"),
        row(VariableFault::NoItems, Kind::BadRequest, "variable missing required Items object"),
        row(VariableFault::NotLocked, Kind::Refused, "variable doesn't hold a lock"),
        row(
            KeyringFault::from(caravan_types::sealed::Unopened::Damaged { owner: "volume data".into() }),
            Kind::Internal,
            "the secrets of volume data cannot be opened: they are damaged",
        ),
    ]);
}

#[test]
fn several_volumes_are_one_list() {
    let busy = || ServerError::from(VolumeFault::Busy("data".into()));
    let one = VolumeFault::Several(vec![busy()]);
    let two = VolumeFault::Several(vec![busy(), taken().into()]);
    assert_eq!(ServerError::from(two.clone()).about(), [key()]);
    assert_rows([
        row(
            one,
            Kind::Unavailable,
            "1 error occurred:\n\t* another command or call is at work on volume data; try again later\n\n",
        ),
        row(
            two,
            Kind::Refused,
            "2 errors occurred:\n\t* another command or call is at work on volume data; try again later\n\t* storage \"s1\" of plugin \"disk\" is another volume's already\n\n",
        ),
    ]);
}

#[test]
fn a_volume_is_named_to_callers_who_may_see_it() {
    let error = ServerError::from(VolumeFault::OnlyDeregistered { volume: "copy".into(), cause: taken() });
    let text = "volume copy cannot be deleted, only deregistered: storage \"s1\" of plugin \"disk\" is another volume's already";
    assert_eq!(error.message_for(|_| false), text);
    assert_eq!(error.message_for(|_| true), format!("{text} (volume \"data\" in namespace \"team\")"));
    assert_eq!(error.reason(), None);
}

#[test]
fn reasons_and_problems_come_from_the_cause() {
    let index = ServerError::from(Refusal::JobModifyIndex { expected: 7, actual: 0 });
    assert_eq!(index.reason(), Some(ErrorReason::ModifyIndex));
    let in_use = ServerError::from(Refusal::VolumeInUse { volume: "data".into() });
    assert_eq!(in_use.reason(), Some(ErrorReason::VolumeInUse));
    let problem = || Problem::new(ProblemCode::Nonexistent, JobPath::root().field("Region"), "No path");
    let one = ServerError::from(problem());
    assert_eq!((one.kind(), one.to_string().as_str()), (Kind::Refused, "No path"));
    let list = ServerError::Job(problem().into());
    assert_eq!(list.to_string(), "1 error occurred:\n\t* No path\n\n");
    assert_eq!((list.kind(), one.problems()), (Kind::Refused, list.problems()));
    assert_eq!(one.problems()[0].path.to_string(), "Region");
}
