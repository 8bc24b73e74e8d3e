//! The steps of several servers, inserted between the steps of a schedule for one server.
//!
//! The storage steps of a seed are the same for any number of servers, so a failure of one seed can be compared.

use super::{Action, Step};
use crate::chaos::rng::Rng;

/// A constant that is combined with the seed, so that servers have other random numbers than the other steps.
const SALT: u64 = 0x5e17_5e17_5e17_5e17;
/// The percentage of steps before which a server's step is inserted.
const SHARE: u64 = 35;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Condition {
    #[default]
    Well,
    Off,
    Suspended,
    Cut,
}

/// Returns the steps with steps of servers between them. Most of the time a majority of the servers runs
/// and is connected; at times no majority exists, and the cluster waits for one.
pub(super) fn insert(seed: u64, count: usize, steps: Vec<Step>) -> Vec<Step> {
    let mut rng = Rng::new(seed ^ SALT);
    let mut servers = vec![Condition::default(); count];
    let mut all = Vec::new();
    for mut step in steps {
        // The first steps submit the jobs, without pauses.
        if step.pause_ms > 0 && rng.percent(SHARE) {
            all.push(Step { pause_ms: rng.below(1500), action: draw(&mut rng, &mut servers) });
        }
        if let Action::RestartServer { server, .. } = &mut step.action {
            let well: Vec<usize> = (0..count).filter(|n| servers[*n] == Condition::Well).collect();
            if well.is_empty() {
                continue;
            }
            *server = *rng.pick(&well);
        }
        all.push(step);
    }
    all
}

fn draw(rng: &mut Rng, servers: &mut [Condition]) -> Action {
    let ill: Vec<usize> = (0..servers.len()).filter(|n| servers[*n] != Condition::Well).collect();
    let minority = (servers.len() - 1) / 2;
    let heals = ill.len() > minority || (ill.len() == minority && !rng.percent(15));
    if heals && !ill.is_empty() {
        let number = *rng.pick(&ill);
        return match std::mem::take(&mut servers[number]) {
            Condition::Suspended => Action::ResumeServer(number),
            Condition::Cut => Action::MendServer(number),
            Condition::Off | Condition::Well => Action::StartServer(number),
        };
    }
    if rng.percent(15) {
        return Action::TransferLeadership;
    }
    let well: Vec<usize> = (0..servers.len()).filter(|n| servers[*n] == Condition::Well).collect();
    let number = *rng.pick(&well);
    let (condition, action) = match rng.below(3) {
        0 => (Condition::Off, Action::KillServer(number)),
        1 => (Condition::Suspended, Action::SuspendServer(number)),
        _ => (Condition::Cut, Action::CutServer(number)),
    };
    servers[number] = condition;
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage() -> Vec<Step> {
        let step = |n: u64| Step { pause_ms: n + 1, action: Action::Stop(0) };
        (0..40).map(step).collect()
    }

    #[test]
    fn the_storage_steps_stay_in_order_and_a_seed_is_one_schedule() {
        for seed in 0..200 {
            let steps = insert(seed, 3, storage());
            assert_eq!(steps, insert(seed, 3, storage()));
            let rest: Vec<Step> =
                steps.into_iter().filter(|step| matches!(step.action, Action::Stop(_))).collect();
            assert_eq!(rest, storage());
        }
    }

    #[test]
    fn every_step_occurs_and_fits_the_condition_of_its_server() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut servers = [Condition::Well; 3];
            for step in insert(seed, 3, storage()) {
                let (number, before, after) = match step.action {
                    Action::KillServer(n) => (n, Condition::Well, Condition::Off),
                    Action::StartServer(n) => (n, Condition::Off, Condition::Well),
                    Action::SuspendServer(n) => (n, Condition::Well, Condition::Suspended),
                    Action::ResumeServer(n) => (n, Condition::Suspended, Condition::Well),
                    Action::CutServer(n) => (n, Condition::Well, Condition::Cut),
                    Action::MendServer(n) => (n, Condition::Cut, Condition::Well),
                    _ => continue,
                };
                assert_eq!(servers[number], before, "seed {seed}: {step:?}");
                servers[number] = after;
                kinds.insert((before as u8, after as u8));
                let ill = servers.iter().filter(|condition| **condition != Condition::Well).count();
                assert!(ill <= 2, "seed {seed}: {ill} servers are ill");
            }
        }
        assert_eq!(kinds.len(), 6);
    }
}
