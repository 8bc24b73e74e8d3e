//! A deterministic world for several servers in one thread: virtual time, seeded random numbers, virtual disks.
//!
//! Only the simulation of servers enables the feature `simulation`. Without a [`World`] on the current thread,
//! everything in this crate works as without the feature.

mod disk;
mod lots;
mod plant;
mod runtime;
mod world;

pub use disk::{DiskFault, VirtualDisk};
pub use lots::Lots;
pub use plant::Plant;
pub use runtime::{elapsed, now, sleep, spawn_on, timeout};
pub use world::{HostId, World};

pub(crate) use plant::is_planted;
pub(crate) use runtime::{Runtime, RuntimeLots, is_simulated, sleep_until, spawn, suspended};
