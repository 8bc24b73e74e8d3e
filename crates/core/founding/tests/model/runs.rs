//! The explored settings, and the violations that planted faults must cause.

use crate::servers::*;
use stateright::{Checker, HasDiscoveries, Model};

fn setting(servers: u8, expect: usize, crashes: u8) -> Setting {
    Setting { servers, expect, crashes, proposals: 2, planted: Planted::Nothing }
}

/// Explores all states within the bounds, and expects no violation.
fn holds(name: &str, setting: Setting) {
    let checker = setting.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states, {} of them different", checker.state_count(), checker.unique_state_count());
    for (property, path) in checker.discoveries() {
        if property != CLUSTER {
            let last = path.last_state().clone();
            panic!(
                "{name}: \"{property}\" is broken by\n{}which comes to {last:#?}",
                story(path.into_actions())
            );
        }
    }
    checker.assert_any_discovery(CLUSTER);
}

/// Explores until this property is broken, and shows the events.
fn finds(planted: Planted, property: &'static str, setting: Setting) {
    let setting = Setting { planted, ..setting };
    let expected = HasDiscoveries::AnyOf([property].into());
    let checker = setting.checker().threads(2).finish_when(expected).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{planted:?} was not found"));
    println!("{planted:?} breaks \"{property}\" by\n{}", story(path.into_actions()));
}

/// Returns the events, one per line.
fn story(events: Vec<Event>) -> String {
    events.iter().map(|event| format!("  {event:?}\n")).collect()
}

/// Of four servers, any three have two in common with any other three.
#[test]
fn overlapping_foundings() {
    holds("three of four", setting(4, 3, 0));
}

#[test]
fn overlapping_foundings_with_crashes() {
    holds("three of four, a crash", setting(4, 3, 1));
}

/// Two pairs that never saw each other make two clusters; other pairs overlap.
#[test]
fn disjoint_foundings() {
    holds("two of four, a crash", setting(4, 2, 1));
}

/// Each planted fault must be found.
#[test]
fn planted_faults_are_found() {
    finds(Planted::FirstSeenN, ONE_CLUSTER, setting(4, 3, 0));
    finds(Planted::Majority, ONE_CLUSTER, setting(4, 3, 0));
    // A promise may run out in each state: three servers have enough of them.
    finds(Planted::PromiseExpires, ONE_CLUSTER, setting(3, 2, 0));
    finds(Planted::PromiseNotStored, ONE_CLUSTER, setting(4, 3, 0));
    finds(Planted::AdmittedDespitePromise, ONE_VOTE, setting(4, 2, 0));
}
