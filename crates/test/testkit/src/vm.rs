//! Virtual machines for stories: a Debian kernel, only cgroup version 2, a root of busybox or of Debian
//! with systemd, real disks and cables.
//!
//! A [`story`] starts machines from a [`Bench`] and controls them from the host: a channel ([`protocol`])
//! carries commands and files, and QEMU controls power and cables. All files are built once, below `vm` in
//! the target directory of cargo. A failed story keeps console, logs and cores there.

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
