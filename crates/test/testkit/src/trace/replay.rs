//! A replay of the log, call by call.

use super::{Deed, Event, Line, Setting};
use caravan_volumes::invariants::{Call, Outside, Verb};
use std::collections::{BTreeMap, BTreeSet};

/// A node and a path on it.
type Place = (String, String);

/// The plugin's state of a volume at the end of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// The nodes to which the volume is attached.
    pub attached: BTreeSet<String>,
    /// The places where the volume is staged.
    pub staged: BTreeSet<Place>,
    /// The places where the volume is published.
    pub published: BTreeSet<Place>,
    /// Effects that may exist because the creating call failed or got no response: the verb of that call, node,
    /// and path (empty for an attachment). They must be undone.
    pub owed: BTreeSet<(Verb, String, String)>,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// All violations, with their times.
    pub wrong: Vec<String>,
    /// The final state by volume.
    pub held: BTreeMap<String, Held>,
    /// The number of replayed calls about volumes; a test can check that it is not zero.
    pub calls: usize,
}

#[derive(Debug, Default)]
struct Volume {
    outside: Outside<String>,
    owed: BTreeSet<(Verb, String, String)>,
}

/// The calls in progress: by instance, process and number.
type Open = BTreeMap<(String, u32, u64), (String, Call<String>)>;

/// Replays a log and checks the order of each volume's calls, with at most one in progress.
pub fn check(lines: &[Line], setting: &Setting) -> Checked {
    let mut notes = setting.notes.clone();
    notes.sort_by_key(|note| note.t_ns);
    let mut notes = notes.into_iter().peekable();
    let mut replay = Replay {
        setting,
        volumes: BTreeMap::new(),
        open: Open::new(),
        lost: BTreeSet::new(),
        done: Checked::default(),
    };
    for line in lines {
        while let Some(note) = notes.next_if(|note| note.t_ns <= line.t_ns) {
            replay.deed(&note.deed);
        }
        replay.line(line);
    }
    notes.for_each(|note| replay.deed(&note.deed));
    let left: Vec<_> = replay.open.keys().cloned().collect();
    left.iter().for_each(|key| replay.unanswered(key));
    for (name, volume) in replay.volumes {
        let Outside { attached, staged, published, .. } = volume.outside;
        let published = published.into_keys().collect();
        replay.done.held.insert(name, Held { attached, staged, published, owed: volume.owed });
    }
    replay.done
}

struct Replay<'s> {
    setting: &'s Setting,
    volumes: BTreeMap<String, Volume>,
    open: Open,
    lost: BTreeSet<String>,
    done: Checked,
}

impl Replay<'_> {
    fn volume(&mut self, name: &str) -> &mut Volume {
        let lost = &self.lost;
        self.volumes.entry(name.to_owned()).or_insert_with(|| Volume {
            outside: Outside { lost: lost.clone(), ..Outside::default() },
            owed: BTreeSet::new(),
        })
    }

    fn deed(&mut self, deed: &Deed) {
        match deed {
            Deed::Lost { node } => {
                self.lost.insert(node.clone());
                for volume in self.volumes.values_mut() {
                    volume.outside.lost.insert(node.clone());
                }
            }
            Deed::Back { node } => {
                self.lost.remove(node);
                for volume in self.volumes.values_mut() {
                    volume.outside.lost.remove(node);
                }
            }
            Deed::AgentDied { node } => {
                let of_it = self.open.iter().filter(|((instance, ..), _)| instance == node);
                let orphans: Vec<_> = of_it.map(|(_, open)| open.clone()).collect();
                for (volume, call) in orphans {
                    // The plugin may still respond to the call, but the call no longer excludes other calls.
                    self.volume(&volume).outside.end(&call);
                }
            }
            Deed::Wiped { node } => {
                for volume in self.volumes.values_mut() {
                    volume.outside.staged.retain(|(at, _)| at != node);
                    volume.outside.stale.retain(|(at, _)| at != node);
                    volume.outside.published.retain(|(at, _), _| at != node);
                    volume.owed.retain(|(verb, at, _)| at != node || *verb == Verb::ControllerPublish);
                }
            }
        }
    }

    fn line(&mut self, line: &Line) {
        let key = (line.instance.clone(), line.pid, line.id);
        match line.event {
            Event::Start => {
                let dead: Vec<_> = self
                    .open
                    .keys()
                    .filter(|(instance, pid, _)| *instance == line.instance && *pid != line.pid)
                    .cloned()
                    .collect();
                dead.iter().for_each(|key| self.unanswered(key));
            }
            Event::Begin => {
                let Some(verb) = Verb::of_call(&line.call) else { return };
                if line.volume.is_empty() {
                    return;
                }
                let node = if line.node.is_empty() { &line.instance } else { &line.node };
                let call = Call {
                    verb,
                    node: node.clone(),
                    target: line.target.clone(),
                    staging: line.staging.clone(),
                };
                let needs = self.setting.needs;
                let wrong = self.volume(&line.volume).outside.begin(&line.volume, needs, call.clone());
                let at = line.t_ns;
                self.done.wrong.extend(wrong.iter().map(|w| format!("at {at} ns: {w}")));
                self.done.calls += 1;
                self.open.insert(key, (line.volume.clone(), call));
            }
            Event::End => {
                let Some((name, call)) = self.open.remove(&key) else { return };
                let volume = self.volume(&name);
                volume.outside.end(&call);
                let absent = line.code == "NotFound" || line.unknown;
                let done = line.code == "OK" || (absent && undone_by(&call).is_some());
                if done {
                    volume.outside.take_effect(&call);
                    volume.owed.remove(&place(call.verb, &call));
                    if let Some(made) = undone_by(&call) {
                        volume.owed.remove(&place(made, &call));
                    }
                } else if line.effect || line.code == "Cancelled" {
                    volume.owes(&call);
                }
            }
        }
    }

    /// Ends a call without a response: its effect may exist.
    fn unanswered(&mut self, key: &(String, u32, u64)) {
        let Some((name, call)) = self.open.remove(key) else { return };
        let volume = self.volume(&name);
        volume.outside.end(&call);
        volume.owes(&call);
    }
}

impl Volume {
    fn owes(&mut self, call: &Call<String>) {
        let (node, outside) = (&call.node, &self.outside);
        let known = match call.verb {
            Verb::ControllerPublish => outside.attached.contains(node),
            Verb::Stage => outside.staged.contains(&(node.clone(), call.staging.clone())),
            Verb::Publish => outside.published.contains_key(&(node.clone(), call.target.clone())),
            _ => true,
        };
        if !known {
            self.owed.insert(place(call.verb, call));
        }
    }
}

/// Returns the verb of the call that `call` undoes.
fn undone_by(call: &Call<String>) -> Option<Verb> {
    match call.verb {
        Verb::ControllerUnpublish => Some(Verb::ControllerPublish),
        Verb::Unstage => Some(Verb::Stage),
        Verb::Unpublish => Some(Verb::Publish),
        _ => None,
    }
}

fn place(made: Verb, call: &Call<String>) -> (Verb, String, String) {
    let path = match made {
        Verb::Stage => call.staging.clone(),
        Verb::Publish => call.target.clone(),
        _ => String::new(),
    };
    (made, call.node.clone(), path)
}
