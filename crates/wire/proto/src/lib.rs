//! Checked-in generated code of the plugins' wire protocols.
//!
//! [`csi`] is the Container Storage Interface, package `csi.v1`: messages, clients and server traits with the
//! generator's names. `cargo xtask proto` generates it from `proto/csi.proto`. The only hand-written code is the
//! `Debug` of messages with secrets, which prints no content.

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
