//! The parsed form of a `template` block of the job file (docs/reference/jobspec.md, section 4.8).

use caravan_templates::Template;
use caravan_types::job;
use std::time::Duration;

/// The notification of a running task when a template's text changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChangeMode {
    /// No notification.
    Noop,
    /// The task is restarted.
    Restart,
    /// The task receives this signal.
    Signal(String),
    /// A program runs in the task's environment.
    Script(Script),
}

/// A program that notifies the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runner) struct Script {
    /// Program and arguments.
    pub(in crate::runner) command: Vec<String>,
    /// The program's timeout.
    pub(in crate::runner) timeout: Duration,
    /// Whether a failure of the program fails the task.
    pub(in crate::runner) fail_on_error: bool,
    /// Whether the program also runs after the first start.
    pub(super) on_first_render: bool,
}

/// A parsed `template` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// The path of the template file, if the text is not in the job.
    pub(super) source: Option<String>,
    /// The template's text, once it is known, with its settings.
    pub(super) template: Template,
    /// The path of the rendered file.
    pub(super) destination: String,
    pub(super) change: ChangeMode,
    /// The span within which the task is notified at a random time.
    pub(super) splay: Duration,
    pub(super) mode: u32,
    pub(super) owner: (Option<u32>, Option<u32>),
    /// Whether the template is rendered only once.
    pub(super) once: bool,
    /// Whether the text defines environment variables of the task.
    pub(super) env: bool,
    /// The delay of a rendering: until no change for the first span, and at most the second.
    pub(super) wait: Option<(Duration, Duration)>,
}

impl Spec {
    /// Parses a block, with references replaced: in paths by host paths, in programs by the values that the task sees.
    pub(super) fn read(
        block: &job::Template,
        path: impl Fn(&str) -> String,
        text: impl Fn(&str) -> String,
    ) -> Result<Self, String> {
        let source = Some(path(&block.source_path)).filter(|source| !source.is_empty());
        let change = match block.change_mode.as_str() {
            "noop" => ChangeMode::Noop,
            "" | "restart" => ChangeMode::Restart,
            "signal" => ChangeMode::Signal(block.change_signal.clone()),
            "script" => {
                let script = block.change_script.as_ref().ok_or("a change_script block is missing")?;
                let words = std::iter::once(&script.command).chain(&script.args);
                ChangeMode::Script(Script {
                    command: words.map(|word| text(word)).collect(),
                    timeout: script.timeout.to_std(),
                    fail_on_error: script.fail_on_error,
                    on_first_render: script.run_on_first_render,
                })
            }
            other => return Err(format!("change_mode \"{other}\" is unknown")),
        };
        let mode = match block.perms.as_str() {
            "" => 0o644,
            perms => u32::from_str_radix(perms, 8)
                .ok()
                .filter(|bits| *bits <= 0o7777)
                .ok_or_else(|| format!("perms \"{perms}\" are not octal"))?,
        };
        // Negative ids mean that no owner is set.
        let id = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
        let wait = block.wait.as_ref().and_then(|wait| Some((wait.min?.to_std(), wait.max?.to_std())));
        Ok(Self {
            source,
            template: Template {
                text: block.embedded_tmpl.clone(),
                left: block.left_delim.clone(),
                right: block.right_delim.clone(),
                error_on_missing_key: block.err_missing_key,
            },
            destination: path(&block.dest_path),
            change,
            splay: block.splay.to_std(),
            mode,
            owner: (id(block.uid), id(block.gid)),
            once: block.once,
            env: block.envvars,
            wait,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(block: serde_json::Value) -> Result<Spec, String> {
        let block: job::Template = serde_json::from_value(block).unwrap();
        Spec::read(&block, |path| path.replace("${X}", "x"), |text| text.replace("${X}", "y"))
    }

    #[test]
    fn blocks_are_read_with_their_defaults() {
        let spec = read(json!({"EmbeddedTmpl": "${X}", "DestPath": "local/${X}"})).unwrap();
        assert_eq!((spec.destination.as_str(), spec.template.text.as_str()), ("local/x", "${X}"));
        assert_eq!((spec.change, spec.mode, spec.owner), (ChangeMode::Restart, 0o644, (None, None)));
        assert_eq!(spec.splay, Duration::from_secs(5));
        let spec = read(json!({
            "SourcePath": "local/${X}", "DestPath": "a", "ChangeMode": "signal", "ChangeSignal": "SIGHUP",
            "Perms": "600", "Uid": 7, "Gid": -1, "Wait": {"Min": 1_000_000, "Max": 2_000_000}, "Splay": 0
        }))
        .unwrap();
        assert_eq!(spec.source.as_deref(), Some("local/x"));
        assert_eq!((spec.change, spec.mode), (ChangeMode::Signal("SIGHUP".into()), 0o600));
        assert_eq!((spec.owner, spec.splay), ((Some(7), None), Duration::ZERO));
        assert_eq!(spec.wait, Some((Duration::from_millis(1), Duration::from_millis(2))));
        let script = json!({"Command": "${X}", "Args": ["a", "${X}"]});
        let spec = read(json!({"DestPath": "a", "ChangeMode": "script", "ChangeScript": script})).unwrap();
        assert!(matches!(spec.change, ChangeMode::Script(script) if script.command == ["y", "a", "y"]));
        assert!(read(json!({"DestPath": "a", "Perms": "rw"})).is_err());
        assert!(read(json!({"DestPath": "a", "ChangeMode": "script"})).is_err());
    }
}
