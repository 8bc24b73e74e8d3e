//! The invariants of the records of one volume.

use super::{Rule, Violation};
use caravan_types::plugin::Plugin;
use caravan_types::volume::{Claim, ClaimMode, ClaimPhase, Volume};
use std::collections::BTreeSet;

/// Returns whether several claims on a volume with these modes can be active at the same time.
pub fn may_share(claims: &[&Claim]) -> bool {
    !claims.iter().all(|c| c.access_mode.single_node() && c.mode == ClaimMode::Write)
}

/// Checks rules 2, 3, 4 and 6 as far as the records of one volume show them. `claims` are all of its claims; claims
/// that are gone are ignored.
pub fn records(name: &str, volume: Option<&Volume>, claims: &[&Claim]) -> Vec<Violation> {
    let holding: Vec<&Claim> = claims.iter().copied().filter(|c| c.phase.holds()).collect();
    let mut wrong = Vec::new();
    writers(name, &holding, &mut wrong);
    for claim in &holding {
        waits(name, claim, &mut wrong);
        phase(name, claim, &mut wrong);
    }
    if let Some(volume) = volume
        && volume.tries > 0
        && volume.last_error.is_empty()
    {
        let text = format!("volume {name} failed {} times without a reason", volume.tries);
        wrong.push(Violation::new(Rule::Quiet, text));
    }
    wrong
}

/// Checks the part of rule 4 that records show and that only the reconciler can enforce. No volume is detached from a
/// node where another claim uses it.
pub fn detached_in_use(name: &str, claims: &[&Claim]) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let away: BTreeSet<_> =
        claims.iter().filter(|c| c.phase == ClaimPhase::Detaching).map(|c| &c.node_id).collect();
    for claim in claims.iter().filter(|c| away.contains(&c.node_id)) {
        if matches!(claim.phase, ClaimPhase::Attached | ClaimPhase::Mounted) {
            let text = format!(
                "volume {name} is being detached from node {} where allocation {} uses it",
                claim.node_id, claim.id.alloc
            );
            wrong.push(Violation::new(Rule::CallOrder, text));
        }
    }
    wrong
}

/// Checks rule 2: there are no more claims than the modes allow.
fn writers(name: &str, holding: &[&Claim], wrong: &mut Vec<Violation>) {
    let nodes: BTreeSet<_> = holding.iter().map(|c| &c.node_id).collect();
    if nodes.len() > 1
        && let Some(claim) = holding.iter().find(|c| c.access_mode.single_node())
    {
        let nodes: Vec<String> = nodes.into_iter().map(ToString::to_string).collect();
        let text = format!(
            "volume {name} is claimed on nodes {}, and allocation {} claims it with access mode {}",
            nodes.join(", "),
            claim.id.alloc,
            claim.access_mode
        );
        wrong.push(Violation::new(Rule::OneWriter, text));
    }
    let writers: Vec<String> =
        holding.iter().filter(|c| c.mode == ClaimMode::Write).map(|c| c.id.alloc.to_string()).collect();
    if writers.len() > 1
        && let Some(claim) = holding.iter().find(|c| c.access_mode.single_writer())
    {
        let text = format!(
            "volume {name} is claimed for writing by allocations {}, and allocation {} claims it with access mode {}",
            writers.join(", "),
            claim.id.alloc,
            claim.access_mode
        );
        wrong.push(Violation::new(Rule::OneWriter, text));
    }
}

/// Checks the second half of rule 3: every wait has a reason and a next attempt.
fn waits(name: &str, claim: &Claim, wrong: &mut Vec<Violation>) {
    let alloc = &claim.id.alloc;
    if claim.tries > 0 && claim.last_error.is_empty() {
        let text = format!(
            "the claim of allocation {alloc} on volume {name} failed {} times without a reason",
            claim.tries
        );
        wrong.push(Violation::new(Rule::Quiet, text));
    }
    if claim.next_try.0 > 0 && claim.tries == 0 {
        let text = format!(
            "the claim of allocation {alloc} on volume {name} waits for a next try without a failure"
        );
        wrong.push(Violation::new(Rule::Quiet, text));
    }
}

/// Checks rules 4 and 6: the decisions that a phase requires, and the data that undoing it requires.
fn phase(name: &str, claim: &Claim, wrong: &mut Vec<Violation>) {
    let mut say = |rule, what: &str| {
        let alloc = &claim.id.alloc;
        let text =
            format!("the claim of allocation {alloc} on volume {name} is {}, {what}", claim.phase.as_str());
        wrong.push(Violation::new(rule, text));
    };
    let attaches = claim.needs_attach;
    match claim.phase {
        ClaimPhase::Reserved | ClaimPhase::Gone => {}
        ClaimPhase::Attaching | ClaimPhase::Detaching if attaches != Some(true) => {
            say(Rule::UnknownIsNotNo, "and nobody said that its plugin attaches");
        }
        _ if attaches.is_none() => {
            say(Rule::UnknownIsNotNo, "and nobody said whether its plugin attaches");
        }
        _ => {}
    }
    if claim.phase != ClaimPhase::Reserved && attaches == Some(true) && claim.external_node_id.is_empty() {
        say(Rule::CallOrder, "and the plugin's id of the node is not kept: it could not be detached");
    }
    match claim.phase {
        ClaimPhase::Mounted if claim.proof.is_none() => say(Rule::CallOrder, "without proof of its mount"),
        // The node has been in contact since the fence began: no wait is in progress.
        ClaimPhase::Fencing if claim.fence_index == Some(0) => {}
        ClaimPhase::Fencing if claim.fence_until.0 <= 0 => {
            say(Rule::OneWriter, "without an end of its fence")
        }
        ClaimPhase::Unpublished | ClaimPhase::Unstaged if claim.proof.is_some() => {
            say(Rule::CallOrder, "and still shows a mount");
        }
        _ => {}
    }
}

