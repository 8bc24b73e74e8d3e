//! The job and what stands directly in it.

use super::finish;
use super::group::GROUP;
use super::task::{SECRET, TASK, VAULT};
use crate::schema::{Content, Kind, Schema, attr, labelled, many, one};

/// `job "name" {}`.
pub static JOB: Schema = Schema {
    name: "job",
    attributes: &[
        attr("all_at_once", "AllAtOnce", Kind::Bool),
        attr("consul_namespace", "ConsulNamespace", Kind::Str),
        attr("datacenters", "Datacenters", Kind::Strings),
        attr("id", "ID", Kind::Str),
        attr("name", "Name", Kind::Str),
        attr("namespace", "Namespace", Kind::Str),
        attr("node_pool", "NodePool", Kind::Str),
        attr("priority", "Priority", Kind::Int),
        attr("region", "Region", Kind::Str),
        attr("type", "Type", Kind::Str),
        attr("vault_namespace", "VaultNamespace", Kind::Str),
    ],
    blocks: &[
        many("affinity", "Affinities", &AFFINITY),
        many("constraint", "Constraints", &CONSTRAINT),
        labelled("group", "TaskGroups", &GROUP),
        one("meta", "Meta", Content::StringsOrAttribute),
        one("migrate", "Migrate", Content::Schema(&MIGRATE)),
        one("multiregion", "Multiregion", Content::Schema(&MULTIREGION)),
        one("parameterized", "ParameterizedJob", Content::Schema(&PARAMETERIZED)),
        one("periodic", "Periodic", Content::Schema(&PERIODIC)),
        one("reschedule", "Reschedule", Content::Schema(&RESCHEDULE)),
        labelled("secret", "~Secrets", &SECRET),
        many("spread", "Spreads", &SPREAD),
        labelled("task", "~Tasks", &TASK),
        one("ui", "UI", Content::Schema(&UI)),
        one("update", "Update", Content::Schema(&UPDATE)),
        one("vault", "~Vault", Content::Schema(&VAULT)),
    ],
    finish: Some(finish::job),
};

/// `constraint {}`, also in volume specifications.
pub static CONSTRAINT: Schema = Schema {
    name: "constraint",
    attributes: &[
        attr("attribute", "LTarget", Kind::Str),
        attr("distinct_hosts", "~distinct_hosts", Kind::Str),
        attr("distinct_property", "~distinct_property", Kind::Str),
        attr("is_not_set", "~ignored", Kind::Str),
        attr("is_set", "~ignored", Kind::Str),
        attr("operator", "Operand", Kind::Str),
        attr("regexp", "~regexp", Kind::Str),
        attr("semver", "~semver", Kind::Str),
        attr("set_contains", "~set_contains", Kind::Str),
        // The reference takes these two and ignores them (jobspec.md 3).
        attr("set_contains_all", "~ignored", Kind::Str),
        attr("set_contains_any", "~ignored", Kind::Str),
        attr("value", "RTarget", Kind::Str),
        attr("version", "~version", Kind::Str),
    ],
    blocks: &[],
    finish: Some(finish::constraint),
};

pub(super) static AFFINITY: Schema = Schema {
    name: "affinity",
    attributes: &[
        attr("attribute", "LTarget", Kind::Str),
        attr("operator", "Operand", Kind::Str),
        attr("regexp", "~regexp", Kind::Str),
        attr("semver", "~semver", Kind::Str),
        attr("set_contains", "~set_contains", Kind::Str),
        attr("set_contains_all", "~set_contains_all", Kind::Str),
        attr("set_contains_any", "~set_contains_any", Kind::Str),
        attr("value", "RTarget", Kind::Str),
        attr("version", "~version", Kind::Str),
        attr("weight", "Weight", Kind::SmallInt),
    ],
    blocks: &[],
    finish: Some(finish::constraint),
};

pub(super) static SPREAD: Schema = Schema {
    name: "spread",
    attributes: &[attr("attribute", "Attribute", Kind::Str), attr("weight", "Weight", Kind::SmallInt)],
    blocks: &[labelled("target", "SpreadTarget", &TARGET)],
    finish: None,
};

