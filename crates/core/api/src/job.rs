//! The job and its direct blocks.

use super::group::TaskGroup;
use super::macros::api_objects;
use super::policy::{Affinity, Constraint, MigrateStrategy, ReschedulePolicy, Spread, UpdateStrategy};
use std::collections::BTreeMap;

api_objects! {
    /// A job (docs/reference/http-api.md, section 5.1). The fields from `Stop` on are written by the servers only.
    Job("Job") {
        region: Option<String> = "Region";
        namespace: Option<String> = "Namespace";
        id: Option<String> = "ID";
        name: Option<String> = "Name";
        /// `service`, `batch`, `system` or `sysbatch`.
        kind: Option<String> = "Type";
        priority: Option<i64> = "Priority";
        all_at_once: Option<bool> = "AllAtOnce";
        datacenters: Option<Vec<String>> = "Datacenters";
        node_pool: Option<String> = "NodePool";
        constraints: Option<Vec<Constraint>> = "Constraints";
        affinities: Option<Vec<Affinity>> = "Affinities";
        task_groups: Option<Vec<TaskGroup>> = "TaskGroups";
        update: Option<UpdateStrategy> = "Update";
        multiregion: Option<Multiregion> = "Multiregion";
        spreads: Option<Vec<Spread>> = "Spreads";
        periodic: Option<Periodic> = "Periodic";
        parameterized: Option<Parameterized> = "ParameterizedJob";
        /// Copied into the groups by the canonical form; never returned by the servers.
        reschedule: Option<ReschedulePolicy> = "Reschedule";
        /// Copied into the groups by the canonical form; never returned by the servers.
        migrate: Option<MigrateStrategy> = "Migrate";
        meta: Option<BTreeMap<String, String>> = "Meta";
        ui: Option<JobUi> = "UI";
        stop: Option<bool> = "Stop";
        parent_id: Option<String> = "ParentID";
        dispatched: bool = "Dispatched";
        dispatch_idempotency_token: Option<String> = "DispatchIdempotencyToken";
        /// Base64.
        payload: Option<String> = "Payload";
        consul_namespace: Option<String> = "ConsulNamespace";
        vault_namespace: Option<String> = "VaultNamespace";
        nomad_token_id: Option<String> = "NomadTokenID";
        status: Option<String> = "Status";
        status_description: Option<String> = "StatusDescription";
        stable: Option<bool> = "Stable";
        version: Option<u64> = "Version";
        /// Unix time in nanoseconds.
        submit_time: Option<i64> = "SubmitTime";
        create_index: Option<u64> = "CreateIndex";
        modify_index: Option<u64> = "ModifyIndex";
        job_modify_index: Option<u64> = "JobModifyIndex";
        version_tag: Option<VersionTag> = "VersionTag";
    }

    /// The name of a version of a job.
    VersionTag("JobVersionTag") {
        name: String = "Name";
        description: String = "Description";
        /// Unix time in nanoseconds.
        tagged_time: i64 = "TaggedTime";
    }

    /// The launches of a periodic job.
    Periodic("PeriodicConfig") {
        enabled: Option<bool> = "Enabled";
        spec: Option<String> = "Spec";
        specs: Option<Vec<String>> = "Specs";
        /// Always `cron`.
        spec_type: Option<String> = "SpecType";
        prohibit_overlap: Option<bool> = "ProhibitOverlap";
        time_zone: Option<String> = "TimeZone";
    }

    /// The rules for dispatches of a parameterized job.
    Parameterized("ParameterizedJobConfig") {
        /// `optional`, `required` or `forbidden`.
        payload: String = "Payload";
        meta_required: Option<Vec<String>> = "MetaRequired";
        meta_optional: Option<Vec<String>> = "MetaOptional";
    }

    /// Text and links for the web page.
    JobUi("JobUIConfig") {
        description: String = "Description";
        links: Option<Vec<JobUiLink>> = "Links";
    }

    /// One link of the web page.
    JobUiLink("JobUILink") {
        label: String = "Label";
        url: String = "URL";
    }

    /// A job spread over regions.
    Multiregion("Multiregion") {
        strategy: Option<MultiregionStrategy> = "Strategy";
        regions: Option<Vec<MultiregionRegion>> = "Regions";
    }

    /// The rollout of a multiregion job.
    MultiregionStrategy("MultiregionStrategy") {
        max_parallel: Option<i64> = "MaxParallel";
        on_failure: Option<String> = "OnFailure";
    }

    /// One region of a multiregion job.
    MultiregionRegion("MultiregionRegion") {
        name: String = "Name";
        count: Option<i64> = "Count";
        datacenters: Option<Vec<String>> = "Datacenters";
        node_pool: String = "NodePool";
        meta: Option<BTreeMap<String, String>> = "Meta";
    }
}
