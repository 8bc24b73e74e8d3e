//! What a template may do at most.

/// Bytes of its text.
pub const TEMPLATE: usize = 1024 * 1024;
/// Bytes of what it renders to.
pub const OUTPUT: usize = 16 * 1024 * 1024;
/// Bytes of one value, about.
pub const VALUE: u64 = 4 * 1024 * 1024;
/// How deep values nest.
pub const DEPTH: usize = 150;
/// Times that bodies of `range` are gone through.
pub const ITERATIONS: u64 = 200_000;
/// Steps: parts of the template that are carried out, bytes that functions go through.
pub const WORK: u64 = 512 * 1024 * 1024;
/// Arguments of one call.
pub const ARGUMENTS: usize = 64;
