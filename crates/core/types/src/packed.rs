//! The MessagePack form of values that are stored in logs, snapshots and client state, or sent between agents.
//!
//! The code that reads a type is generic over its source and can have hundreds of kilobytes. A crate that calls a generic
//! reader compiles that code again, with the code of all inner types. [`Packed`] has one implementation for each type, in
//! the type's own crate, so every reader is compiled once.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use rmp_serde::decode::Error as UnpackError;
pub use rmp_serde::encode::Error as PackError;

/// A value with a MessagePack form: structs are maps with the names of fields. [`crate::packed!`] implements the trait.
pub trait Packed: Sized {
    /// Appends the packed value.
    ///
    /// # Errors
    /// Fails if the value has no MessagePack form, such as a map whose keys are maps.
    fn pack_into(&self, bytes: &mut Vec<u8>) -> Result<(), PackError>;

    /// Reads the value that `bytes` begin with, and moves `bytes` behind the value.
    ///
    /// # Errors
    /// Fails if `bytes` do not begin with such a value.
    fn unpack_first(bytes: &mut &[u8]) -> Result<Self, UnpackError>;

    /// Returns the packed value.
    ///
    /// # Errors
    /// As [`Packed::pack_into`].
    fn pack(&self) -> Result<Vec<u8>, PackError> {
        let mut bytes = Vec::with_capacity(128);
        self.pack_into(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// As [`Packed::unpack_first`].
    fn unpack(mut bytes: &[u8]) -> Result<Self, UnpackError> {
        Self::unpack_first(&mut bytes)
    }
}

/// Implements [`Packed`] for types with the traits of `serde`. Use the macro in the crate that defines the type.
#[macro_export]
macro_rules! packed {
    ($($type:ty),+ $(,)?) => {$(
        impl $crate::packed::Packed for $type {
            fn pack_into(&self, bytes: &mut Vec<u8>) -> Result<(), $crate::packed::PackError> {
                $crate::packed::write(self, bytes)
            }

            fn unpack_first(bytes: &mut &[u8]) -> Result<Self, $crate::packed::UnpackError> {
                $crate::packed::read(bytes)
            }
        }
    )+};
}

/// Appends a packed value. Generic: call [`Packed::pack_into`] instead.
#[doc(hidden)]
pub fn write<T: Serialize>(value: &T, bytes: &mut Vec<u8>) -> Result<(), PackError> {
    rmp_serde::encode::write_named(bytes, value)
}

/// Reads a packed value. Generic: call [`Packed::unpack_first`] instead.
#[doc(hidden)]
pub fn read<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, UnpackError> {
    rmp_serde::from_read(bytes)
}

/// Rows of snapshots whose form differs from that of the state.
pub mod row {
    use crate::JobKey;
    use crate::alloc::Allocation;
    use serde::{Deserialize, Serialize};

    /// A row of a table whose key is not part of the row.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Keyed<T> {
        /// The job that the row is about.
        pub key: JobKey,
        /// The version of the job; 0 in tables without versions.
        pub version: u64,
        /// The row.
        pub row: T,
    }

    /// An allocation whose job is replaced by a position in the table of run jobs.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct AllocOfJob {
        /// The allocation without its job.
        pub alloc: Allocation,
        /// The position, or `None` for an allocation without a job.
        pub job: Option<u32>,
    }
}

packed!(std::collections::BTreeMap<String, Option<String>>);
packed!((), u32, u64, String, (crate::JobKey, crate::UnixNanos));
// The replicated log.
packed!(crate::command::Command, crate::command::Outcome);
// Rows of snapshots and of client state.
packed!(
    crate::acl::AuthMethod,
    crate::acl::BindingRule,
    crate::acl::OneTimeToken,
    crate::acl::Policy,
    crate::acl::Role,
    crate::acl::Token,
    crate::alloc::Allocation,
    crate::deployment::Deployment,
    crate::eval::Evaluation,
    crate::host_volume::HostVolume,
    crate::host_volume::HostVolumeClaim,
    crate::job::Job,
    crate::namespace::NamespaceSpec,
    crate::node::Node,
    crate::node_pool::NodePool,
    crate::operator::RootKeyMaterial,
    crate::operator::RootKeyMeta,
    crate::plugin::Plugin,
    crate::service::ServiceRegistration,
    crate::variable::Variable,
    crate::volume::Claim,
    crate::volume::Volume,
    row::AllocOfJob,
    row::Keyed<crate::command::JobSource>,
    row::Keyed<crate::job::Job>,
    row::Keyed<std::collections::BTreeMap<String, Vec<crate::scaling::ScalingEvent>>>,
);
packed!(crate::lookup::LookupsFound, crate::lookup::WatchLookups);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Evaluation;

    #[test]
    fn values_are_read_one_after_the_other() {
        let eval = Evaluation { priority: 7, ..Evaluation::default() };
        let mut bytes = eval.pack().unwrap();
        "next".to_owned().pack_into(&mut bytes).unwrap();
        let mut rest = bytes.as_slice();
        assert_eq!(Evaluation::unpack_first(&mut rest).unwrap(), eval);
        assert_eq!(String::unpack_first(&mut rest).unwrap(), "next");
        assert!(rest.is_empty() && String::unpack(rest).is_err());
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        // str 32 with a length of 4 GiB (the MessagePack specification, "str format family").
        assert!(String::unpack(&[0xdb, 0xff, 0xff, 0xff, 0xff, b'a']).is_err());
        // array 32 of 4 Gi elements.
        assert!(crate::alloc::Allocation::unpack(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
