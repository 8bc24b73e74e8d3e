//! The sentences about decisions that users read.

use crate::world::{World, job, volume, with_volume};
use caravan_scheduler::explain;
use caravan_types::job::JobType;
use caravan_types::volume::AccessMode;

#[test]
fn a_blocked_evaluation_says_what_would_help() {
    let mut world = World::with_nodes(&["n1", "n2"]);
    world.install_plugin(0);
    world.change_node("n2", |n| n.drivers.clear());
    world.set_volume(volume("data", AccessMode::SingleNodeWriter));
    for name in ["first", "second"] {
        let expected = job(name, JobType::Service, 1);
        world.register(with_volume(expected, "data", AccessMode::SingleNodeWriter));
        world.run(name);
    }
    let blocked = world.blocked()[0];
    assert_eq!(
        explain(blocked),
        [
            "Task group \"g\" (1 allocation not placed): 1 node does not qualify: CSI volume data has \
             exhausted its available writer claims.",
            "Task group \"g\" (1 allocation not placed): 1 node lacks a healthy driver that the group needs.",
            "Waits for a claim on volume \"data\" in namespace \"default\" to be released.",
        ]
    );
}
