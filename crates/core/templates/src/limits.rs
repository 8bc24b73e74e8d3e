//! The limits of one render.

/// The maximum length of a template's text, in bytes.
pub const TEMPLATE: usize = 1024 * 1024;
/// The maximum length of the rendered text, in bytes.
pub const OUTPUT: usize = 16 * 1024 * 1024;
/// The approximate maximum size of one value, in bytes.
pub const VALUE: u64 = 4 * 1024 * 1024;
/// The maximum nesting depth of values.
pub const DEPTH: usize = 150;
/// The maximum number of iterations of `range` bodies.
pub const ITERATIONS: u64 = 200_000;
/// The maximum number of steps: executed parts of the template, and bytes that functions process.
pub const WORK: u64 = 512 * 1024 * 1024;
/// The maximum number of arguments of one call.
pub const ARGUMENTS: usize = 64;