static TARGET: Schema = Schema {
    name: "target",
    attributes: &[attr("percent", "Percent", Kind::Byte), attr("value", "Value", Kind::Str)],
    blocks: &[],
    finish: Some(finish::spread_target),
};

pub(super) static UPDATE: Schema = Schema {
    name: "update",
    attributes: &[
        attr("auto_promote", "AutoPromote", Kind::Bool),
        attr("auto_revert", "AutoRevert", Kind::Bool),
        attr("canary", "Canary", Kind::Int),
        attr("health_check", "HealthCheck", Kind::Str),
        attr("healthy_deadline", "HealthyDeadline", Kind::Duration),
        attr("max_parallel", "MaxParallel", Kind::Int),
        attr("min_healthy_time", "MinHealthyTime", Kind::Duration),
        attr("progress_deadline", "ProgressDeadline", Kind::Duration),
        attr("stagger", "Stagger", Kind::Duration),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static MIGRATE: Schema = Schema {
    name: "migrate",
    attributes: &[
        attr("health_check", "HealthCheck", Kind::Str),
        attr("healthy_deadline", "HealthyDeadline", Kind::Duration),
        attr("max_parallel", "MaxParallel", Kind::Int),
        attr("min_healthy_time", "MinHealthyTime", Kind::Duration),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESCHEDULE: Schema = Schema {
    name: "reschedule",
    attributes: &[
        attr("attempts", "Attempts", Kind::Int),
        attr("delay", "Delay", Kind::Duration),
        attr("delay_function", "DelayFunction", Kind::Str),
        attr("interval", "Interval", Kind::Duration),
        attr("max_delay", "MaxDelay", Kind::Duration),
        attr("unlimited", "Unlimited", Kind::Bool),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESTART: Schema = Schema {
    name: "restart",
    attributes: &[
        attr("attempts", "Attempts", Kind::Int),
        attr("delay", "Delay", Kind::Duration),
        attr("interval", "Interval", Kind::Duration),
        attr("mode", "Mode", Kind::Str),
        attr("render_templates", "RenderTemplates", Kind::Bool),
    ],
    blocks: &[],
    finish: None,
};

static PERIODIC: Schema = Schema {
    name: "periodic",
    attributes: &[
        attr("cron", "Spec", Kind::Str),
        attr("crons", "Specs", Kind::Strings),
        attr("enabled", "Enabled", Kind::Bool),
        attr("prohibit_overlap", "ProhibitOverlap", Kind::Bool),
        attr("time_zone", "TimeZone", Kind::Str),
    ],
    blocks: &[],
    finish: Some(finish::periodic),
};

static PARAMETERIZED: Schema = Schema {
    name: "parameterized",
    attributes: &[
        attr("meta_optional", "MetaOptional", Kind::Strings),
        attr("meta_required", "MetaRequired", Kind::Strings),
        attr("payload", "Payload", Kind::Str),
    ],
    blocks: &[],
    finish: None,
};

static MULTIREGION: Schema = Schema {
    name: "multiregion",
    attributes: &[],
    blocks: &[
        one("strategy", "Strategy", Content::Schema(&MULTIREGION_STRATEGY)),
        labelled("region", "Regions", &MULTIREGION_REGION),
    ],
    finish: None,
};

static MULTIREGION_STRATEGY: Schema = Schema {
    name: "strategy",
    attributes: &[attr("max_parallel", "MaxParallel", Kind::Int), attr("on_failure", "OnFailure", Kind::Str)],
    blocks: &[],
    finish: None,
};

static MULTIREGION_REGION: Schema = Schema {
    name: "region",
    attributes: &[
        attr("count", "Count", Kind::Int),
        attr("datacenters", "Datacenters", Kind::Strings),
        attr("node_pool", "NodePool", Kind::Str),
    ],
    blocks: &[one("meta", "Meta", Content::StringsOrAttribute)],
    finish: None,
};

static UI: Schema = Schema {
    name: "ui",
    attributes: &[attr("description", "Description", Kind::Str)],
    blocks: &[many("link", "Links", &UI_LINK)],
    finish: None,
};

static UI_LINK: Schema = Schema {
    name: "link",
    attributes: &[attr("label", "Label", Kind::Str), attr("url", "URL", Kind::Str)],
    blocks: &[],
    finish: None,
};
