//! The `caravan` binary: picks the role this process plays and hands over to its crate.

fn main() {}
