//! The first contact of a client with servers of other agents: `retry_join` of its configuration, until a server
//! answers (docs/reference/cluster.md, section 4).

use crate::settings::{ClientSettings, RPC_PORT};
use caravan_members::{JoinError, Next};
use caravan_rpc::Targets;
use tokio::time::timeout;

const SETTING: &str = "client.server_join.retry_join";

/// Runs the programs that print addresses of servers, and adds these to the servers that the client tries. Each
/// attempt lasts `retry_interval`, in which the client tries all servers.
///
/// # Errors
/// After `retry_max` attempts in which no server answered. The agent then ends with exit code 1.
pub(crate) async fn join(
    settings: &ClientSettings,
    targets: &Targets,
    client: &caravan_client::Handle,
) -> Result<(), JoinError> {
    let mut plan = settings.retry;
    loop {
        let failures = discover(settings, targets).await;
        let is_answered = timeout(plan.interval, client.answered()).await.is_ok();
        let silent = targets.list().into_iter().map(|server| format!("{server}: no answer"));
        let reasons = || silent.chain(failures).collect::<Vec<_>>().join("; ");
        match plan.after(is_answered) {
            Next::Done => return Ok(()),
            // The attempt has lasted as long as the pause.
            Next::After(_) => tracing::warn!(reasons = reasons(), "no server answers"),
            Next::GiveUp => return Err(JoinError { setting: SETTING, reasons: reasons() }),
        }
    }
}

/// Adds the addresses that programs print, and returns the reasons of the programs that printed none.
async fn discover(settings: &ClientSettings, targets: &Targets) -> Vec<String> {
    let found = caravan_members::discover(&settings.server_programs, RPC_PORT).await;
    let mut list = targets.list();
    let before = list.len();
    for address in found.addresses.iter().map(ToString::to_string) {
        if !list.contains(&address) {
            list.push(address);
        }
    }
    if list.len() > before {
        targets.set(list.clone());
        targets.set_fallback(list);
    }
    found.failures.into_iter().map(|failure| failure.reason).collect()
}
