//! The runtime of tokio and the machine.

use caravan_rpc::{Channel, Method, RpcError};
use rand::TryRngCore as _;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

pub(crate) use caravan_sys::time::wall_nanos;
pub(crate) use tokio::spawn;
pub(crate) use tokio::task::{JoinError, JoinHandle, spawn_blocking};
pub(crate) use tokio::time::{sleep, sleep_until, timeout};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(super) fn boot_nanos() -> u64 {
    caravan_sys::time::BootTime::now().0
}

pub(super) fn fill(bytes: &mut [u8]) -> Result<(), rand::rand_core::OsError> {
    rand::rngs::OsRng.try_fill_bytes(bytes)
}

pub(super) fn uuid() -> Uuid {
    Uuid::new_v4()
}

pub(super) fn random() -> u64 {
    rand::random()
}

pub(super) fn share() -> f64 {
    rand::random()
}

pub(super) async fn call<M: Method>(
    channel: &Channel,
    request: M::Request,
    deadline: Duration,
) -> Result<M::Response, RpcError> {
    channel.call::<M>(request, Some(deadline)).await
}
