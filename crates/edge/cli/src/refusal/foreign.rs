//! Reads the refusal of a server that sends a sentence only: Nomad, and older releases. Servers of this release send
//! problems as data, so this module does not depend on their wording.
//!
//! The sentence has a list (docs/reference/http-api.md, section 3.1): `2 errors occurred:`, and a line with a tab and
//! a star for each. Items may contain such lists. The items become single findings, each with its path and place.

use caravan_hcl::diag::Diagnostics;
use caravan_hcl::job::locate::{Step, locate, refused};
use caravan_hcl::{Source, Sources};

/// The maximum nesting depth of lists. A deeper list is one message.
const MAX_DEPTH: usize = 32;

/// One problem of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// The blocks from the job to the faulty part.
    path: Vec<Step>,
    /// The sentence about the problem.
    message: String,
}

/// Returns the single problems of an answer; none for a text of another shape.
fn findings(text: &str) -> Vec<Finding> {
    let Some(start) = list_start(text) else { return Vec::new() };
    let mut out = Vec::new();
    Reader { rest: &text[start..], depth: 0 }.list(&[], &mut out);
    out
}

/// Returns whether a text has a list.
pub(super) fn is_list(text: &str) -> bool {
    text.contains(" occurred:\n")
}

/// Returns the findings as diagnostics.
pub(super) fn diagnostics(text: &str, job: &str, source: Option<&Source>) -> Diagnostics {
    let mut sources = Sources::default();
    let id = source.map(|source| sources.add(source.clone()));
    let whole = format!("job {job:?}");
    let items = findings(text)
        .iter()
        .map(|finding| {
            let arguments = arguments(&finding.message);
            let span = id.and_then(|id| locate(&sources, id, &finding.path, arguments));
            refused(&whole, &finding.path, &finding.message, span)
        })
        .collect();
    Diagnostics { items, sources }
}

