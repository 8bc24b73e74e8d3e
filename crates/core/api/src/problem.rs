//! Problems of a job as data: the place in the JSON that the client submitted, the kind of fault, and the sentence.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A place in the JSON of a job: `TaskGroups[0].Volumes["data"].AccessMode`. Empty for the job itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobPath(Vec<PathStep>);

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathStep {
    /// A field of an object, by the name that the API gives it.
    Field(Cow<'static, str>),
    /// An element of a list, from 0.
    Index(usize),
    /// An entry of a map whose keys users choose.
    Key(String),
}

impl JobPath {
    /// Returns the path of the job itself.
    #[must_use]
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Returns the path of a field, or of a field in a field: `Resources.CPU`. An empty name is `self`.
    #[must_use]
    pub fn field(mut self, names: &'static str) -> Self {
        self.0.extend(
            names.split('.').filter(|name| !name.is_empty()).map(|name| PathStep::Field(name.into())),
        );
        self
    }

    /// Returns the path of an element of a list.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(PathStep::Index(index));
        self
    }

    /// Returns the path of an entry of a map.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push(PathStep::Key(key.to_owned()));
        self
    }

    /// Returns the path of a group, by its number from 0.
    #[must_use]
    pub fn group(index: usize) -> Self {
        Self::root().field("TaskGroups").index(index)
    }

    /// Returns the steps from the job.
    #[must_use]
    pub fn steps(&self) -> &[PathStep] {
        &self.0
    }

    /// Returns the value at the path, if every step of the path exists.
    #[must_use]
    pub fn resolve<'v>(&self, job: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(job, |value, step| {
            let inner = match step {
                PathStep::Field(name) => value.get(name.as_ref()),
                PathStep::Index(index) => value.get(index),
                PathStep::Key(key) => value.get(key),
            };
            inner.filter(|inner| !inner.is_null())
        })
    }

    /// Returns the path of the same setting in the JSON of an [`api::Job`](super::Job) as a client wrote it.
    /// [`super::canonicalize`] copies settings of outer blocks to inner ones, and [`super::fit`] drops mounts that
    /// name no volume.
    #[must_use]
    pub fn written_in(&self, job: &Value) -> Self {
        let counted = self.with_dropped_mounts(job);
        std::iter::successors(Some(counted.clone()), Self::outer)
            .find(|path| path.resolve(job).is_some_and(|value| value != ""))
            .unwrap_or(counted)
    }

    /// Returns the path of the setting from which the setting at this path is inherited.
    fn outer(&self) -> Option<Self> {
        let name = |at: usize| match self.0.get(at) {
            Some(PathStep::Field(name)) => Some(name.as_ref()),
            _ => None,
        };
        // TaskGroups[i].Update, TaskGroups[i].Tasks[j].RestartPolicy, ….Checks[k].OnUpdate
        let (keep, renamed, rest) = match (name(0)?, name(2)?) {
            ("TaskGroups", "Update") => (0, "Update", 3),
            ("TaskGroups", "Migrate") => (0, "Migrate", 3),
            ("TaskGroups", "ReschedulePolicy") => (0, "Reschedule", 3),
            ("TaskGroups", "Tasks") if name(4) == Some("RestartPolicy") => (2, "RestartPolicy", 5),
            _ => {
                let checks = self
                    .0
                    .iter()
                    .position(|step| matches!(step, PathStep::Field(name) if name == "Checks"))?;
                match name(checks + 2)? {
                    "OnUpdate" => (checks, "OnUpdate", checks + 3),
                    "CheckRestart" => (checks, "CheckRestart", checks + 3),
                    _ => return None,
                }
            }
        };
        let mut out = self.0[..keep].to_vec();
        out.push(PathStep::Field(renamed.into()));
        out.extend_from_slice(&self.0[rest..]);
        Some(Self(out))
    }

    fn with_dropped_mounts(&self, json: &Value) -> Self {
        let mut out = self.clone();
        let list =
            out.0.iter().position(|step| matches!(step, PathStep::Field(name) if name == "VolumeMounts"));
        let Some(list) = list else { return out };
        let mounts = Self(out.0[..=list].to_vec());
        if let Some(PathStep::Index(index)) = out.0.get_mut(list + 1)
            && let Some(Value::Array(mounts)) = mounts.resolve(json)
        {
            let kept = mounts.iter().enumerate().filter(|(_, mount)| !mount["Volume"].is_null());
            *index = kept.map(|(at, _)| at).nth(*index).unwrap_or(*index);
        }
        out
    }
}

impl fmt::Display for JobPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Field(name) if at == 0 => f.write_str(name)?,
                PathStep::Field(name) => write!(f, ".{name}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Key(key) => write!(f, "[{}]", Value::from(key.as_str()))?,
            }
        }
        Ok(())
    }
}

/// The error for a text that is not the path of a value in a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not the path of a value in a job")]
pub struct InvalidPath {
    text: String,
}

impl FromStr for JobPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        parse(text).ok_or_else(|| InvalidPath { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<JobPath> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let mut keys = serde_json::Deserializer::from_str(inside).into_iter::<Value>();
            let step = match keys.next()?.ok()? {
                Value::String(key) => PathStep::Key(key),
                Value::Number(index) => PathStep::Index(usize::try_from(index.as_u64()?).ok()?),
                _ => return None,
            };
            steps.push(step);
            rest = inside.get(keys.byte_offset()..)?.strip_prefix(']')?;
        } else {
            let name = if steps.is_empty() { rest } else { rest.strip_prefix('.')? };
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            steps.push(PathStep::Field(name[..end].to_owned().into()));
            rest = &name[end..];
        }
    }
    Some(JobPath(steps))
}

