//! The simulated world of the current thread; tokio and the machine without one.

use caravan_consensus::sim;
use caravan_rpc::{Channel, Code, Method, RpcError};
use rand::TryRngCore as _;
use std::time::Duration;
use uuid::Uuid;

pub(crate) use caravan_consensus::sim::{
    JoinError, JoinHandle, now, sleep, sleep_until, start as spawn, timeout,
};

pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if sim::is_simulated() {
        return spawn(async { work() });
    }
    JoinHandle::Tokio(tokio::task::spawn_blocking(work))
}

pub(super) fn wall_nanos() -> i64 {
    sim::wall().unwrap_or_else(caravan_sys::time::wall_nanos)
}

pub(super) fn boot_nanos() -> u64 {
    sim::since_boot().unwrap_or_else(|| caravan_sys::time::BootTime::now().0)
}

pub(super) fn fill(bytes: &mut [u8]) -> Result<(), rand::rand_core::OsError> {
    let Some(mut lots) = sim::lots() else { return rand::rngs::OsRng.try_fill_bytes(bytes) };
    for piece in bytes.chunks_mut(8) {
        piece.copy_from_slice(&lots.draw().to_le_bytes()[..piece.len()]);
    }
    Ok(())
}

pub(super) fn uuid() -> Uuid {
    match sim::lots() {
        Some(mut lots) => {
            let bytes = (u128::from(lots.draw()) << 64 | u128::from(lots.draw())).to_le_bytes();
            uuid::Builder::from_random_bytes(bytes).into_uuid()
        }
        None => Uuid::new_v4(),
    }
}

pub(super) fn random() -> u64 {
    sim::lots().map_or_else(rand::random, |mut lots| lots.draw())
}

pub(super) fn share() -> f64 {
    sim::lots().map_or_else(rand::random, |mut lots| {
        // The number has as many random bits as the mantissa of an `f64`.
        (lots.draw() >> (u64::BITS - f64::MANTISSA_DIGITS)) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
    })
}

pub(super) async fn call<M: Method>(
    channel: &Channel,
    request: M::Request,
    deadline: Duration,
) -> Result<M::Response, RpcError> {
    if !sim::is_simulated() {
        return channel.call::<M>(request, Some(deadline)).await;
    }
    let late = || RpcError::new(Code::Deadline, format!("{} did not answer within {deadline:?}", M::NAME));
    timeout(deadline, channel.call::<M>(request, None)).await.unwrap_or_else(|_| Err(late()))
}