/// Returns the position of the first list, which begins with its count.
fn list_start(text: &str) -> Option<usize> {
    let at = [" error occurred:\n", " errors occurred:\n"]
        .into_iter()
        .filter_map(|words| text.find(words))
        .min()?;
    let digits = text[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(at - digits)
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl Reader<'_> {
    /// Reads `N errors occurred:` and N items.
    fn list(&mut self, path: &[Step], out: &mut Vec<Finding>) {
        let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let count: usize = self.rest[..digits].parse().unwrap_or_default();
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
        for _ in 0..count {
            let Some(item) = self.rest.strip_prefix("\t* ") else { break };
            self.rest = item;
            self.item(path, out);
        }
        self.rest = self.rest.strip_prefix('\n').unwrap_or(self.rest);
    }

    fn item(&mut self, path: &[Step], out: &mut Vec<Finding>) {
        let line = self.rest.split('\n').next().unwrap_or_default();
        if line.ends_with(" occurred:")
            && self.depth < MAX_DEPTH
            && let Some(start) = list_start(self.rest).filter(|start| *start <= line.len())
        {
            let (path, prefix) = under(path, self.rest[..start].trim_end());
            let before = out.len();
            self.rest = &self.rest[start..];
            self.depth += 1;
            self.list(&path, out);
            self.depth -= 1;
            self.rest = self.rest.strip_prefix('\n').unwrap_or(self.rest);
            for finding in &mut out[before..] {
                finding.message.insert_str(0, &prefix);
            }
            return;
        }
        // A message may have several lines; only the next item and the list's end begin with these texts.
        let end = ["\n\t* ", "\n\n"].into_iter().filter_map(|end| self.rest.find(end)).min();
        let text = &self.rest[..end.unwrap_or(self.rest.len())];
        self.rest = self.rest[text.len()..].strip_prefix('\n').unwrap_or_default();
        let (path, message) = within(path, text.trim_end());
        out.push(Finding { path, message });
    }
}

/// Returns the path that a list's title names, and a prefix for messages: the title, if it names no part.
fn under(path: &[Step], title: &str) -> (Vec<Step>, String) {
    let text = title.trim_end_matches(':');
    let name = text.strip_suffix(" validation failed").or_else(|| text.strip_suffix(" failed validation"));
    let Some(name) = name else {
        return (path.to_vec(), if title.is_empty() { String::new() } else { format!("{title} ") });
    };
    let group = path.iter().any(|step| step.kind == "group");
    let number =
        |word: &str| name.strip_prefix(word)?.strip_prefix(' ')?.parse::<usize>().ok()?.checked_sub(1);
    let numbered = [
        ("Constraint", "constraint"),
        ("Affinity", "affinity"),
        ("Spread", "spread"),
        ("Template", "template"),
        ("Artifact", "artifact"),
        ("Identity", "identity"),
        ("Secret", "secret"),
        ("Action", "action"),
        ("Scaling", "scaling"),
        ("device", "device"),
    ];
    let steps = if group && name == "Task group network" {
        vec![Step::only("network")]
    } else if group && name == "Task group service" {
        Vec::new()
    } else if let Some(label) = name.strip_prefix("Task group ").filter(|_| !group) {
        vec![Step::named("group", label)]
    } else if let Some(label) = name.strip_prefix("Task ") {
        vec![Step::named("task", label)]
    } else if let Some((number, label)) = name.strip_prefix("Service[").and_then(|s| s.split_once("] ")) {
        let _ = number;
        vec![Step::named("service", label)]
    } else if let Some(label) = name.strip_prefix("Check ") {
        vec![Step::named("check", label)]
    } else if name == "Vault" {
        vec![Step::only("vault")]
    } else if let Some((kind, at)) = numbered.iter().find_map(|(word, kind)| Some((*kind, number(word)?))) {
        let device = (kind == "device").then(|| Step::only("resources"));
        device.into_iter().chain([Step::nth(kind, at)]).collect()
    } else {
        return (path.to_vec(), format!("{title} "));
    };
    (path.iter().cloned().chain(steps).collect(), String::new())
}

/// Returns the path that a message itself names, and the message without a prefix that the path replaces.
fn within(path: &[Step], text: &str) -> (Vec<Step>, String) {
    let longer = |steps: Vec<Step>, message: &str| {
        (path.iter().cloned().chain(steps).collect::<Vec<_>>(), message.to_owned())
    };
    if let Some((alias, message)) =
        text.strip_prefix("Task group volume validation for ").and_then(|rest| rest.split_once(" failed: "))
    {
        return longer(vec![Step::named("volume", alias)], message);
    }
    let after = |start: &str, end: &str| text.strip_prefix(start)?.split_once(end)?.0.parse::<usize>().ok();
    if let Some(number) = after("Volume Mount (", ")") {
        return longer(vec![Step::nth("volume_mount", number)], text);
    }
    if let Some(number) = after("Job task group ", " ") {
        return longer(vec![Step::nth("group", number.saturating_sub(1))], text);
    }
    if let Some(number) = after("Task ", " ").filter(|number| *number > 0) {
        return longer(vec![Step::nth("task", number - 1)], text);
    }
    if let Some(name) = text.strip_prefix("Job task group ").and_then(|rest| rest.split_once(" has count ")) {
        return longer(vec![Step::named("group", name.0)], text);
    }
    longer(Vec::new(), text)
}

/// Returns the arguments that a message is about, by its first words. A row has these words and the paths to search.
fn arguments(message: &str) -> &'static [&'static str] {
    const TABLE: &[(&str, &[&str])] = &[
        ("Invalid job type", &["type"]),
        ("job priority", &["priority"]),
        ("Job datacenter", &["datacenters"]),
        ("Job ID", &["id"]),
        ("Periodic can only", &["periodic", "type"]),
        ("Invalid cron spec", &["periodic.crons", "periodic.cron", "periodic"]),
        ("Invalid time zone", &["periodic.time_zone"]),
        ("Must specify a spec", &["periodic"]),
        ("Only cron or crons", &["periodic.cron"]),
        ("Parameterized job can only", &["parameterized", "type"]),
        ("Unknown payload requirement", &["parameterized.payload"]),
        ("Required and optional meta", &["parameterized.meta_optional"]),
        ("UI description", &["ui.description"]),
        ("Multiregion", &["multiregion"]),
        ("System jobs may not have an affinity", &["affinity", "type"]),
        ("System jobs may not have a spread", &["spread", "type"]),
        ("Task group count", &["count"]),
        ("Job task group", &["count"]),
        ("Invalid health check", &["update.health_check"]),
        ("Max parallel count", &["update.max_parallel"]),
        ("Canary count", &["update.canary"]),
        ("Minimum healthy time", &["update.min_healthy_time", "update.healthy_deadline"]),
        ("Healthy deadline", &["update.healthy_deadline", "update.progress_deadline"]),
        ("Progress deadline", &["update.progress_deadline"]),
        ("Stagger", &["update.stagger"]),
        ("Auto Promote", &["update.auto_promote"]),
        ("MaxParallel", &["migrate.max_parallel"]),
        ("Invalid HealthCheck", &["migrate.health_check"]),
        ("MinHealthyTime", &["migrate.min_healthy_time"]),
        ("Unsupported restart mode", &["restart.mode"]),
        ("Restart policy", &["restart.attempts", "restart"]),
        ("Nomad can't restart", &["restart"]),
        ("Interval can not", &["restart.interval"]),
        ("Invalid delay function", &["reschedule.delay_function"]),
        ("Reschedule Policy", &["reschedule"]),
        ("Max Delay", &["reschedule.max_delay"]),
        ("Interval cannot", &["reschedule.interval"]),
        ("Delay cannot", &["reschedule.delay"]),
        ("disconnect:", &["disconnect"]),
        ("minimum DiskMB", &["ephemeral_disk.size"]),
        ("Scaling policy", &["scaling"]),
        ("ShutdownDelay", &["shutdown_delay"]),
        ("KillTimout", &["kill_timeout"]),
        ("KillTimeout", &["kill_timeout"]),
        ("minimum CPU", &["resources.cpu"]),
        ("minimum MemoryMB", &["resources.memory"]),
        ("MemoryMaxMB", &["resources.memory_max"]),
        ("minimum MemoryMaxMB", &["resources.memory_max"]),
        ("Task can only ask for", &["resources.cores"]),
        ("secrets (", &["resources.secrets"]),
        ("log storage", &["logs"]),
        ("minimum number of files", &["logs.max_files"]),
        ("minimum file size", &["logs.max_file_size"]),
        ("invalid hook", &["lifecycle.hook"]),
        ("poststop tasks", &["lifecycle.sidecar"]),
        ("CSIPluginConfig PluginType", &["csi_plugin.type"]),
        ("CSIPluginConfig", &["csi_plugin"]),
        ("Dispatch Payload", &["dispatch_payload.file", "dispatch_payload"]),
        ("Unknown constraint type", &["operator"]),
        ("Unknown affinity operator", &["operator"]),
        ("Regular expression", &["regexp", "value"]),
        ("version constraint", &["version", "value"]),
        ("semver constraint", &["semver", "value"]),
        ("unsupported attribute", &["attribute"]),
        ("Affinity weight", &["weight"]),
        ("Spread block must have a weight", &["weight"]),
        ("Service name", &["name"]),
        ("Service address_mode", &["address_mode"]),
        ("Service on_update", &["on_update"]),
        ("Service provider", &["provider"]),
        ("port label", &["port"]),
        ("invalid check type", &["type"]),
        ("interval (", &["interval"]),
        ("timeout (", &["timeout"]),
        ("Invalid change mode", &["change_mode"]),
        ("template destination", &["destination"]),
        ("template source", &["source"]),
    ];
    TABLE.iter().find(|(start, _)| message.starts_with(start)).map_or(&[], |(_, arguments)| arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problems(text: &str) -> Vec<String> {
        findings(text)
            .iter()
            .map(|f| {
                let path: Vec<_> = f.path.iter().map(Step::to_string).collect();
                format!("{}: {}", path.join(" > "), f.message)
            })
            .collect()
    }

    #[test]
    fn nested_lists_become_single_findings() {
        let text = "3 errors occurred:\n\t* Invalid job type: \"strange\"\n\t* Task group g \
                    validation failed: 2 errors occurred:\n\t* Task t validation failed: 2 errors occurred:\n\t* 1 error \
                    occurred:\n\t* 1 error occurred:\n\t* minimum MemoryMB value is 10; got 1\n\n\n\n\n\t* Missing task \
                    driver\n\n\n\t* Task group service validation failed: 1 error occurred:\n\t* Service[0] web! validation \
                    failed: 1 error occurred:\n\t* Service name must\n\n\n\n\n\n\n\t* job priority must be between [1, 100]\n\n";
        assert_eq!(
            problems(text),
            [
                ": Invalid job type: \"strange\"",
                "group \"g\" > task \"t\": minimum MemoryMB value is 10; got 1",
                "group \"g\" > task \"t\": Missing task driver",
                "group \"g\" > service \"web!\": Service name must",
                ": job priority must be between [1, 100]",
            ]
        );
        assert_eq!(problems("Permission denied"), Vec::<String>::new());
    }

    /// Checks that the sentences of the admission rules are read, at any nesting.
    #[test]
    fn what_admission_says_is_read_back() {
        let job = r#"{"ID": "a b", "Type": "strange", "Priority": 0, "Constraints": [{"LTarget": "${x}", "RTarget": "[",
            "Operand": "regexp"}], "TaskGroups": [{"Name": "g", "Count": -1, "Volumes": {"v": {"Type": "csi", "Source":
            "s", "AccessMode": "both"}}, "Tasks": [{"Name": "t", "Resources": {"MemoryMB": 1, "CPU": 0},
            "VolumeMounts": [{"Volume": "w"}]}]}, {"Name": "g"}]}"#;
        let mut job: caravan_api::Job = caravan_api::decode(job.as_bytes()).unwrap();
        caravan_api::canonicalize(&mut job);
        let (job, misfits) = caravan_api::fit(&job);
        let text = caravan_admission::check_all(&job, misfits).refusal();
        let all = problems(&text);
        for part in [
            ": Job ID contains a space",
            ": Invalid job type: \"strange\"",
            "constraint 1: Regular expression failed to compile: error parsing regexp: missing closing ]: `[`",
            "constraint 1: unsupported attribute \"${x}\"",
            "group 2: Job task group 2 redefines 'g' from group 1",
            "group \"g\": Task group count can't be negative",
            "group \"g\" > volume \"v\": CSI volumes must have an attachment mode",
            "group \"g\": unknown volume access mode: both",
            "group \"g\" > task \"t\": Missing task driver",
            "group \"g\" > task \"t\": minimum CPU value is 1; got 0",
            "group \"g\" > task \"t\" > volume_mount 1: Volume Mount (0) references undefined volume w",
            "group \"g\": Missing tasks for task group",
            ": job priority must be between [1, 100]",
        ] {
            assert!(all.iter().any(|line| line.starts_with(part)), "{part} is not in {all:#?}");
        }
        assert!(!all.iter().any(|line| line.contains("occurred")), "{all:#?}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([0-9]{0,2} errors? occurred:\n|\t\\* |\n|Task a validation failed: |[a-z]|é){0,40}") {
            findings(&text);
        }
    }
}
