//! What is kept with a job but not acted on yet. A job may rely on it, so it is said when the job is submitted.

use caravan_types::job::{Carried, Task};

/// A warning that names what has no effect in the task, if there is anything.
pub(super) fn of_task(task: &Task) -> Option<String> {
    let handed_out = |identity: &Carried| ["Env", "File"].iter().any(|way| identity.0[*way] == true);
    sentence(
        &format!("task \"{}\"", task.name),
        [
            ("identity", task.identity.iter().chain(&task.identities).any(handed_out)),
            ("selinux_label", task.volume_mounts.iter().any(|mount| !mount.selinux_label.is_empty())),
        ],
    )
}

fn sentence<const N: usize>(owner: &str, found: [(&str, bool); N]) -> Option<String> {
    let names: Vec<&str> = found.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect();
    (!names.is_empty())
        .then(|| format!("{owner}: kept with the job but without effect yet: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, tests::minimal};

    #[test]
    fn an_identity_that_the_task_would_read_is_named() {
        let mut job = minimal();
        let identity = |file: bool| {
            let name = if file { "x" } else { "y" };
            Carried(
                serde_json::json!({"Name": name, "File": file, "Audience": ["a"], "TTL": 3_600_000_000_000_i64}),
            )
        };
        job.task_groups[0].tasks[0].identities = vec![identity(false)];
        assert!(check(&job).warnings.is_empty());
        job.task_groups[0].tasks[0].identities.push(identity(true));
        assert_eq!(check(&job).warnings, ["task \"t\": kept with the job but without effect yet: identity"]);
    }
}
