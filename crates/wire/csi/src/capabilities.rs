//! The capabilities that a plugin reports.

use std::collections::BTreeSet;

/// The capabilities of one service of a plugin. Unknown numbers are kept separately for display and otherwise
/// ignored, as the specification requires of a CO.
///
/// A set that was never fetched differs from an empty set: callers keep `Option<CapabilitySet<_>>` and treat `None`
/// as "not known yet".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapabilitySet<C> {
    known: BTreeSet<C>,
    unknown: BTreeSet<i32>,
}

impl<C> Default for CapabilitySet<C> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), unknown: BTreeSet::new() }
    }
}

impl<C: Ord + Copy> CapabilitySet<C> {
    /// Returns whether the plugin reported this capability.
    pub fn has(&self, capability: C) -> bool {
        self.known.contains(&capability)
    }

    /// Returns the known capabilities, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = C> + '_ {
        self.known.iter().copied()
    }

    /// Returns the numbers without a name in this version, from a newer version of the interface.
    pub fn unknown(&self) -> impl Iterator<Item = i32> + '_ {
        self.unknown.iter().copied()
    }

    pub(crate) fn insert(&mut self, number: i32, capability: Option<C>) {
        match capability {
            Some(capability) => {
                self.known.insert(capability);
            }
            // Zero is UNKNOWN in each of these enums and carries no information.
            None if number != 0 => {
                self.unknown.insert(number);
            }
            None => {}
        }
    }
}

impl<C: Ord> FromIterator<C> for CapabilitySet<C> {
    fn from_iter<I: IntoIterator<Item = C>>(capabilities: I) -> Self {
        Self { known: capabilities.into_iter().collect(), unknown: BTreeSet::new() }
    }
}

/// `PluginCapability`: the services of a plugin, and the kinds of expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginCapability {
    /// `CONTROLLER_SERVICE`: the plugin has a controller service.
    ControllerService,
    /// `VOLUME_ACCESSIBILITY_CONSTRAINTS`: volumes may not be reachable from every node, so topology matters.
    VolumeAccessibilityConstraints,
    /// `GROUP_CONTROLLER_SERVICE`: the plugin has a group controller service.
    GroupControllerService,
    /// `SNAPSHOT_METADATA_SERVICE`: the plugin has a snapshot metadata service.
    SnapshotMetadataService,
    /// `VolumeExpansion.ONLINE`: volumes can be expanded while published.
    ExpansionOnline,
    /// `VolumeExpansion.OFFLINE`: volumes can be expanded only while unpublished.
    ExpansionOffline,
}

macro_rules! rpc_capabilities {
    ($(#[$doc:meta])* $name:ident: $($variant:ident = $number:literal $wire:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[doc = concat!("`", $wire, "`")] $variant),+
        }

        impl $name {
            /// Returns the capability with this number on the wire.
            pub const fn from_number(number: i32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }

            /// Returns the name in the specification.
            pub const fn wire_name(self) -> &'static str {
                match self { $(Self::$variant => $wire),+ }
            }
        }
    };
}

rpc_capabilities!(
    /// `ControllerServiceCapability.RPC.Type`: the calls and features of the controller service.
    ControllerCapability:
    CreateDeleteVolume = 1 "CREATE_DELETE_VOLUME",
    PublishUnpublishVolume = 2 "PUBLISH_UNPUBLISH_VOLUME",
    ListVolumes = 3 "LIST_VOLUMES",
    GetCapacity = 4 "GET_CAPACITY",
    CreateDeleteSnapshot = 5 "CREATE_DELETE_SNAPSHOT",
    ListSnapshots = 6 "LIST_SNAPSHOTS",
    CloneVolume = 7 "CLONE_VOLUME",
    PublishReadonly = 8 "PUBLISH_READONLY",
    ExpandVolume = 9 "EXPAND_VOLUME",
    ListVolumesPublishedNodes = 10 "LIST_VOLUMES_PUBLISHED_NODES",
    VolumeCondition = 11 "VOLUME_CONDITION",
    GetVolume = 12 "GET_VOLUME",
    SingleNodeMultiWriter = 13 "SINGLE_NODE_MULTI_WRITER",
    ModifyVolume = 14 "MODIFY_VOLUME",
    GetSnapshot = 15 "GET_SNAPSHOT",
);

rpc_capabilities!(
    /// `NodeServiceCapability.RPC.Type`: the calls and features of the node service.
    NodeCapability:
    StageUnstageVolume = 1 "STAGE_UNSTAGE_VOLUME",
    GetVolumeStats = 2 "GET_VOLUME_STATS",
    ExpandVolume = 3 "EXPAND_VOLUME",
    VolumeCondition = 4 "VOLUME_CONDITION",
    SingleNodeMultiWriter = 5 "SINGLE_NODE_MULTI_WRITER",
    VolumeMountGroup = 6 "VOLUME_MOUNT_GROUP",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_numbers_are_kept_apart_and_zero_says_nothing() {
        let mut set = CapabilitySet::default();
        for number in [0, 1, 999] {
            set.insert(number, NodeCapability::from_number(number));
        }
        assert!(set.has(NodeCapability::StageUnstageVolume));
        assert!(!set.has(NodeCapability::ExpandVolume));
        assert_eq!(set.unknown().collect::<Vec<_>>(), [999]);
        assert_eq!(set.iter().count(), 1);
    }

    #[test]
    fn numbers_are_those_of_the_generated_code() {
        use caravan_proto::csi;
        for number in 1..=15 {
            let wire =
                csi::controller_service_capability::rpc::Type::try_from(number).expect("a known number");
            let ours = ControllerCapability::from_number(number).expect("a known number");
            assert_eq!(ours.wire_name(), wire.as_str_name());
        }
        for number in 1..=6 {
            let wire = csi::node_service_capability::rpc::Type::try_from(number).expect("a known number");
            let ours = NodeCapability::from_number(number).expect("a known number");
            assert_eq!(ours.wire_name(), wire.as_str_name());
        }
    }
}
