use super::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const NEEDS: Needs = Needs { attach: true, stage: true, shared: false };
const TARGET: &str = "/data/csi/node/p/per-alloc/a1/data/rw";
const STAGING: &str = "/data/csi/node/p/staging/default/data/rw";

fn setting(notes: Vec<(u64, Deed)>) -> Setting {
    Setting { needs: NEEDS, notes: notes.into_iter().map(|(t_ns, deed)| Note { t_ns, deed }).collect() }
}

/// A log for tests: a time, the instance with its process, and the events.
struct Log(Vec<Line>, u64);

impl Log {
    fn new() -> Self {
        Self(Vec::new(), 0)
    }
    fn push(&mut self, pid: u32, event: Event, id: u64, call: &str, (code, effect): (&str, bool)) {
        self.1 += 10;
        let placed = call.ends_with("PublishVolume") || call.ends_with("UnpublishVolume");
        let line = json!({
            "t_ns": self.1, "pid": pid, "instance": "n1", "id": id, "event": event, "call": call,
            "volume": "v", "node": if call.starts_with("Controller") { "n1" } else { "" },
            "target": if placed { TARGET } else { "" },
            "staging": if call == "NodeUnpublishVolume" { "" } else { STAGING },
            "code": code, "effect": effect,
        });
        self.0.push(serde_json::from_value(line).unwrap());
    }
    fn call(mut self, call: &str, code: &str, effect: bool) -> Self {
        let id = self.1;
        self.push(7, Event::Begin, id, call, ("", false));
        self.push(7, Event::End, id, call, (code, effect));
        self
    }
    fn ok(self, call: &str) -> Self {
        self.call(call, "OK", true)
    }
    fn begin(mut self, call: &str) -> Self {
        let id = self.1;
        self.push(7, Event::Begin, id, call, ("", false));
        self
    }
    fn restart(mut self) -> Self {
        self.push(8, Event::Start, 0, "", ("", false));
        self
    }
    fn mounted() -> Self {
        Self::new().ok("ControllerPublishVolume").ok("NodeStageVolume").ok("NodePublishVolume")
    }
    fn ended(self) -> Self {
        self.ok("NodeUnpublishVolume").ok("NodeUnstageVolume").ok("ControllerUnpublishVolume")
    }
}

fn users(of: &[(&str, &str)]) -> BTreeMap<String, Users> {
    BTreeMap::from([("v".to_owned(), of.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect())])
}

#[test]
fn a_whole_life_is_sound_and_leaves_nothing() {
    let log = Log::mounted().ended();
    let checked = check(&log.0, &setting(vec![]));
    assert_eq!((checked.wrong.len(), checked.calls), (0, 6), "{:?}", checked.wrong);
    assert_eq!(settled(&checked, &setting(vec![]), &users(&[]), Some(&users(&[]))), Vec::<String>::new());
}

#[test]
fn what_is_mounted_must_be_claimed() {
    let checked = check(&Log::mounted().0, &setting(vec![]));
    let claims = users(&[("n1", "a1")]);
    assert!(settled(&checked, &setting(vec![]), &claims, Some(&claims)).is_empty());
    let wrong = settled(&checked, &setting(vec![]), &users(&[]), Some(&users(&[])));
    assert_eq!(
        wrong,
        [
            "volume v has a published target of allocation a1 on node n1 without a claim".to_owned(),
            format!("volume v is staged at {STAGING} on node n1 without a claim"),
            "volume v is attached to node n1 without a claim".to_owned(),
        ]
    );
    let none = check(&[], &setting(vec![]));
    let wrong = settled(&none, &setting(vec![]), &claims, Some(&users(&[])));
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}

/// Checks that the controller does not detach after a failed unpublish of the node (docs/design/rough-edges.md, 11).
#[test]
fn a_detach_after_a_failed_unpublish_is_found() {
    let log = Log::mounted().call("NodeUnpublishVolume", "Internal", false).ok("ControllerUnpublishVolume");
    let wrong = check(&log.0, &setting(vec![])).wrong;
    assert_eq!(wrong.len(), 1);
    assert!(
        wrong[0].contains("ControllerUnpublishVolume for node n1 begins while it is still published"),
        "{wrong:?}"
    );
}

/// Checks that no volume of a plugin that attaches is mounted without attaching (docs/design/rough-edges.md, 24).
#[test]
fn a_stage_without_attachment_is_found() {
    let log = Log::new().ok("NodeStageVolume");
    let wrong = check(&log.0, &setting(vec![])).wrong;
    assert!(wrong[0].ends_with("begins before the volume is attached to it (rule 4)"), "{wrong:?}");
    // A failed attachment does not count, even if the plugin attached the volume.
    let log = Log::new().call("ControllerPublishVolume", "Internal", true).ok("NodeStageVolume");
    assert_eq!(check(&log.0, &setting(vec![])).wrong.len(), 1);
}

