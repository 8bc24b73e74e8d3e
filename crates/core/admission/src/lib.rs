//! Admission of jobs: the refusal of invalid jobs before they are stored, with all problems in one response. The
//! servers add the checks that need the state (namespaces, node pools, registered volumes).
//!
//! Problems are data: a path in the job, a code and a sentence ([`Problem`]). Their texts nest as API clients expect,
//! `Task group g validation failed: 1 error occurred: ...`. [`Problems`] keeps that nesting, and responses render it.
//!
//! Rules: docs/reference/jobspec.md, section 6, docs/reference/storage.md, sections 1.1 and 4.2. Pure.

mod blocks;
mod group;
#[cfg(test)]
mod messages;
mod network;
mod policies;
mod problem;
mod service;
mod targets;
mod task;
mod template;
mod unheeded;
mod volume;
mod warnings;

pub use problem::{Problem, ProblemCode, Problems};
pub use template::{keep_origin, update};

use self::problem::{Findings, ProblemCode as Code};
use self::targets::{Place, affinities, constraints, spreads};
use caravan_api::{JobPath, JobProblem, Misfits, Part, Severity};
use caravan_types::job::{Job, JobType};
use std::collections::HashMap;

/// The highest priority of a job.
const MAX_PRIORITY: i64 = 100;
/// The maximum length of the description for the web page, in characters.
const MAX_DESCRIPTION: usize = 1000;
/// The maximum number of allocations of one job.
const MAX_COUNT: u64 = 50_000;

/// The verdict on a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The reasons to refuse the job.
    pub errors: Problems,
    /// The settings that work but deserve attention.
    pub warnings: Problems,
}

impl Verdict {
    /// Returns all errors as one text, in the form that clients of Nomad expect.
    #[must_use]
    pub fn refusal(&self) -> String {
        joined(&self.errors.texts())
    }

    /// Returns all warnings as one text (docs/reference/http-api.md, section 3.1).
    #[must_use]
    pub fn warning(&self) -> String {
        joined_warnings(&self.warnings.texts())
    }

    /// Returns errors, then warnings, in the form of responses.
    #[must_use]
    pub fn to_api(&self) -> Vec<JobProblem> {
        let mut all = self.errors.to_api(Severity::Error);
        all.extend(self.warnings.to_api(Severity::Warning));
        all
    }
}

/// Checks a job with all defaults filled in.
#[must_use]
pub fn check(job: &Job) -> Verdict {
    check_all(job, Misfits::default())
}

/// Checks a job that did not convert completely ([`api::fit`]). Conversion errors are reported under the path of
/// their setting.
#[must_use]
pub fn check_all(job: &Job, mut misfits: Misfits) -> Verdict {
    let (mut errors, mut warnings) = (Findings::default(), Findings::default());
    let mut of_groups: Vec<Misfits> =
        (0..job.task_groups.len()).map(|index| misfits.of_group(index)).collect();
    names(job, &mut errors);
    errors.misfits(misfits.take(Part::Kind));
    if job.datacenters.is_empty() {
        errors.add(Code::Missing, "Datacenters", "Missing job datacenters");
    } else if let Some(at) = job.datacenters.iter().position(String::is_empty) {
        let path = JobPath::root().field("Datacenters").index(at);
        errors.add_at(Code::Missing, path, "Job datacenter must be non-empty string");
    }
    constraints(&job.constraints, Place::Group, &mut errors);
    by_type(job, &mut errors);
    if let Some(ui) = &job.ui
        && ui.description.chars().count() > MAX_DESCRIPTION
    {
        let text = format!("UI description must be under {MAX_DESCRIPTION} characters");
        errors.add(Code::AboveMaximum, "UI.Description", text);
    }
    template::check(job, &mut errors);
    groups(job, &mut of_groups, &mut errors, &mut warnings);
    volume::between_groups(job, &mut errors);
    errors.misfits(misfits.rest());
    if job.multiregion.is_some() {
        errors.add(Code::Unsupported, "Multiregion", "Multiregion jobs are unlicensed.");
    }
    if job.priority < 1 || job.priority > MAX_PRIORITY {
        let code = if job.priority < 1 { Code::BelowMinimum } else { Code::AboveMaximum };
        errors.add(code, "Priority", format!("job priority must be between [1, {MAX_PRIORITY}]"));
    }
    let total: u64 = job.task_groups.iter().map(|g| u64::from(g.count)).sum();
    if total > MAX_COUNT {
        let text = format!("total count was greater than configured job_max_count: {total} > {MAX_COUNT}");
        let path = largest(job).map_or_else(JobPath::root, |at| JobPath::group(at).field("Count"));
        errors.add_at(Code::AboveMaximum, path, text);
    }
    warnings::of_job(job, &mut warnings);
    Verdict { errors: errors.found, warnings: warnings.found }
}

