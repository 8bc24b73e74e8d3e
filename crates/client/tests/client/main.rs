//! The client with real drivers and servers of the test's own.

mod fence;
mod plugins;
mod recovery;
mod support;
mod tasks;
mod volumes;
