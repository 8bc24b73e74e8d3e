//! The tables of jobs and of the blocks directly within them.

use super::finish;
use super::group::GROUP;
use super::task::{SECRET, TASK, VAULT};
use crate::schema::{Content, Kind, Schema, attr, labelled, many, one, plain, specified};
use caravan_lang::constraint::{AFFINITY_OPERATORS, OPERATORS};

/// `job "name" {}`.
pub static JOB: Schema = Schema {
    name: "job",
    attributes: &[
        attr("all_at_once", "AllAtOnce", Kind::Bool)
            .doc("Place all groups or none of them.")
            .default("false"),
        attr("consul_namespace", "ConsulNamespace", Kind::Str)
            .doc("Namespace in Consul; set by `-consul-namespace`."),
        attr("datacenters", "Datacenters", Kind::Strings)
            .doc("Datacenters to run in; globs such as `eu-*` are allowed.")
            .default("[\"*\"]"),
        attr("id", "ID", Kind::Str).doc("Identifier within the namespace.").default("the label"),
        attr("name", "Name", Kind::Str).doc("Name shown to people.").default("the label"),
        attr("namespace", "Namespace", Kind::Str)
            .doc("Namespace that the job belongs to.")
            .default("default"),
        attr("node_pool", "NodePool", Kind::Str)
            .doc("Pool of nodes to run on; `all` is every node.")
            .default("that of the namespace"),
        attr("priority", "Priority", Kind::Int).doc("From 1 to 100; higher runs first.").default("50"),
        attr("region", "Region", Kind::Str)
            .doc("Region to run in; `global` is the region of the agent that is asked.")
            .default("global"),
        attr("type", "Type", Kind::Str)
            .doc("How the job is scheduled.")
            .default("service")
            .values(caravan_types::job::JobType::WORDS),
        attr("vault_namespace", "VaultNamespace", Kind::Str)
            .doc("Namespace in Vault; set by `-vault-namespace`."),
    ],
    blocks: &[
        many("affinity", "Affinities", &AFFINITY).doc("Prefers nodes."),
        many("constraint", "Constraints", &CONSTRAINT).doc("Restricts nodes."),
        labelled("group", "TaskGroups", &GROUP).doc("Tasks that run together on one node."),
        one("meta", "Meta", Content::StringsOrAttribute).doc("Meta data: names with strings."),
        one("migrate", "Migrate", Content::Schema(&MIGRATE)).doc("How a drain moves allocations."),
        one("multiregion", "Multiregion", Content::Schema(&MULTIREGION)).doc("Several regions."),
        one("parameterized", "ParameterizedJob", Content::Schema(&PARAMETERIZED))
            .doc("The job runs when it is dispatched."),
        one("periodic", "Periodic", Content::Schema(&PERIODIC)).doc("The job runs at given times."),
        one("reschedule", "Reschedule", Content::Schema(&RESCHEDULE))
            .doc("What happens to failed allocations."),
        labelled("secret", "~Secrets", &SECRET).doc("Secrets fetched before the task starts."),
        many("spread", "Spreads", &SPREAD).doc("Spreads allocations over values of an attribute."),
        labelled("task", "~Tasks", &TASK).doc("A program that a driver runs."),
        one("ui", "UI", Content::Schema(&UI)).doc("What the page of the job shows."),
        one("update", "Update", Content::Schema(&UPDATE)).doc("How new versions replace old ones."),
        one("vault", "~Vault", Content::Schema(&VAULT)).doc("Access to Vault."),
    ],
    finish: Some(finish::job),
};

/// `constraint {}`, also in volume specifications.
pub static CONSTRAINT: Schema = Schema {
    name: "constraint",
    attributes: &[
        specified("attribute", "LTarget", Kind::Str).doc("What is compared, such as `${attr.kernel.name}`."),
        specified("distinct_hosts", "~distinct_hosts", Kind::Bool)
            .doc("Place each allocation on another node."),
        specified("distinct_property", "~distinct_property", Kind::Str)
            .doc("Attribute whose values allocations must not share; `value` says how many may."),
        specified("is_not_set", "~ignored", Kind::Str)
            .doc("Has no effect in constraints.")
            .deprecated("write `operator = \"is_not_set\"`"),
        specified("is_set", "~ignored", Kind::Str)
            .doc("Has no effect in constraints.")
            .deprecated("write `operator = \"is_set\"`"),
        specified("operator", "Operand", Kind::Str)
            .doc("How both sides are compared.")
            .default("=")
            .values(&OPERATORS),
        specified("regexp", "~regexp", Kind::Str).doc("Short for operator `regexp` with this value."),
        specified("semver", "~semver", Kind::Str).doc("Short for operator `semver` with this value."),
        specified("set_contains", "~set_contains", Kind::Str)
            .doc("Short for operator `set_contains` with this value."),
        // Nomad accepts these two arguments and ignores them (docs/reference/jobspec.md, section 3).
        specified("set_contains_all", "~ignored", Kind::Str)
            .doc("Has no effect in constraints.")
            .deprecated("write `operator = \"set_contains_all\"`"),
        specified("set_contains_any", "~ignored", Kind::Str)
            .doc("Has no effect in constraints.")
            .deprecated("write `operator = \"set_contains_any\"`"),
        specified("value", "RTarget", Kind::Str).doc("What it is compared with."),
        specified("version", "~version", Kind::Str).doc("Short for operator `version` with this value."),
    ],
    blocks: &[],
    finish: Some(finish::constraint),
};