impl Serialize for JobPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for JobPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The header of refusals that contains an [`ErrorReason`].
pub const REASON_HEADER: &str = "x-caravan-reason";

/// The reason for the failure of a request, if clients act on it. Answers name the reason next to their sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorReason {
    /// The servers have no leader at the moment.
    NoLeader,
    /// The modify index of the object differs from the index that the request enforces.
    ModifyIndex,
    /// Allocations use the volume.
    VolumeInUse,
    /// The snapshot needs the key of another cluster.
    SnapshotKey,
}

impl ErrorReason {
    /// All reasons.
    pub const ALL: &'static [Self] =
        &[Self::NoLeader, Self::ModifyIndex, Self::VolumeInUse, Self::SnapshotKey];

    /// Returns the name in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoLeader => "no_leader",
            Self::ModifyIndex => "modify_index",
            Self::VolumeInUse => "volume_in_use",
            Self::SnapshotKey => "snapshot_key",
        }
    }

    /// Returns the reason with a name; `None` for names of newer releases.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
    }
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The job is refused.
    #[default]
    Error,
    /// The job is accepted.
    Warning,
}

/// A problem of a job, as in `CaravanProblems` of answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct JobProblem {
    /// The setting that is wrong; a setting that is missing has its path too.
    pub path: JobPath,
    /// The kind of fault in snake case, such as `below_minimum`. Newer servers may send codes that a client does not
    /// have.
    pub code: String,
    /// The sentence for users.
    pub text: String,
    /// The severity of the problem.
    pub severity: Severity,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, decode};
    use proptest::prelude::*;

    fn path(text: &str) -> JobPath {
        text.parse().unwrap()
    }

    #[test]
    fn paths_are_written_and_read() {
        let cpu = JobPath::group(0).field("Tasks").index(2).field("Resources.CPU");
        assert_eq!(cpu.to_string(), "TaskGroups[0].Tasks[2].Resources.CPU");
        let volume = JobPath::group(1).field("Volumes").key("a\"].b").field("Source");
        assert_eq!(volume.to_string(), r#"TaskGroups[1].Volumes["a\"].b"].Source"#);
        for each in [cpu, volume, JobPath::root(), JobPath::root().field("")] {
            assert_eq!(path(&each.to_string()), each);
        }
        for wrong in [".", "a.", "a[", "a[x]", "a[1", "a[-1]", "a[null]", "a..b", "a[1]b", ".a"] {
            assert!(wrong.parse::<JobPath>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn inherited_settings_are_found_where_they_were_written() {
        let job: Job = decode(
            br#"{"Update": {"Canary": 1, "MaxParallel": 2}, "Reschedule": {"Attempts": 1}, "TaskGroups": [
                {"Update": {"MaxParallel": 3}, "RestartPolicy": {"Mode": "x"},
                 "Services": [{"OnUpdate": "x", "Checks": [{"Type": "tcp"}]}],
                 "Tasks": [{"VolumeMounts": [{"Destination": "/a"}, {"Volume": "b"}]}]}]}"#,
        )
        .unwrap();
        let job = serde_json::to_value(job).unwrap();
        for (kept, written) in [
            ("TaskGroups[0].Update.Canary", "Update.Canary"),
            ("TaskGroups[0].Update.MaxParallel", "TaskGroups[0].Update.MaxParallel"),
            ("TaskGroups[0].ReschedulePolicy.Attempts", "Reschedule.Attempts"),
            ("TaskGroups[0].Tasks[0].RestartPolicy.Mode", "TaskGroups[0].RestartPolicy.Mode"),
            (
                "TaskGroups[0].Tasks[0].VolumeMounts[0].Destination",
                "TaskGroups[0].Tasks[0].VolumeMounts[1].Destination",
            ),
            ("TaskGroups[0].Tasks[0].Driver", "TaskGroups[0].Tasks[0].Driver"),
            ("TaskGroups[0].Migrate.HealthCheck", "TaskGroups[0].Migrate.HealthCheck"),
        ] {
            assert_eq!(path(kept).written_in(&job).to_string(), written);
        }
    }

    #[test]
    fn reasons_have_names() {
        for reason in ErrorReason::ALL {
            assert_eq!(ErrorReason::from_name(reason.as_str()), Some(*reason));
        }
        assert_eq!(ErrorReason::from_name("newer"), None);
    }

    #[test]
    fn problems_are_read_from_other_releases() {
        let read: JobProblem =
            serde_json::from_str(r#"{"Path": "Priority", "Code": "new", "More": 1}"#).unwrap();
        assert_eq!((read.path.to_string().as_str(), read.severity), ("Priority", Severity::Error));
    }

    proptest! {
        #[test]
        fn every_path_survives(steps in proptest::collection::vec(prop_oneof![
            "[A-Za-z]{1,8}".prop_map(|name| PathStep::Field(name.into())),
            (0..100_usize).prop_map(PathStep::Index),
            ".{0,8}".prop_map(PathStep::Key),
        ], 0..6)) {
            prop_assume!(!matches!(steps.first(), Some(PathStep::Index(_) | PathStep::Key(_))));
            let path = JobPath(steps);
            prop_assert_eq!(path.to_string().parse::<JobPath>().unwrap(), path);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[a\\[\\]\"\\\\.0é]{0,12}") {
            drop(text.parse::<JobPath>());
        }
    }
}
