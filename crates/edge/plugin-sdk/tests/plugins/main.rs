//! The example plugins as real processes, driven over gRPC as an agent does.

mod device;
mod driver;
mod exec;
mod handshake;
mod host;
mod recovery;