pub(super) static AFFINITY: Schema = Schema {
    name: "affinity",
    attributes: &[
        specified("attribute", "LTarget", Kind::Str).doc("What is compared, such as `${node.datacenter}`."),
        specified("operator", "Operand", Kind::Str)
            .doc("How both sides are compared.")
            .default("=")
            .values(AFFINITY_OPERATORS),
        specified("regexp", "~regexp", Kind::Str).doc("Short for operator `regexp` with this value."),
        specified("semver", "~semver", Kind::Str).doc("Short for operator `semver` with this value."),
        specified("set_contains", "~set_contains", Kind::Str)
            .doc("Short for operator `set_contains` with this value."),
        specified("set_contains_all", "~set_contains_all", Kind::Str)
            .doc("Short for operator `set_contains_all` with this value."),
        specified("set_contains_any", "~set_contains_any", Kind::Str)
            .doc("Short for operator `set_contains_any` with this value."),
        specified("value", "RTarget", Kind::Str).doc("What it is compared with."),
        specified("version", "~version", Kind::Str).doc("Short for operator `version` with this value."),
        specified("weight", "Weight", Kind::LowByte)
            .doc("From -100 to 100, not 0; negative ones push away.")
            .default("50"),
    ],
    blocks: &[],
    finish: Some(finish::constraint),
};

pub(super) static SPREAD: Schema = Schema {
    name: "spread",
    attributes: &[
        plain("attribute", "Attribute", Kind::Str)
            .doc("Node attribute over whose values allocations are spread."),
        attr("weight", "Weight", Kind::SmallInt)
            .doc("From 1 to 100, against other spreads and affinities.")
            .default("50"),
    ],
    blocks: &[labelled("target", "SpreadTarget", &TARGET).doc("Share of one value.")],
    finish: None,
};

static TARGET: Schema = Schema {
    name: "target",
    attributes: &[
        plain("percent", "Percent", Kind::Byte).doc("Share of the allocations, from 0 to 100."),
        plain("value", "Value", Kind::Str).doc("Value of the attribute.").default("the label"),
    ],
    blocks: &[],
    finish: Some(finish::spread_target),
};

