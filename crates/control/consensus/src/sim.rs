//! A deterministic world for several servers in one thread: virtual time, seeded random numbers, virtual disks.
//!
//! Only the simulation of servers enables the feature `simulation`. Without a [`World`] on the current thread,
//! everything in this crate works as without the feature.

#![expect(clippy::cast_possible_truncation, reason = "the numbers of a simulation are small")]

mod clock;
mod disk;
mod lots;
mod plant;
mod runtime;
mod world;

pub use clock::{since_boot, step_wall, wall};
pub use disk::{DiskFault, VirtualDisk};
pub use lots::Lots;
pub use plant::Plant;
pub use runtime::{
    Elapsed, JoinError, JoinHandle, elapsed, is_simulated, lots, now, sleep, sleep_until, spawn_on, start,
    timeout,
};
pub use world::{HostId, World};

pub(crate) use plant::is_planted;
pub(crate) use runtime::{Runtime, RuntimeLots, spawn, suspended};
