//! `server {}` (docs/reference/jobspec.md, section 11.2).

use super::macros::{block, raw, settings};
use super::{Hidden, Raw};
use caravan_types::time::Nanos;

settings! {
    /// Settings of a server.
    ServerConfig: SERVER "server" {
        enabled: bool = Bool;
        bootstrap_expect: i64 = Int;
        authoritative_region: String = Str;
        data_dir: String = Str;
        encrypt: Hidden = Str;
        encrypt_accept_plain: bool = Bool;
        protocol_version: i64 = Int;
        raft_protocol: i64 = Int;
        raft_multiplier: i64 = Int;
        num_schedulers: i64 = Int;
        enabled_schedulers: Vec<String> = Strings;
        plan_apply_pipeline: i64 = Int;
        event_buffer_size: i64 = Int;
        enable_event_broker: bool = Bool;
        heartbeat_grace: Nanos = Duration;
        min_heartbeat_ttl: Nanos = Duration;
        max_heartbeats_per_second: i64 = Int;
        failover_heartbeat_ttl: Nanos = Duration;
        lease_ttl: Nanos = Duration;
        lease_kill_grace: Nanos = Duration;
        lease_margin: Nanos = Duration;
        node_gc_threshold: Nanos = Duration;
        job_gc_interval: Nanos = Duration;
        job_gc_threshold: Nanos = Duration;
        eval_gc_threshold: Nanos = Duration;
        batch_eval_gc_threshold: Nanos = Duration;
        deployment_gc_threshold: Nanos = Duration;
        volume_calls_per_plugin: i64 = Int;
        csi_volume_claim_gc_interval: Nanos = Duration;
        csi_volume_claim_gc_threshold: Nanos = Duration;
        csi_plugin_gc_threshold: Nanos = Duration;
        acl_token_gc_threshold: Nanos = Duration;
        root_key_gc_interval: Nanos = Duration;
        root_key_gc_threshold: Nanos = Duration;
        root_key_rotation_threshold: Nanos = Duration;
        job_default_priority: i64 = Int;
        job_max_priority: i64 = Int;
        job_max_count: i64 = Int;
        job_max_source_size: String = Str;
        job_tracked_versions: i64 = Int;
        oidc_issuer: String = Str;
        start_timeout: Nanos = Duration;
        deploy_query_rate_limit: i64 = Int;
        raft_snapshot_threshold: i64 = Int;
        raft_snapshot_interval: Nanos = Duration;
        raft_trailing_logs: i64 = Int;
        start_join: Vec<String> = Strings;
        retry_join: Vec<String> = Strings;
        retry_max: i64 = Int;
        retry_interval: Nanos = Duration;
        rejoin_after_leave: bool = Bool;
        non_voting_server: bool = Bool;
        redundancy_zone: String = Str;
        upgrade_version: String = Str;
        license_path: String = Str;
        license_env: String = Str;
    } blocks {
        default_scheduler_config: Raw = raw();
        plan_rejection_tracker: PlanRejectionTracker = block(&PLAN_REJECTION_TRACKER);
        search: SearchConfig = block(&SEARCH);
        raft_boltdb: Raw = raw();
        raft_logstore: Raw = raw();
        server_join: ServerJoin = block(&SERVER_JOIN);
        client_introduction: ClientIntroduction = block(&CLIENT_INTRODUCTION);
    }

    /// The servers that an agent joins, and its retries.
    ServerJoin: SERVER_JOIN "server_join" {
        start_join: Vec<String> = Strings;
        retry_join: Vec<String> = Strings;
        retry_max: i64 = Int;
        retry_interval: Nanos = Duration;
    } blocks {}

    /// The tracker that marks a node as ineligible if its plans keep failing.
    PlanRejectionTracker: PLAN_REJECTION_TRACKER "plan_rejection_tracker" {
        enabled: bool = Bool;
        node_threshold: i64 = Int;
        node_window: Nanos = Duration;
    } blocks {}

    /// Limits of fuzzy and prefix searches.
    SearchConfig: SEARCH "search" {
        fuzzy_enabled: bool = Bool;
        limit_query: i64 = Int;
        limit_results: i64 = Int;
        min_term_length: i64 = Int;
    } blocks {}

    /// Introduction tokens, with which clients authenticate when they first register.
    ClientIntroduction: CLIENT_INTRODUCTION "client_introduction" {
        enforcement: String = Str;
        default_identity_ttl: Nanos = Duration;
        max_identity_ttl: Nanos = Duration;
    } blocks {}
}