pub(super) static UPDATE: Schema = Schema {
    name: "update",
    attributes: &[
        attr("auto_promote", "AutoPromote", Kind::Bool)
            .doc("Promote canaries once all are healthy.")
            .default("false"),
        attr("auto_revert", "AutoRevert", Kind::Bool)
            .doc("Return to the last stable version when a deployment fails.")
            .default("false"),
        attr("canary", "Canary", Kind::Int)
            .doc("New allocations to run next to the old allocations until the deployment is promoted.")
            .default("0"),
        attr("health_check", "HealthCheck", Kind::Str)
            .doc("What makes an allocation healthy.")
            .default("checks")
            .values(&["checks", "task_states", "manual"]),
        attr("healthy_deadline", "HealthyDeadline", Kind::Duration)
            .doc("Unhealthy if not healthy after this time.")
            .default("5m"),
        attr("max_parallel", "MaxParallel", Kind::Int)
            .doc("Allocations replaced at the same time; 0 replaces all without a deployment.")
            .default("1"),
        attr("min_healthy_time", "MinHealthyTime", Kind::Duration)
            .doc("How long an allocation must be healthy to count.")
            .default("10s"),
        attr("progress_deadline", "ProgressDeadline", Kind::Duration)
            .doc("The deployment fails without progress for this long; 0 fails at the first unhealthy one.")
            .default("10m"),
        attr("stagger", "Stagger", Kind::Duration)
            .doc("Pause between allocations of system jobs and of drains.")
            .default("30s"),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static MIGRATE: Schema = Schema {
    name: "migrate",
    attributes: &[
        attr("health_check", "HealthCheck", Kind::Str)
            .doc("What makes an allocation healthy.")
            .default("checks")
            .values(&["checks", "task_states"]),
        attr("healthy_deadline", "HealthyDeadline", Kind::Duration)
            .doc("Unhealthy if not healthy after this time.")
            .default("5m"),
        attr("max_parallel", "MaxParallel", Kind::Int)
            .doc("Allocations that a drain moves at the same time.")
            .default("1"),
        attr("min_healthy_time", "MinHealthyTime", Kind::Duration)
            .doc("How long an allocation must be healthy to count.")
            .default("10s"),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESCHEDULE: Schema = Schema {
    name: "reschedule",
    attributes: &[
        attr("attempts", "Attempts", Kind::Int).doc("Tries within the interval.").default("by job type"),
        attr("delay", "Delay", Kind::Duration).doc("Pause before the first try.").default("by job type"),
        attr("delay_function", "DelayFunction", Kind::Str)
            .doc("How the pause grows.")
            .default("by job type")
            .values(&["constant", "exponential", "fibonacci"]),
        attr("interval", "Interval", Kind::Duration)
            .doc("Time in which tries are counted.")
            .default("by job type"),
        attr("max_delay", "MaxDelay", Kind::Duration).doc("Longest pause.").default("1h"),
        attr("unlimited", "Unlimited", Kind::Bool).doc("Try for ever.").default("by job type"),
    ],
    blocks: &[],
    finish: None,
};

pub(super) static RESTART: Schema = Schema {
    name: "restart",
    attributes: &[
        attr("attempts", "Attempts", Kind::Int).doc("Restarts within the interval.").default("by job type"),
        attr("delay", "Delay", Kind::Duration).doc("Pause before a restart.").default("15s"),
        attr("interval", "Interval", Kind::Duration)
            .doc("Time in which restarts are counted.")
            .default("by job type"),
        attr("mode", "Mode", Kind::Str)
            .doc("What to do when the attempts are used up.")
            .default("fail")
            .values(&["fail", "delay"]),
        attr("render_templates", "RenderTemplates", Kind::Bool)
            .doc("Render templates again before each restart.")
            .default("false"),
    ],
    blocks: &[],
    finish: None,
};

static PERIODIC: Schema = Schema {
    name: "periodic",
    attributes: &[
        attr("cron", "Spec", Kind::Str).doc("Times in cron syntax.").deprecated("use `crons`"),
        attr("crons", "Specs", Kind::Strings).doc("Times in cron syntax; each entry starts separate runs."),
        attr("enabled", "Enabled", Kind::Bool).doc("Whether runs are started.").default("true"),
        attr("prohibit_overlap", "ProhibitOverlap", Kind::Bool)
            .doc("Start no run while an earlier one is under way.")
            .default("false"),
        attr("time_zone", "TimeZone", Kind::Str)
            .doc("Time zone of the cron expressions, such as `Europe/Rome`.")
            .default("UTC"),
    ],
    blocks: &[],
    finish: Some(finish::periodic),
};

static PARAMETERIZED: Schema = Schema {
    name: "parameterized",
    attributes: &[
        attr("meta_optional", "MetaOptional", Kind::Strings)
            .doc("Keys of meta data that a dispatch may give."),
        attr("meta_required", "MetaRequired", Kind::Strings)
            .doc("Keys of meta data that a dispatch must give."),
        plain("payload", "Payload", Kind::Str)
            .doc("Whether a dispatch has a payload.")
            .default("optional")
            .values(&["optional", "required", "forbidden"]),
    ],
    blocks: &[],
    finish: None,
};

static MULTIREGION: Schema = Schema {
    name: "multiregion",
    attributes: &[],
    blocks: &[
        one("strategy", "Strategy", Content::Schema(&MULTIREGION_STRATEGY)).doc("How regions are deployed."),
        labelled("region", "Regions", &MULTIREGION_REGION).doc("One region."),
    ],
    finish: None,
};

static MULTIREGION_STRATEGY: Schema = Schema {
    name: "strategy",
    attributes: &[
        attr("max_parallel", "MaxParallel", Kind::Int).doc("Regions deployed at the same time."),
        attr("on_failure", "OnFailure", Kind::Str).doc("What happens in other regions when one fails."),
    ],
    blocks: &[],
    finish: None,
};

static MULTIREGION_REGION: Schema = Schema {
    name: "region",
    attributes: &[
        attr("count", "Count", Kind::Int).doc("Count of groups that set none."),
        attr("datacenters", "Datacenters", Kind::Strings).doc("Datacenters of this region."),
        plain("node_pool", "NodePool", Kind::Str).doc("Node pool in this region."),
    ],
    blocks: &[one("meta", "Meta", Content::Strings).doc("Meta data: names with strings.")],
    finish: None,
};

static UI: Schema = Schema {
    name: "ui",
    attributes: &[plain("description", "Description", Kind::Str)
        .doc("Markdown shown on the page of the job, at most 1000 characters.")],
    blocks: &[many("link", "Links", &UI_LINK).doc("A link.")],
    finish: None,
};

static UI_LINK: Schema = Schema {
    name: "link",
    attributes: &[
        plain("label", "Label", Kind::Str).doc("Text of the link."),
        plain("url", "URL", Kind::Str).doc("Where it leads."),
    ],
    blocks: &[],
    finish: None,
};
