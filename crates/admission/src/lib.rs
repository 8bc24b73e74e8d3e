//! Admission of jobs: refuses invalid jobs before they are stored, with all problems in one answer. The servers add the
//! checks that need the state (namespaces, node pools, registered volumes).
//!
//! The texts nest as API clients expect: `Task group g validation failed: 1 error occurred: ...`. The command line
//! parses them back into single problems with their paths, from servers of Caravan and of Nomad.
//!
//! Rules: docs/reference/jobspec.md, section 6, docs/reference/storage.md, sections 1.1 and 4.2. Pure.

mod blocks;
mod group;
#[cfg(test)]
mod messages;
mod network;
mod policies;
mod service;
mod targets;
mod task;
mod template;
mod unheeded;
mod volume;
mod warnings;

pub use template::{keep_origin, update};

use self::targets::{Place, affinities, constraints, spreads};
use caravan_types::api::{Misfits, Part};
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
    /// The reasons of the refusal; empty if the job is accepted.
    pub errors: Vec<String>,
    /// Warnings about an accepted job.
    pub warnings: Vec<String>,
}

/// Checks a job with all defaults filled in.
#[must_use]
pub fn check(job: &Job) -> Verdict {
    check_all(job, Misfits::default())
}

/// Checks a job with values that could not be converted ([`api::fit`]). Each misfit is reported with the object that it
/// belongs to.
#[must_use]
pub fn check_all(job: &Job, mut misfits: Misfits) -> Verdict {
    let mut verdict = Verdict::default();
    let mut of_groups: Vec<Misfits> =
        (0..job.task_groups.len()).map(|index| misfits.of_group(index)).collect();
    let errors = &mut verdict.errors;
    if job.id.is_empty() {
        errors.push("Missing job ID".into());
    }
    if job.id.as_str().contains(' ') {
        errors.push("Job ID contains a space".into());
    }
    if job.id.as_str().contains('\0') {
        errors.push("Job ID contains a null character".into());
    }
    if job.name.is_empty() {
        errors.push("Missing job name".into());
    }
    if job.region.is_empty() {
        errors.push("Missing job region".into());
    }
    if job.namespace.is_empty() {
        errors.push("Job must be in a namespace".into());
    }
    errors.extend(misfits.take(Part::Kind));
    if job.datacenters.is_empty() {
        errors.push("Missing job datacenters".into());
    } else if job.datacenters.iter().any(String::is_empty) {
        errors.push("Job datacenter must be non-empty string".into());
    }
    constraints(&job.constraints, Place::Group, errors);
    by_type(job, errors);
    if let Some(ui) = &job.ui
        && ui.description.chars().count() > MAX_DESCRIPTION
    {
        errors.push(format!("UI description must be under {MAX_DESCRIPTION} characters"));
    }
    template::check(job, errors);
    if job.task_groups.is_empty() {
        errors.push("Missing job task groups".into());
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (index, group) in job.task_groups.iter().enumerate() {
        if group.name.is_empty() {
            errors.push(format!("Job task group {} missing name", index + 1));
        } else if let Some(first) = names.insert(&group.name, index + 1) {
            errors.push(format!(
                "Job task group {} redefines '{}' from group {first}",
                index + 1,
                group.name
            ));
        }
        let (found, warnings) = group::check(job, group, std::mem::take(&mut of_groups[index]));
        if !found.is_empty() {
            errors.push(format!("Task group {} validation failed: {}", group.name, joined(&found)));
        }
        verdict.warnings.extend(warnings);
    }
    let errors = &mut verdict.errors;
    volume::between_groups(job, errors);
    errors.extend(misfits.rest());
    if job.multiregion.is_some() {
        errors.push("Multiregion jobs are unlicensed.".into());
    }
    if job.priority < 1 || job.priority > MAX_PRIORITY {
        errors.push(format!("job priority must be between [1, {MAX_PRIORITY}]"));
    }
    let total: u64 = job.task_groups.iter().map(|g| u64::from(g.count)).sum();
    if total > MAX_COUNT {
        errors.push(format!("total count was greater than configured job_max_count: {total} > {MAX_COUNT}"));
    }
    verdict.warnings.extend(warnings::of_job(job));
    verdict
}

/// Checks the restrictions of a job type (docs/reference/jobspec.md, section 5).
fn by_type(job: &Job, errors: &mut Vec<String>) {
    if job.kind == JobType::System {
        let groups = &job.task_groups;
        let tasks = || groups.iter().flat_map(|group| &group.tasks);
        let affine = !job.affinities.is_empty()
            || groups.iter().any(|group| !group.affinities.is_empty())
            || tasks().any(|task| !task.affinities.is_empty());
        if affine {
            errors.push("System jobs may not have an affinity block".into());
        }
        if !job.spreads.is_empty() || groups.iter().any(|group| !group.spreads.is_empty()) {
            errors.push("System jobs may not have a spread block".into());
        }
        for group in groups.iter().filter(|group| group.count > 1) {
            errors.push(format!(
                "Job task group {} has count {}. Count cannot exceed 1 with system scheduler",
                group.name, group.count
            ));
        }
    } else {
        affinities(&job.affinities, errors);
        spreads(&job.spreads, errors);
    }
    if !job.kind.is_batch() {
        if job.periodic.is_some() {
            errors.push("Periodic can only be used with \"batch\" or \"sysbatch\" scheduler".into());
        }
        if job.parameterized_job.is_some() && !job.dispatched {
            errors.push("Parameterized job can only be used with \"batch\" or \"sysbatch\" scheduler".into());
        }
    }
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

/// Reports an unknown word in a text that clients know: only the suggestion of a similar known word is
/// added.
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
        joined(&check(&job).errors)
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
            joined(&check(&job).errors),
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