/// Checks rule 6: a claim may skip attaching only if the plugin has reported that it does not attach. `plugin` is the
/// known row at the change of the claim from `before` to `after`.
pub fn known_before_used(before: &Claim, after: &Claim, plugin: Option<&Plugin>) -> Vec<Violation> {
    let decided = before.needs_attach != Some(false) && after.needs_attach == Some(false);
    if !decided || plugin.and_then(Plugin::attaches) == Some(false) {
        return Vec::new();
    }
    let text = format!(
        "the claim of allocation {} on volume {} leaves out attaching, and plugin {} did not say that it does not attach",
        after.id.alloc, after.id.volume, after.plugin_id
    );
    vec![Violation::new(Rule::UnknownIsNotNo, text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::VolumeKey;
    use caravan_types::plugin::Reports;
    use caravan_types::volume::{AccessMode, ClaimId, MountProof};

    fn claim(alloc: &str, node: &str, phase: ClaimPhase) -> Claim {
        let on_node = phase == ClaimPhase::Mounted;
        Claim {
            id: ClaimId { volume: VolumeKey::new("default", "data"), alloc: alloc.into() },
            node_id: node.into(),
            mode: ClaimMode::Write,
            access_mode: AccessMode::SingleNodeWriter,
            needs_attach: (phase != ClaimPhase::Reserved).then_some(true),
            external_node_id: "ext".into(),
            proof: on_node.then(MountProof::default),
            phase,
            ..Claim::default()
        }
    }

    fn texts(claims: &[&Claim]) -> Vec<String> {
        records("data", None, claims).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sound_records_say_nothing() {
        let gone = claim("a", "n1", ClaimPhase::Gone);
        for phase in [ClaimPhase::Reserved, ClaimPhase::Attaching, ClaimPhase::Mounted, ClaimPhase::Detaching]
        {
            assert_eq!(texts(&[&gone, &claim("b", "n2", phase)]), Vec::<String>::new());
        }
    }

    #[test]
    fn claims_beyond_their_modes_are_named() {
        let (a, b) = (claim("a", "n1", ClaimPhase::Releasing), claim("b", "n2", ClaimPhase::Mounted));
        assert_eq!(
            texts(&[&a, &b]),
            [
                "volume data is claimed on nodes n1, n2, and allocation a claims it with access mode \
                 single-node-writer (rule 2)",
                "volume data is claimed for writing by allocations a, b, and allocation a claims it with access \
                 mode single-node-writer (rule 2)"
            ]
        );
    }

    #[test]
    fn a_detach_from_under_another_claim_is_named() {
        let (a, b) = (claim("a", "n1", ClaimPhase::Detaching), claim("b", "n1", ClaimPhase::Mounted));
        let found = detached_in_use("data", &[&a, &b]);
        let text = "volume data is being detached from node n1 where allocation b uses it (rule 4)";
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
        assert_eq!(detached_in_use("data", &[&a, &claim("b", "n1", ClaimPhase::Reserved)]), []);
        assert_eq!(detached_in_use("data", &[&a, &claim("b", "n2", ClaimPhase::Mounted)]), []);
    }

    #[test]
    fn phases_without_what_they_need_are_named() {
        let unknown = Claim { needs_attach: None, ..claim("a", "n1", ClaimPhase::Mounted) };
        assert!(texts(&[&unknown])[0].ends_with("and nobody said whether its plugin attaches (rule 6)"));
        let nameless = Claim { external_node_id: String::new(), ..claim("a", "n1", ClaimPhase::Unstaged) };
        assert!(texts(&[&nameless])[0].contains("it could not be detached"));
        let unproved = Claim { proof: None, ..claim("a", "n1", ClaimPhase::Mounted) };
        assert!(texts(&[&unproved])[0].ends_with("is mounted, without proof of its mount (rule 4)"));
        let silent = Claim { tries: 2, ..claim("a", "n1", ClaimPhase::Attaching) };
        assert!(texts(&[&silent])[0].ends_with("failed 2 times without a reason (rule 3)"));
    }

    #[test]
    fn attaching_is_left_out_only_when_the_plugin_said_so() {
        let before = claim("a", "n1", ClaimPhase::Reserved);
        let after = Claim { needs_attach: Some(false), ..claim("a", "n1", ClaimPhase::Attached) };
        assert_eq!(known_before_used(&before, &after, None).len(), 1);
        let unknown = Plugin { controller_required: true, ..Plugin::default() };
        assert_eq!(known_before_used(&before, &after, Some(&unknown)).len(), 1);
        let plain = Plugin { nodes: Reports::unit("n1".into(), Default::default()), ..Plugin::default() };
        assert_eq!(known_before_used(&before, &after, Some(&plain)), []);
    }
}
