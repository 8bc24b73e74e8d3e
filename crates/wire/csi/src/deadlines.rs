//! The calls by name, and their deadlines.

use std::{fmt, time::Duration};

macro_rules! calls {
    ($($name:ident $class:ident),+ $(,)?) => {
        /// A call of the interface, with its name in the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Call {
            $(#[doc = concat!("The call `", stringify!($name), "`.")] $name),+
        }

        impl Call {
            /// Returns the name in the specification, for example `NodeStageVolume`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// Returns the class, which selects the deadline.
            pub const fn class(self) -> CallClass {
                match self { $(Self::$name => CallClass::$class),+ }
            }
        }
    };
}

calls!(
    Probe Probe,
    GetPluginInfo Query,
    GetPluginCapabilities Query,
    ControllerGetCapabilities Query,
    NodeGetCapabilities Query,
    NodeGetInfo Query,
    CreateVolume Volume,
    DeleteVolume Volume,
    ControllerPublishVolume Volume,
    ControllerUnpublishVolume Volume,
    ValidateVolumeCapabilities Volume,
    ListVolumes Volume,
    GetCapacity Volume,
    CreateSnapshot Volume,
    DeleteSnapshot Volume,
    ListSnapshots Volume,
    GetSnapshot Volume,
    ControllerExpandVolume Volume,
    ControllerGetVolume Volume,
    ControllerModifyVolume Volume,
    NodeStageVolume Volume,
    NodeUnstageVolume Volume,
    NodePublishVolume Volume,
    NodeUnpublishVolume Volume,
    NodeExpandVolume Volume,
    NodeGetVolumeStats Stats,
);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A class of calls with the same deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// `Probe`: frequent, and either quick or failed.
    Probe,
    /// Queries about the plugin itself: its name, its capabilities, its node.
    Query,
    /// `NodeGetVolumeStats`: reads a file system, which may hang.
    Stats,
    /// All calls that change or list volumes and snapshots, on the node or through the controller.
    Volume,
}

/// The deadlines of calls, by class. A call past its deadline is dropped and returns
/// [`CsiError::Deadline`](crate::CsiError::Deadline); whether the plugin executed the call is then unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Deadline of [`CallClass::Probe`], 5 s by default.
    pub probe: Duration,
    /// Deadline of [`CallClass::Query`], 15 s by default.
    pub query: Duration,
    /// Deadline of [`CallClass::Stats`], 30 s by default.
    pub stats: Duration,
    /// Deadline of [`CallClass::Volume`], 2 min by default.
    pub volume: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            probe: Duration::from_secs(5),
            query: Duration::from_secs(15),
            stats: Duration::from_secs(30),
            volume: Duration::from_secs(120),
        }
    }
}

impl Deadlines {
    /// Returns the deadline of one call.
    pub const fn timeout(&self, call: Call) -> Duration {
        match call.class() {
            CallClass::Probe => self.probe,
            CallClass::Query => self.query,
            CallClass::Stats => self.stats,
            CallClass::Volume => self.volume,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_their_own_deadline() {
        let deadlines = Deadlines::default();
        assert_eq!(deadlines.timeout(Call::Probe), Duration::from_secs(5));
        assert_eq!(deadlines.timeout(Call::NodeStageVolume), Duration::from_secs(120));
        assert_eq!(Call::ControllerUnpublishVolume.to_string(), "ControllerUnpublishVolume");
    }
}
