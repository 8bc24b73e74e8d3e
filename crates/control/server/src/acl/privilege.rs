//! Capabilities and levels of access (docs/reference/http-api.md, section 5.8).

/// Declares a set of capabilities: an enum with names, and a set of them as bits.
macro_rules! capabilities {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names say it")]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All capabilities of the set.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Returns the name that policies use.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
            /// Parses a name.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
            /// Returns the set with this capability only.
            pub(crate) fn bit(self) -> u64 {
                1 << (self as u64)
            }
        }
    };
}

capabilities! {
    /// Capabilities in a namespace.
    NsCap {
        Deny = "deny",
        ListJobs = "list-jobs",
        ParseJob = "parse-job",
        ReadJob = "read-job",
        SubmitJob = "submit-job",
        DispatchJob = "dispatch-job",
        ReadLogs = "read-logs",
        ReadFs = "read-fs",
        AllocExec = "alloc-exec",
        AllocNodeExec = "alloc-node-exec",
        AllocLifecycle = "alloc-lifecycle",
        SentinelOverride = "sentinel-override",
        CsiRegisterPlugin = "csi-register-plugin",
        CsiWriteVolume = "csi-write-volume",
        CsiReadVolume = "csi-read-volume",
        CsiListVolume = "csi-list-volume",
        CsiMountVolume = "csi-mount-volume",
        HostVolumeCreate = "host-volume-create",
        HostVolumeRegister = "host-volume-register",
        HostVolumeRead = "host-volume-read",
        HostVolumeWrite = "host-volume-write",
        HostVolumeDelete = "host-volume-delete",
        ListScalingPolicies = "list-scaling-policies",
        ReadScalingPolicy = "read-scaling-policy",
        ReadJobScaling = "read-job-scaling",
        ScaleJob = "scale-job",
        SubmitRecommendation = "submit-recommendation",
        RegisterJob = "register-job",
        RevertJob = "revert-job",
        DeregisterJob = "deregister-job",
        PurgeJob = "purge-job",
        EvaluateJob = "evaluate-job",
        PlanJob = "plan-job",
        TagJobVersion = "tag-job-version",
        StableJob = "stable-job",
        FailDeployment = "fail-deployment",
        PauseDeployment = "pause-deployment",
        PromoteDeployment = "promote-deployment",
        UnblockDeployment = "unblock-deployment",
        CancelDeployment = "cancel-deployment",
        SetAllocHealthDeployment = "set-alloc-health-deployment",
        GcAllocation = "gc-allocation",
        PauseAllocation = "pause-allocation",
        ForcePeriodicJob = "force-periodic-job",
        DeleteServiceRegistration = "delete-service-registration",
    }
}

capabilities! {
    /// Capabilities on variables of a path.
    VarCap {
        Deny = "deny",
        List = "list",
        Read = "read",
        Write = "write",
        Destroy = "destroy",
    }
}

capabilities! {
    /// Capabilities on node pools.
    PoolCap {
        Deny = "deny",
        Delete = "delete",
        Read = "read",
        Write = "write",
    }
}

capabilities! {
    /// Capabilities on host volumes of a name.
    HostVolumeCap {
        Deny = "deny",
        MountReadonly = "mount-readonly",
        MountReadwrite = "mount-readwrite",
    }
}

/// The level of access to a class of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// No policy specifies a level.
    #[default]
    None,
    /// May list.
    List,
    /// May read.
    Read,
    /// May read and write.
    Write,
    /// Denied; overrides all other policies.
    Deny,
}

impl Level {
    /// Parses the shorthand of a policy.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "deny" => Self::Deny,
            "list" => Self::List,
            "read" => Self::Read,
            "write" => Self::Write,
            _ => return None,
        })
    }

    /// Returns whether this level includes `desired`.
    pub fn allows(self, desired: Self) -> bool {
        self != Self::Deny && self != Self::None && self >= desired
    }
}

const NAMESPACE_READ: [NsCap; 9] = [
    NsCap::ListJobs,
    NsCap::ParseJob,
    NsCap::ReadJob,
    NsCap::CsiListVolume,
    NsCap::CsiReadVolume,
    NsCap::ReadJobScaling,
    NsCap::ListScalingPolicies,
    NsCap::ReadScalingPolicy,
    NsCap::HostVolumeRead,
];

const NAMESPACE_WRITE: [NsCap; 12] = [
    NsCap::ScaleJob,
    NsCap::SubmitJob,
    NsCap::DispatchJob,
    NsCap::ReadLogs,
    NsCap::ReadFs,
    NsCap::AllocExec,
    NsCap::AllocLifecycle,
    NsCap::CsiMountVolume,
    NsCap::CsiWriteVolume,
    NsCap::SubmitRecommendation,
    NsCap::HostVolumeCreate,
    NsCap::HostVolumeRead,
];

const NAMESPACE_SCALE: [NsCap; 6] = [
    NsCap::ListScalingPolicies,
    NsCap::ReadScalingPolicy,
    NsCap::ReadJobScaling,
    NsCap::ScaleJob,
    NsCap::ReadJob,
    NsCap::SubmitRecommendation,
];

/// Returns the capabilities of a namespace shorthand; `None` if it is unknown.
pub(super) fn namespace(policy: &str) -> Option<Vec<NsCap>> {
    Some(match policy {
        "deny" => vec![NsCap::Deny],
        "read" => NAMESPACE_READ.to_vec(),
        "write" => NAMESPACE_READ.iter().chain(&NAMESPACE_WRITE).copied().collect(),
        "scale" => NAMESPACE_SCALE.to_vec(),
        _ => return None,
    })
}

/// Returns the capabilities of a node pool shorthand; `None` if it is unknown.
pub(super) fn node_pool(policy: &str) -> Option<Vec<PoolCap>> {
    Some(match policy {
        "deny" => vec![PoolCap::Deny],
        "read" => vec![PoolCap::Read],
        "write" => vec![PoolCap::Delete, PoolCap::Read, PoolCap::Write],
        _ => return None,
    })
}

/// Returns the capabilities of a host volume shorthand; `None` if it is unknown.
pub(super) fn host_volume(policy: &str) -> Option<Vec<HostVolumeCap>> {
    Some(match policy {
        "deny" => vec![HostVolumeCap::Deny],
        "read" => vec![HostVolumeCap::MountReadonly],
        "write" => vec![HostVolumeCap::MountReadonly, HostVolumeCap::MountReadwrite],
        _ => return None,
    })
}

/// Capabilities of operators, by name.
pub(super) const OPERATOR: [&str; 5] =
    ["snapshot-save", "license-read", "keyring-rotate", "keyring-read", "keyring-delete"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_are_written_and_fit_a_set() {
        for cap in NsCap::ALL {
            assert_eq!(NsCap::parse(cap.as_str()), Some(*cap));
        }
        assert!(NsCap::ALL.len() < 64 && NsCap::parse("fly").is_none());
    }

    #[test]
    fn levels_include_the_lower_ones() {
        assert!(Level::Write.allows(Level::Read) && Level::Read.allows(Level::List));
        assert!(!Level::List.allows(Level::Read));
        assert!(!Level::Deny.allows(Level::List) && !Level::None.allows(Level::List));
    }
}
