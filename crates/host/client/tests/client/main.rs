//! The client with real drivers and the test's own servers.

mod cores;
mod devices;
mod directories;
mod disks;
mod fake;
mod fence;
mod fuse;
mod mounts;
mod plugins;
mod recovery;
mod services;
mod support;
mod tasks;
mod time_limit;
mod volumes;
