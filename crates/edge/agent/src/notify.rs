//! Reports of the agent's state to systemd (sd_notify(3)). Without `NOTIFY_SOCKET` they have no effect.

use sd_notify::NotifyState;

/// Reports that the agent is ready: its API answers, and its client runs.
pub(crate) fn ready(name: &str) {
    send(&[NotifyState::Ready, NotifyState::Status(&format!("Agent \"{name}\" runs"))]);
}

/// Reports that the agent reads its configuration again. [`ready`] ends this state.
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the clock cannot be read; the reload is not reported"),
    }
}

/// Reports that the agent stops. Tasks continue.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("The agent stops; its tasks continue")]);
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}
