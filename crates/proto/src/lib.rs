//! Checked-in generated code of the wire protocols that plugins speak.
//!
//! [`csi`] is the Container Storage Interface, package `csi.v1`: messages, clients and server traits as
//! the generator names them. `cargo xtask proto` makes it from `proto/csi.proto`. There is no logic
//! here, with one exception: messages that carry secrets have a `Debug` that shows nothing.

mod redact;

/// The Container Storage Interface, package `csi.v1`.
#[allow(
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    clippy::large_futures,
    clippy::cast_possible_truncation,
    reason = "generated: which of these fire depends on the generator"
)]
pub mod csi {
    include!("generated/csi.v1.rs");
}
