//! Faults on command: rules in the file `faults.json` of the shared directory, read before and after each call.
//!
//! `[{"call": "NodePublishVolume", "volume": "v", "node": "n", "action": "fail", "code": "Unavailable",
//! "when": "before", "times": 2}]`; `call`, `volume` and `node` may be absent and then match any.
//! Actions are `fail` (with `code`, as tonic spells it), `delay` (by `ms`), `hang` (until the rule is removed from
//! the file), and `exit`. A further action is `half`: node calls mount or unmount, and fail with INTERNAL without a
//! record. Without `times` a rule holds as long as it exists; a used-up rule has `times` zero.

use crate::log::About;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tonic::Code;

/// The interval at which a hanging call checks the rules.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a rule applies before or after the plugin acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum When {
    #[default]
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Fail,
    Delay,
    Hang,
    Exit,
    Half,
}

/// A rule as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    action: Action,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
    #[serde(default)]
    when: When,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
}

impl Rule {
    fn matches(&self, about: &About, when: When) -> bool {
        let is = |desired: &Option<String>, value: &str| desired.as_deref().is_none_or(|w| w == value);
        // A rule without a call applies to calls about volumes. Faults of identity and capability calls must name
        // the call.
        let call = match &self.call {
            Some(call) => call == about.call,
            None => !about.volume.is_empty(),
        };
        call && self.when == when && is(&self.volume, &about.volume) && is(&self.node, &about.node)
    }

    fn fault(&self) -> Fault {
        match self.action {
            Action::Fail => Fault::Fail(self.code.as_deref().map_or(Code::Unavailable, code)),
            Action::Delay => Fault::Delay(Duration::from_millis(self.ms.unwrap_or(500))),
            Action::Hang => Fault::Hang,
            Action::Exit => Fault::Exit,
            Action::Half => Fault::Half,
        }
    }
}

/// Parses a status code by its `Debug` name; an unknown name is `Unknown`.
fn code(name: &str) -> Code {
    (1..17).map(Code::from_i32).find(|code| format!("{code:?}") == name).unwrap_or(Code::Unknown)
}

/// The fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Fail(Code),
    Delay(Duration),
    Hang,
    Exit,
    Half,
}

/// The file with the rules.
#[derive(Debug)]
pub(crate) struct Faults {
    dir: PathBuf,
}

impl Faults {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Returns the fault that applies now, and counts it. A missing or invalid file has no rules.
    pub(crate) fn take(&self, about: &About, when: When) -> Option<Fault> {
        let _lock = self.lock()?;
        let mut rules = self.rules();
        let rule = rules.iter_mut().find(|r| r.times != Some(0) && r.matches(about, when))?;
        let fault = rule.fault();
        if let Some(times) = &mut rule.times {
            *times -= 1;
            self.save(&rules);
        }
        Some(fault)
    }

    /// Waits until no rule makes this call hang.
    pub(crate) async fn hang(&self, about: &About, when: When) {
        while self.rules().iter().any(|r| r.action == Action::Hang && r.matches(about, when)) {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn rules(&self) -> Vec<Rule> {
        let Ok(text) = fs::read(self.dir.join("faults.json")) else { return Vec::new() };
        serde_json::from_slice(&text).unwrap_or_else(|error| {
            eprintln!("faults.json is not understood: {error}");
            Vec::new()
        })
    }

    fn save(&self, rules: &[Rule]) {
        let (new, path) = (self.dir.join("faults.json.plugin"), self.dir.join("faults.json"));
        let text = serde_json::to_vec(rules).unwrap_or_default();
        if let Err(error) = fs::write(&new, text).and_then(|()| fs::rename(&new, path)) {
            eprintln!("faults.json cannot be written: {error}");
        }
    }

    /// Locks the rules; writers of the file hold the same lock.
    fn lock(&self) -> Option<File> {
        let file = File::options().create(true).append(true).open(self.dir.join("faults.lock")).ok()?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(rules: &str) -> (tempfile::TempDir, Faults) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("faults.json"), rules).unwrap();
        let faults = Faults::new(dir.path());
        (dir, faults)
    }

    #[test]
    fn a_rule_is_used_up() {
        let (_dir, faults) = faults(
            r#"[{"call": "NodePublishVolume", "volume": "v", "action": "fail", "code": "Internal", "times": 2},
                {"action": "delay", "ms": 7, "when": "after"}]"#,
        );
        let publish = About::volume("NodePublishVolume", "v", "n");
        let other = About::volume("NodePublishVolume", "w", "n");
        assert_eq!(faults.take(&other, When::Before), None);
        for _ in 0..2 {
            assert_eq!(faults.take(&publish, When::Before), Some(Fault::Fail(Code::Internal)));
        }
        assert_eq!(faults.take(&publish, When::Before), None);
        assert_eq!(faults.take(&publish, When::After), Some(Fault::Delay(Duration::from_millis(7))));
        let probe = About { call: "Probe", ..About::default() };
        assert_eq!(faults.take(&probe, When::After), None, "only by name");
    }

    #[test]
    fn no_file_and_no_sense_are_no_rules() {
        let (dir, broken) = faults("{");
        assert_eq!(broken.take(&About::volume("NodePublishVolume", "v", "n"), When::Before), None);
        fs::remove_file(dir.path().join("faults.json")).unwrap();
        assert_eq!(broken.take(&About::volume("NodePublishVolume", "v", "n"), When::Before), None);
    }

    #[tokio::test]
    async fn what_hangs_goes_on_when_the_rule_is_gone() {
        let (dir, faults) = faults(r#"[{"action": "hang", "times": 1}]"#);
        let about = About::volume("NodePublishVolume", "v", "n");
        assert_eq!(faults.take(&about, When::Before), Some(Fault::Hang));
        assert_eq!(faults.take(&about, When::Before), None, "used up");
        let lift = async {
            tokio::task::yield_now().await;
            fs::remove_file(dir.path().join("faults.json")).unwrap();
        };
        tokio::join!(faults.hang(&about, When::Before), lift);
    }
}
