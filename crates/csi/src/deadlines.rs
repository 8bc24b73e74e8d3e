//! The calls by name, and how long each may take.

use std::{fmt, time::Duration};

macro_rules! calls {
    ($($name:ident $class:ident),+ $(,)?) => {
        /// A call of the interface, under the name it has there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Call {
            $(#[doc = concat!("The call `", stringify!($name), "`.")] $name),+
        }

        impl Call {
            /// The name as in the specification, for example `NodeStageVolume`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// Which deadline applies.
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

/// What kind of call it is, as far as patience goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// `Probe`: asked often, answered at once or not at all.
    Probe,
    /// Questions about the plugin itself: its name, its capabilities, its node.
    Query,
    /// `NodeGetVolumeStats`: reads a file system that may hang.
    Stats,
    /// Everything that a volume's life is made of, on the node or through the controller.
    Volume,
}

/// How long calls may take, by class. A call past its deadline is dropped and answers
/// [`CsiError::Deadline`](crate::CsiError::Deadline); whether the plugin carried it out is then unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For [`CallClass::Probe`], 5 s by default.
    pub probe: Duration,
    /// For [`CallClass::Query`], 15 s by default.
    pub query: Duration,
    /// For [`CallClass::Stats`], 30 s by default.
    pub stats: Duration,
    /// For [`CallClass::Volume`], 2 min by default.
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
    /// The deadline of one call.
    pub const fn of(&self, call: Call) -> Duration {
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
        assert_eq!(deadlines.of(Call::Probe), Duration::from_secs(5));
        assert_eq!(deadlines.of(Call::NodeStageVolume), Duration::from_secs(120));
        assert_eq!(Call::ControllerUnpublishVolume.to_string(), "ControllerUnpublishVolume");
    }
}
