//! Kernel interfaces: mounts and their identity, propagation, cgroups v1 and v2, pidfd, atomic files, interfaces and
//! packet rules over netlink. The only crate with unsafe code.
//!
//! Each function is a thin, synchronous wrapper: one call, one effect, one error that names the path or process.
//! Decisions (what to mount, when to kill) belong to the callers.

pub mod below;
pub mod caps;
pub mod cgroup;
pub mod dir;
mod error;
pub mod files;
pub mod footprint;
pub mod heap;
pub mod iptables;
pub mod limits;
pub mod mount;
pub mod mountinfo;
pub mod netlink;
pub mod netns;
pub mod pages;
pub mod process;
pub mod seal;
pub mod seccomp;
pub mod socket;
pub mod time;
pub mod tree;
pub mod user;

pub use error::{Error, Result, describe};
