//! What operators ask of one agent: members, workers, the host (`http-api` section 3.7).

use crate::call::Call;
use crate::error::ApiError;
use crate::reply::{Reply, TEXT};
use crate::typed;
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;

/// What the scheduler knows to do.
const SCHEDULERS: [&str; 5] = ["batch", "system", "sysbatch", "service", "_core"];
/// What of the environment is shown: nothing that could be a secret.
const ENVIRONMENT: [&str; 8] = ["HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "USER"];

pub(super) fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        ["servers"] => {
            call.put()?;
            set_servers(call)
        }
        ["join"] => join(call),
        ["force-leave"] => {
            call.put()?;
            // There is no other member that could be made to leave; asking for one that is not there is no error.
            only_servers(call)?;
            Ok(Reply::empty())
        }
        ["keyring", "list" | "install" | "use" | "remove"] => {
            only_servers(call)?;
            // What servers say to each other is not sealed with a key of its own.
            Err(ApiError::internal("1/1 nodes reported failure"))
        }
        ["schedulers"] => {
            call.only(&Method::GET)?;
            schedulers(call)
        }
        ["schedulers", "config"] => workers(call),
        ["reload"] => {
            call.put()?;
            Ok(Reply::empty())
        }
        ["host"] => {
            call.only(&Method::GET)?;
            host(call)
        }
        ["pprof", "cmdline"] => {
            call.only(&Method::GET)?;
            let words: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            Ok(Reply::raw(TEXT, words.join("\0")).header("x-content-type-options", "nosniff"))
        }
        ["pprof", _] => Err(ApiError::new(
            StatusCode::NOT_IMPLEMENTED,
            "profiles of this kind describe a Go runtime, which this agent does not have",
        )),
        _ => Err(ApiError::unknown_path()),
    }
}

fn only_servers(call: &Call) -> Result<(), ApiError> {
    match call.state.server {
        Some(_) => Ok(()),
        None => Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method")),
    }
}

fn set_servers(call: &Call) -> Result<Reply, ApiError> {
    if call.state.client.is_none() {
        return Err(ApiError::new(StatusCode::NOT_IMPLEMENTED, "Invalid method"));
    }
    let wanted: Vec<&str> = call.query.all("address").collect();
    if wanted.is_empty() {
        return Err(ApiError::bad_request("missing server address"));
    }
    if let Some(server) = &call.state.server {
        let same = |address: &&str| server.addresses().iter().any(|own| own == address);
        if wanted.iter().all(same) {
            return Ok(Reply::empty());
        }
    }
    Err(ApiError::internal("the servers of a running client cannot be changed: set client.servers"))
}

fn join(call: &Call) -> Result<Reply, ApiError> {
    call.put()?;
    only_servers(call)?;
    let addresses: Vec<&str> = call.query.all("address").filter(|a| !a.is_empty()).collect();
    if addresses.is_empty() {
        return Err(ApiError::bad_request("missing address to join"));
    }
    let errors: Vec<String> = addresses
        .iter()
        .map(|address| format!("failed to join {address}: clusters of several servers are not supported yet"))
        .collect();
    Ok(Reply::value(json!({
        "num_joined": 0,
        "error": caravan_server::joined(&errors),
        "warning": "",
    })))
}

fn own_name(call: &Call) -> String {
    format!("{}.{}", call.state.info.name, call.state.info.region)
}

fn schedulers(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    let paused = server.store().snapshot().scheduler_config().pause_eval_broker;
    let id = &call.state.info.server_id;
    let worker = |n: usize| {
        json!({
            // Workers have no id of their own: it is made of the server's.
            "id": format!("{}{n:012x}", id.get(..24).unwrap_or("00000000-0000-0000-0000-")),
            "enabled_schedulers": SCHEDULERS,
            "started": call.state.started.to_time(),
            "status": if paused { "Paused" } else { "Started" },
            "workload_status": if paused { "Paused" } else { "WaitingToDequeue" },
        })
    };
    let workers: Vec<Value> = (0..server.workers().0).map(worker).collect();
    Ok(Reply::value(json!({"server_id": own_name(call), "schedulers": workers})))
}

fn workers(call: &Call) -> Result<Reply, ApiError> {
    let server = call.server()?;
    if !call.is_get() {
        call.put()?;
        let body: Value = typed::row(&call.body)?;
        let enabled = body["enabled_schedulers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |name: &str| enabled.iter().any(|given| given == name);
        if let Some(unknown) = enabled.iter().filter_map(Value::as_str).find(|n| !SCHEDULERS.contains(n)) {
            return Err(ApiError::bad_request(format!("unknown scheduler: {unknown}")));
        }
        if !SCHEDULERS.iter().all(|name| named(name)) {
            return Err(ApiError::bad_request("single schedulers cannot be disabled: enable all of them"));
        }
        let wanted = body["num_schedulers"].as_u64().and_then(|n| usize::try_from(n).ok());
        let most = server.workers().1;
        match wanted {
            Some(wanted) if wanted <= most => server.set_workers(wanted),
            _ => {
                return Err(ApiError::bad_request(format!("num_schedulers must be between 0 and {most}")));
            }
        }
    }
    Ok(Reply::value(json!({
        "server_id": own_name(call),
        "enabled_schedulers": SCHEDULERS,
        "num_schedulers": server.workers().0,
    })))
}

fn host(call: &Call) -> Result<Reply, ApiError> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let own = |id: &str| {
        id == call.state.info.server_id
            || id == own_name(call)
            || call.state.client.as_ref().is_some_and(|client| client.node_id() == *id)
    };
    let asked = [call.query.text("server_id"), call.query.text("node_id")]
        .into_iter()
        .find(|id| !id.is_empty())
        .unwrap_or_default();
    if !asked.is_empty() && !own(asked) {
        return Err(ApiError::not_found(format!("unknown agent \"{asked}\": ask it directly")));
    }
    let release = read("/etc/os-release");
    let os = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    let environment: Map<String, Value> = ENVIRONMENT
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), Value::from(std::env::var(name).ok()?))))
        .collect();
    let data = json!({
        "OS": format!("{} {}", os.trim_matches('"'), read("/proc/sys/kernel/osrelease").trim()),
        "Network": interfaces(),
        "ResolvConf": read("/etc/resolv.conf"),
        "Hosts": read("/etc/hosts"),
        "Environment": environment,
        "Disk": disks(&read("/proc/self/mounts")),
    });
    Ok(Reply::value(match asked {
        "" => data,
        id => json!({"AgentID": id, "HostData": data}),
    }))
}

fn interfaces() -> Vec<Value> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names.into_iter().map(|name| json!({"name": name, "type": "interface"})).collect()
}

/// Size and use of file systems that lie on devices, and of the root.
fn disks(mounts: &str) -> BTreeMap<String, Value> {
    const MIB: u64 = 1024 * 1024;
    let lines = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?))
    });
    let real = lines.filter(|(device, at)| device.starts_with("/dev/") || *at == "/");
    real.filter_map(|(_, at)| {
        let stat = rustix::fs::statvfs(at).ok()?;
        let mib = |blocks: u64| blocks.saturating_mul(stat.f_frsize) / MIB;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree);
        Some((at.to_owned(), json!({"DiskMB": mib(stat.f_blocks), "UsedMB": mib(used)})))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_on_devices_are_told() {
        let disks = disks("overlay / overlay rw 0 0\nproc /proc proc rw 0 0\nbroken\n");
        assert_eq!(disks.keys().collect::<Vec<_>>(), ["/"]);
        assert!(disks["/"]["DiskMB"].is_u64());
    }
}
