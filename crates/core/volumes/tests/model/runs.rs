//! The explored settings, and the violations that planted faults must cause.

use crate::model::{Event, Volumes};
use crate::state::*;
use stateright::{Checker, HasDiscoveries, Model};

/// Returns the maximum number of times that each permitted fault of a run may happen.
#[expect(clippy::disallowed_methods, reason = "a test asks its environment how far to explore")]
fn times() -> u8 {
    std::env::var("CARAVAN_MODEL_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Returns a setting of one volume with room for one writer. The second allocation may be placed on either node.
fn setting(attach: bool, stage: bool) -> Setting {
    Setting {
        attach,
        stage,
        shared: false,
        strict: false,
        strict_controller: false,
        lists_nodes: false,
        volume_of: [0, 0],
        nodes_of: [&[0], &[0, 1]],
        plugin_reported: true,
        budget: Budget::default(),
        planted: Planted::Nothing,
    }
}

/// Explores all states within the bounds, and expects no violation.
fn holds(name: &str, setting: Setting) {
    let checker = Volumes::new(setting).checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states, {} of them different", checker.state_count(), checker.unique_state_count());
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let last = path.last_state().clone();
        panic!("{name}: \"{property}\" is broken by\n{}which comes to {last:#?}", story(path.into_actions()));
    }
}

/// Explores until this property is broken, and shows the events.
fn finds(planted: Planted, property: &'static str, setting: Setting) {
    let setting = Setting { planted, ..setting };
    let expected = HasDiscoveries::AnyOf([property].into());
    let checker = Volumes::new(setting).checker().threads(2).finish_when(expected).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{planted:?} was not found"));
    println!("{planted:?} breaks \"{property}\" by\n{}", story(path.into_actions()));
}

/// Returns the events as text, one per line.
fn story(events: Vec<Event>) -> String {
    events.iter().map(|event| format!("  {event:?}\n")).collect()
}

/// Returns a budget that allows some faults.
fn faults(change: impl Fn(&mut Budget, u8)) -> Budget {
    let mut budget = Budget::default();
    change(&mut budget, times());
    budget
}

/// The four kinds of plugins: whether they attach, and whether they stage.
const KINDS: [(bool, bool); 4] = [(true, true), (false, true), (true, false), (false, false)];

/// The two kinds of plugins that differ most.
const ENDS: [(bool, bool); 2] = [(true, true), (false, false)];

#[test]
fn errors_of_the_plugin_and_changes_of_leader() {
    for (attach, stage) in KINDS {
        let budget = faults(|b, n| (b.errors, b.leaders) = (n, n));
        holds(
            &format!("errors, attach {attach}, stage {stage}"),
            Setting { budget, ..setting(attach, stage) },
        );
    }
}

#[test]
fn crashes_of_agents() {
    for (attach, stage) in ENDS {
        let budget = faults(|b, n| (b.crashes, b.errors) = (n, n));
        holds(
            &format!("crashes, attach {attach}, stage {stage}"),
            Setting { budget, ..setting(attach, stage) },
        );
    }
}

/// The first allocation's node is cut off; the second allocation is placed on the same node or on the other.
#[test]
fn nodes_that_fall_silent_and_come_back() {
    for (attach, stage) in ENDS {
        for second in [&[0], &[1]] {
            let budget = faults(|b, n| (b.cuts, b.silences) = (n, n));
            let name = format!("silence, attach {attach}, stage {stage}, second on {second:?}");
            holds(&name, Setting { budget, nodes_of: [&[0], second], ..setting(attach, stage) });
        }
    }
}

/// Wall clocks of servers and nodes step during a fence. No decision depends on recorded wall times.
#[test]
fn wall_clocks_that_step() {
    let budget = faults(|b, n| (b.cuts, b.silences, b.steps) = (n, n, n));
    holds("steps", Setting { budget, nodes_of: [&[0], &[1]], ..setting(false, false) });
}

/// A new leader did not see the start of the wait.
#[test]
fn changes_of_leader_during_a_fence() {
    let budget = faults(|b, n| (b.cuts, b.silences, b.leaders) = (n, n, n));
    holds("leaders in a fence", Setting { budget, nodes_of: [&[0], &[1]], ..setting(false, false) });
}

#[test]
fn nodes_that_are_confirmed_to_be_off() {
    let budget = faults(|b, n| (b.crashes, b.silences, b.confirms, b.removals) = (n, n, n, n));
    holds("confirmed off", Setting { budget, nodes_of: [&[0], &[1]], ..setting(false, false) });
}

#[test]
fn nodes_that_are_removed() {
    let budget = faults(|b, n| (b.cuts, b.silences, b.removals) = (n, n, n));
    holds("forgotten", Setting { budget, nodes_of: [&[0], &[1]], ..setting(false, false) });
}

#[test]
fn agents_that_are_dead_for_long() {
    for second in [&[0], &[1]] {
        let budget = faults(|b, n| (b.crashes, b.silences) = (n, n));
        let name = format!("dead for long, second on {second:?}");
        holds(&name, Setting { budget, nodes_of: [&[0], second], ..setting(true, true) });
    }
}

#[test]
fn a_plugin_without_reported_capabilities() {
    for attach in [true, false] {
        let budget = faults(|b, n| b.leaders = n);
        holds(
            &format!("untold, attach {attach}"),
            Setting { plugin_reported: false, budget, ..setting(attach, true) },
        );
    }
}

#[test]
fn many_users_of_a_volume() {
    for nodes in [[&[0][..], &[0]], [&[0], &[1]]] {
        let shared = Setting { shared: true, nodes_of: nodes, ..setting(true, true) };
        let budget = faults(|b, n| b.errors = n);
        holds(&format!("shared on {nodes:?}, errors"), Setting { budget, ..shared.clone() });
    }
    let shared = Setting { shared: true, nodes_of: [&[0], &[0]], ..setting(false, true) };
    holds("shared on one node, crashes", Setting { budget: faults(|b, n| b.crashes = n), ..shared });
}

#[test]
fn two_volumes_do_not_disturb_each_other() {
    let two = Setting { volume_of: [0, 1], ..setting(true, false) };
    holds("two volumes, errors", Setting { budget: faults(|b, n| b.errors = n), ..two.clone() });
}

/// A plugin that refuses to repeat calls and to undo nonexistent mounts: every claim ends even after errors and lost
/// responses.
#[test]
fn a_plugin_that_is_not_idempotent() {
    for (attach, stage) in KINDS {
        let budget = faults(|b, n| b.errors = n);
        let name = format!("not idempotent, attach {attach}, stage {stage}");
        holds(&name, Setting { budget, strict: true, ..setting(attach, stage) });
    }
    let budget = faults(|b, n| b.crashes = n);
    holds("not idempotent, crashes", Setting { budget, strict: true, ..setting(false, true) });
    let shared = Setting { shared: true, nodes_of: [&[0], &[0]], strict: true, ..setting(false, true) };
    holds("not idempotent, shared", Setting { budget: faults(|b, n| b.errors = n), ..shared });
}

/// A controller that refuses to detach without an attachment: every claim ends even after lost responses.
#[test]
fn a_controller_that_refuses_to_repeat_a_detach() {
    for lists_nodes in [false, true] {
        let strict = Setting { strict_controller: true, lists_nodes, ..setting(true, false) };
        let budget = faults(|b, n| (b.errors, b.leaders) = (n, n));
        holds(
            &format!("refused detach, lists {lists_nodes}, errors and leaders"),
            Setting { budget, ..strict.clone() },
        );
        let budget = faults(|b, n| (b.cuts, b.silences, b.errors) = (n, n, n));
        let name = format!("refused detach, lists {lists_nodes}, silence and errors");
        holds(&name, Setting { budget, nodes_of: [&[0], &[1]], ..strict });
    }
}

/// File systems whose daemon dies under one or two users, while a third user waits.
#[test]
fn daemons_that_die() {
    for strict in [false, true] {
        for stage in [false, true] {
            let shared = Setting { shared: true, nodes_of: [&[0], &[0]], strict, ..setting(false, stage) };
            let name = format!("daemon dies, stage {stage}, strict {strict}");
            holds(&name, Setting { budget: faults(|b, n| b.deaths = n), ..shared.clone() });
        }
    }
    let budget = faults(|b, n| (b.deaths, b.errors) = (n, n));
    holds("daemon dies, errors", Setting { budget, ..setting(false, true) });
    let budget = faults(|b, n| (b.deaths, b.crashes) = (n, n));
    holds("daemon dies, crashes", Setting { budget, ..setting(false, true) });
}

#[test]
fn late_copies_of_reports() {
    let budget = faults(|b, n| (b.copies, b.regrants) = (n, n));
    holds("copies", Setting { budget, ..setting(true, true) });
}

/// Each planted fault must be found, with the faults of the environment that show it.
#[test]
fn planted_faults_are_found() {
    let records = "rules 2, 3, 4 and 6 of the records, one writer";
    let (order, unknown) = ("rule 4: order of calls", "rule 6: unknown is never no");
    let silent = |kind: (bool, bool)| Setting {
        budget: faults(|b, _| (b.cuts, b.silences) = (1, 1)),
        ..setting(kind.0, kind.1)
    };
    let leaders = faults(|b, _| b.leaders = 1);
    let shared = Setting { shared: true, nodes_of: [&[0], &[0]], ..setting(true, true) };
    finds(Planted::FreedWithoutProof, order, setting(true, true));
    finds(Planted::NoFence, records, silent((false, false)));
    finds(Planted::DeafShim, records, silent((false, false)));
    let steps = faults(|b, _| (b.cuts, b.silences, b.steps) = (1, 1, 1));
    let steps = Setting { budget: steps, nodes_of: [&[0], &[1]], ..setting(false, false) };
    finds(Planted::FenceByWallClock, records, steps.clone());
    finds(Planted::LeaseByWallClock, records, steps);
    let twice = faults(|b, _| (b.cuts, b.silences) = (2, 2));
    let twice = Setting { budget: twice, nodes_of: [&[0], &[1]], ..setting(false, false) };
    finds(Planted::EarlierWaitCounts, records, twice);
    finds(Planted::RenewedBeforeRecorded, records, silent((false, false)));
    finds(Planted::RestartWithoutAsking, records, silent((false, false)));
    finds(Planted::StageOfAnybody, order, silent((true, true)));
    finds(Planted::OverlappingLeaders, order, Setting { budget: leaders, ..setting(true, false) });
    finds(Planted::UnknownIsNo, unknown, Setting { plugin_reported: false, ..setting(true, false) });
    finds(Planted::UnstageUnderOthers, order, shared);
    let again = faults(|b, _| (b.copies, b.regrants) = (1, 1));
    let again = Setting { budget: again, ..setting(true, false) };
    finds(Planted::GenerationIgnored, order, again.clone());
    finds(Planted::NothingOfTheFirst, "rule 3: nothing is stuck", again);
    finds(Planted::UnknownIgnored, "rule 3: nothing is stuck", silent((true, false)));
}

/// Planted faults in the rules of a node must be found too.
#[test]
fn planted_faults_of_a_node_are_found() {
    let (order, settles) = ("rule 4: order of calls", "rule 3: quiet settles");
    let errors =
        |strict, stage| Setting { budget: faults(|b, _| b.errors = 1), strict, ..setting(true, stage) };
    let deaths = Setting {
        budget: faults(|b, _| b.deaths = 1),
        shared: true,
        nodes_of: [&[0], &[0]],
        ..setting(false, true)
    };
    finds(Planted::RefusalIsProof, order, errors(false, true));
    finds(Planted::WordIsTheOnlyProof, settles, errors(true, true));
    finds(Planted::StageInTheWay, settles, deaths.clone());
    finds(Planted::DeadStageUnderUsers, order, deaths.clone());
    finds(Planted::NewcomerIsUser, settles, deaths);
    finds(Planted::FailedIsNever, order, errors(false, true));
    finds(Planted::UnclearAttachIsRefused, settles, errors(false, false));
    let strict = Setting { strict_controller: true, ..errors(false, false) };
    finds(Planted::DetachRefusalIsProof, settles, strict.clone());
    finds(Planted::DetachIsOnlyRepeated, settles, strict);
}