fn names(job: &Job, errors: &mut Findings) {
    if job.id.is_empty() {
        errors.add(Code::Missing, "ID", "Missing job ID");
    }
    if job.id.as_str().contains(' ') {
        errors.add(Code::InvalidName, "ID", "Job ID contains a space");
    }
    if job.id.as_str().contains('\0') {
        errors.add(Code::InvalidName, "ID", "Job ID contains a null character");
    }
    if job.name.is_empty() {
        errors.add(Code::Missing, "Name", "Missing job name");
    }
    if job.region.is_empty() {
        errors.add(Code::Missing, "Region", "Missing job region");
    }
    if job.namespace.is_empty() {
        errors.add(Code::Missing, "Namespace", "Job must be in a namespace");
    }
}

fn groups(job: &Job, misfits: &mut [Misfits], errors: &mut Findings, warnings: &mut Findings) {
    if job.task_groups.is_empty() {
        errors.add(Code::Missing, "TaskGroups", "Missing job task groups");
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for ((index, group), misfits) in job.task_groups.iter().enumerate().zip(misfits) {
        let path = JobPath::group(index);
        let name = path.clone().field("Name");
        if group.name.is_empty() {
            errors.add_at(Code::Missing, name, format!("Job task group {} missing name", index + 1));
        } else if let Some(first) = names.insert(&group.name, index + 1) {
            let text = format!("Job task group {} redefines '{}' from group {first}", index + 1, group.name);
            errors.add_at(Code::Duplicate, name, text);
        }
        let (mut found, mut more) = (Findings::at(path.clone()), Findings::at(path));
        group::check(job, group, std::mem::take(misfits), &mut found, &mut more);
        errors.nest(format!("Task group {} validation failed: ", group.name), found);
        warnings.found.append(more.found);
    }
}

/// Returns the number of the group with the most allocations.
fn largest(job: &Job) -> Option<usize> {
    job.task_groups.iter().enumerate().max_by_key(|(_, group)| group.count).map(|(at, _)| at)
}

/// Checks blocks that a type of job may not have (docs/reference/jobspec.md, section 5).
fn by_type(job: &Job, errors: &mut Findings) {
    if job.kind == JobType::System {
        if let Some(path) = first_affinity(job) {
            errors.add_at(Code::NotForJobType, path, "System jobs may not have an affinity block");
        }
        let spread = job.task_groups.iter().position(|group| !group.spreads.is_empty());
        let spread = match job.spreads.is_empty() {
            true => spread.map(JobPath::group),
            false => Some(JobPath::root()),
        };
        if let Some(path) = spread {
            let path = path.field("Spreads").index(0);
            errors.add_at(Code::NotForJobType, path, "System jobs may not have a spread block");
        }
        for (at, group) in job.task_groups.iter().enumerate().filter(|(_, group)| group.count > 1) {
            let text = format!(
                "Job task group {} has count {}. Count cannot exceed 1 with system scheduler",
                group.name, group.count
            );
            errors.add_at(Code::NotForJobType, JobPath::group(at).field("Count"), text);
        }
    } else {
        affinities(&job.affinities, errors);
        spreads(&job.spreads, errors);
    }
    if !job.kind.is_batch() {
        if job.periodic.is_some() {
            let text = "Periodic can only be used with \"batch\" or \"sysbatch\" scheduler";
            errors.add(Code::NotForJobType, "Periodic", text);
        }
        if job.parameterized_job.is_some() && !job.dispatched {
            let text = "Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler";
            errors.add(Code::NotForJobType, "ParameterizedJob", text);
        }
    }
}

/// Returns the path of the first affinity of a job, its groups and their tasks.
fn first_affinity(job: &Job) -> Option<JobPath> {
    let own = (!job.affinities.is_empty()).then(JobPath::root);
    let of_groups = || {
        let group = job.task_groups.iter().position(|group| !group.affinities.is_empty())?;
        Some(JobPath::group(group))
    };
    let of_tasks = || {
        job.task_groups.iter().enumerate().find_map(|(at, group)| {
            let task = group.tasks.iter().position(|task| !task.affinities.is_empty())?;
            Some(JobPath::group(at).field("Tasks").index(task))
        })
    };
    let block = own.or_else(of_groups).or_else(of_tasks)?;
    Some(block.field("Affinities").index(0))
}

/// Joins several errors into one text, in the format that Nomad's clients expect.
#[must_use]
pub fn joined(errors: &[String]) -> String {
    let noun = if errors.len() == 1 { "error" } else { "errors" };
    let lines: String = errors.iter().map(|e| format!("\t* {e}\n")).collect();
    format!("{} {noun} occurred:\n{lines}\n", errors.len())
}

/// Joins several warnings into one text (docs/reference/http-api.md, section 3.1).
#[must_use]
pub fn joined_warnings(warnings: &[String]) -> String {
    match warnings {
        [] => String::new(),
        [one] => format!("1 warning:\n\n* {one}"),
        many => {
            let lines: Vec<_> = many.iter().map(|w| format!("* {w}")).collect();
            format!("{} warnings:\n\n{}", many.len(), lines.join("\n"))
        }
    }
}

/// Reports an unknown word in a text that clients recognize: only the suggestion of a similar known word is added.
fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    format!("{what} \"{word}\"{}", caravan_types::words::suggestion(word, known.iter().copied()))
}

