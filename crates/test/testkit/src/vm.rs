//! Virtual machines for stories: a Debian kernel, cgroup version 2 alone, a root of busybox or of Debian
//! with systemd, real disks and cables.
//!
//! A [`story`] starts machines from a [`Bench`] and controls them from outside: commands and files go through a
//! channel ([`protocol`]), power and cables through QEMU. All files are built once, below `vm` in the target directory
//! of cargo. A story that fails leaves console, logs and cores there.

mod agent;
mod bench;
mod cache;
mod channel;
mod debian;
mod disk;
mod host;
mod kernel;
mod machine;
pub mod protocol;
mod qemu;
mod qmp;
mod root;
mod saved;
mod switch;
pub mod writelog;

pub use agent::{AGENT_CONFIG, DATA_DIR};
pub use bench::{Bench, story};
pub use cache::directory;
pub use disk::{Content, Disk};
pub use machine::{Machine, MachineOptions, System};
pub use qemu::Accelerator;
pub use switch::EtherSwitch;