/// Checks that a staging path with other users is not unstaged (docs/design/rough-edges.md, 8 and 9).
#[test]
fn an_unstage_under_a_published_target_is_found() {
    let log = Log::mounted().ok("NodeUnstageVolume");
    assert!(check(&log.0, &setting(vec![])).wrong[0].contains("begins while it is still published at"));
}

#[test]
fn overlapping_calls_are_found_unless_their_process_is_dead() {
    let log = Log::new().begin("ControllerPublishVolume").ok("ControllerPublishVolume");
    assert!(check(&log.0, &setting(vec![])).wrong[0].contains("is under way"));
    let log = Log::new().begin("ControllerPublishVolume").restart().ok("ControllerPublishVolume");
    let checked = check(&log.0, &setting(vec![]));
    assert_eq!(checked.wrong, Vec::<String>::new());
    assert_eq!(checked.held["v"].owed, BTreeSet::new());
    // The calling agent was killed: the next agent has no record of the call.
    let log = Log::new().begin("NodeStageVolume");
    let at = log.1 + 1;
    let log = log.ok("NodeStageVolume");
    let died = setting(vec![(at, Deed::AgentDied { node: "n1".into() })]);
    let wrong = check(&log.0, &died).wrong;
    assert!(wrong.iter().all(|w| !w.contains("under way")), "{wrong:?}");
}

/// Checks that the possible effect of a failed call is undone or completed (docs/design/rough-edges.md, 10).
#[test]
fn a_call_that_may_have_been_carried_out_is_owed_its_undoing() {
    for log in [
        Log::new().begin("ControllerPublishVolume").restart(),
        Log::new().call("ControllerPublishVolume", "DeadlineExceeded", true),
        Log::new().call("ControllerPublishVolume", "Cancelled", false),
    ] {
        let wrong = settled(&check(&log.0, &setting(vec![])), &setting(vec![]), &users(&[]), None);
        assert_eq!(
            wrong,
            [
                "volume v: ControllerPublishVolume for node n1 may have been carried out and was never undone or \
              repeated"
            ]
        );
        let undone = log.ok("ControllerUnpublishVolume");
        let wrong = settled(&check(&undone.0, &setting(vec![])), &setting(vec![]), &users(&[]), None);
        assert_eq!(wrong, Vec::<String>::new());
    }
    let failed = Log::new().call("ControllerPublishVolume", "Internal", false);
    assert!(check(&failed.0, &setting(vec![])).held["v"].owed.is_empty());
}

#[test]
fn a_lost_node_is_detached_as_it_is_and_its_stage_is_not_used_again() {
    let log = Log::mounted();
    let at = log.1 + 1;
    let log = log.ok("ControllerUnpublishVolume");
    assert_eq!(check(&log.0, &setting(vec![])).wrong.len(), 1);
    let lost = setting(vec![(at, Deed::Lost { node: "n1".into() })]);
    assert_eq!(check(&log.0, &lost).wrong, Vec::<String>::new());
    let log = log.ok("ControllerPublishVolume").ok("NodePublishVolume");
    assert!(check(&log.0, &lost).wrong[0].contains("made for an earlier attachment"));
}

#[test]
fn a_node_that_was_wiped_has_no_mounts() {
    let log = Log::mounted();
    let at = log.1 + 1;
    let log = log.ok("ControllerUnpublishVolume");
    let wiped = setting(vec![(at, Deed::Wiped { node: "n1".into() })]);
    let checked = check(&log.0, &wiped);
    assert_eq!(checked.wrong, Vec::<String>::new());
    assert!(settled(&checked, &wiped, &users(&[]), None).is_empty());
}

#[test]
fn logs_are_read_together_by_time_and_a_cut_off_line_is_left_out() {
    let one = "{\"t_ns\":5,\"pid\":1,\"instance\":\"a\",\"event\":\"start\"}\n{\"t_ns\":9,\"pid\":1,\"inst";
    let two = "{\"t_ns\":3,\"pid\":2,\"instance\":\"b\",\"id\":1,\"event\":\"begin\",\"call\":\"NodeStageVolume\"}\n";
    let lines = read([one, two]).unwrap();
    assert_eq!(lines.iter().map(|l| l.t_ns).collect::<Vec<_>>(), [3, 5]);
    assert!(read(["nonsense\n"]).unwrap_err().to_string().contains("line 1 of a plugin's log"));
}

#[test]
fn users_are_found_in_paths_and_answers() {
    assert_eq!(alloc_of_target(TARGET), Some("a1"));
    assert_eq!(alloc_of_target("/elsewhere"), None);
    let mounts = users_of_mounts("n1", [TARGET, STAGING, "/proc"]);
    assert_eq!(mounts, BTreeMap::from([("data".to_owned(), Users::from([("n1".into(), "a1".into())]))]));
    let volume = json!({"CaravanClaims": [
        {"AllocID": "a1", "NodeID": "x", "Phase": "mounted"}, {"AllocID": "a2", "NodeID": "y", "Phase": "gone"},
    ]});
    assert_eq!(claims_of(&volume, |id| format!("p-{id}")), Users::from([("p-x".into(), "a1".into())]));
}
