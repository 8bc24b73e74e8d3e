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

/// The protocols of go-plugin programs (docs/reference/wire-plugins.md). The modules are nested like the packages,
/// because the generated code refers to other packages by relative paths.
#[allow(
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::pedantic,
    clippy::large_futures,
    clippy::cast_possible_truncation,
    reason = "generated: which of these fire depends on the generator"
)]
pub mod plugins {
    pub mod hashicorp {
        pub mod nomad {
            pub mod plugins {
                pub mod base {
                    pub mod proto {
                        include!("generated/hashicorp.nomad.plugins.base.proto.rs");
                    }
                }
                pub mod device {
                    include!("generated/hashicorp.nomad.plugins.device.rs");
                }
                pub mod drivers {
                    pub mod proto {
                        include!("generated/hashicorp.nomad.plugins.drivers.proto.rs");
                    }
                }
                pub mod shared {
                    pub mod hclspec {
                        include!("generated/hashicorp.nomad.plugins.shared.hclspec.rs");
                    }
                    pub mod structs {
                        include!("generated/hashicorp.nomad.plugins.shared.structs.rs");
                    }
                }
            }
        }
    }
    pub mod host {
        include!("generated/plugin.rs");
    }
    pub mod health {
        include!("generated/grpc.health.v1.rs");
    }
    pub use hashicorp::nomad::plugins::base::proto as base;
    pub use hashicorp::nomad::plugins::device;
    pub use hashicorp::nomad::plugins::drivers::proto as driver;
    pub use hashicorp::nomad::plugins::shared::{hclspec, structs};
}