/// Reports an unknown word with all known words.
fn one_of(what: &str, word: &str, known: &[&str]) -> String {
    let near = caravan_types::words::suggestion(word, known.iter().copied());
    format!("{what} \"{word}\" (known: {}).{near}", known.join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use caravan_types::job::{
        EphemeralDisk, Resources, RestartPolicy, Task, TaskGroup, VolumeMount, VolumeRequest, VolumeType,
    };
    use caravan_types::volume::{AccessMode, AttachmentMode};
    use caravan_types::{Nanos, job};

    pub(crate) fn minimal() -> Job {
        Job {
            id: "web".into(),
            name: "web".into(),
            region: "global".into(),
            namespace: "default".into(),
            node_pool: "default".into(),
            priority: 50,
            datacenters: vec!["*".into()],
            task_groups: vec![TaskGroup {
                name: "g".into(),
                count: 1,
                restart_policy: Some(RestartPolicy {
                    attempts: 2,
                    interval: Nanos::from_secs(1800),
                    delay: Nanos::from_secs(15),
                    ..Default::default()
                }),
                ephemeral_disk: Some(EphemeralDisk::default()),
                tasks: vec![Task {
                    name: "t".into(),
                    driver: "raw_exec".into(),
                    resources: Resources { cpu: 100, memory_mb: 300, ..Default::default() },
                    kill_timeout: Nanos::from_secs(5),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn errors_of(change: impl FnOnce(&mut Job)) -> String {
        let mut job = minimal();
        change(&mut job);
        check(&job).refusal()
    }

    #[test]
    fn a_minimal_job_passes() {
        assert_eq!(check(&minimal()), Verdict::default());
    }

    #[test]
    fn errors_nest_like_the_references() {
        let mut job = minimal();
        job.id = "a b".into();
        job.task_groups[0].tasks[0].driver = String::new();
        assert_eq!(
            check(&job).refusal(),
            "2 errors occurred:\n\t* Job ID contains a space\n\t* Task group g validation failed: 1 error occurred:\n\t* Task t validation failed: 1 error occurred:\n\t* Missing task driver\n\n\n\n\n\n"
        );
    }

    #[test]
    fn a_second_writer_by_count_is_refused() {
        let text = errors_of(|job| {
            job.task_groups[0].count = 2;
            job.task_groups[0].volumes.insert("data".into(), csi_request());
        });
        assert!(
            text.contains("volume with single-node-writer access mode allows only one reader or writer"),
            "{text}"
        );
    }

    #[test]
    fn bidirectional_needs_write_access() {
        let text = errors_of(|job| {
            let group = &mut job.task_groups[0];
            group.volumes.insert("data".into(), VolumeRequest { read_only: true, ..csi_request() });
            group.tasks[0].volume_mounts.push(VolumeMount {
                volume: "data".into(),
                destination: "/data".into(),
                propagation_mode: job::PropagationMode::Bidirectional,
                ..Default::default()
            });
        });
        assert!(text.contains("bidirectional"), "{text}");
    }

    #[test]
    fn undefined_volumes_are_named() {
        let text = errors_of(|job| {
            job.task_groups[0].tasks[0].volume_mounts.push(VolumeMount {
                volume: "nope".into(),
                destination: "/x".into(),
                ..Default::default()
            });
        });
        assert!(text.contains("Volume Mount (0) references undefined volume nope"), "{text}");
    }

    #[test]
    fn owners_and_modes_that_cannot_be_are_named() {
        let with = |request: VolumeRequest| {
            errors_of(|job| {
                job.task_groups[0].volumes.insert("data".into(), request);
            })
        };
        let wish = |user: &str, group: &str, mode: &str| VolumeRequest {
            user: user.into(),
            group: group.into(),
            mode: mode.into(),
            ..csi_request()
        };
        assert_eq!(with(wish("www-data", "33", "2770")), with(csi_request()));
        for (request, words) in [
            (wish("", "", "rwx"), "volume has an invalid mode \"rwx\": it must be octal and at most 7777"),
            (wish("", "", "17777"), "volume has an invalid mode \"17777\""),
            (wish("", "", "+750"), "volume has an invalid mode \"+750\""),
            (wish("a:b", "", ""), "volume has an invalid user \"a:b\": it must be one name or number"),
            (wish("", "a b", ""), "volume has an invalid group \"a b\""),
            (
                VolumeRequest { read_only: true, ..wish("a", "", "") },
                "read-only volumes cannot have a user or mode",
            ),
            (
                VolumeRequest { kind: VolumeType::Host, ..wish("", "a", "") },
                "host volumes cannot have a user, group or mode",
            ),
        ] {
            let text = with(request);
            assert!(text.contains(words), "{text}");
        }
    }

    fn csi_request() -> VolumeRequest {
        VolumeRequest {
            name: "data".into(),
            source: "data".into(),
            access_mode: AccessMode::SingleNodeWriter,
            attachment_mode: AttachmentMode::FileSystem,
            ..Default::default()
        }
    }
}
