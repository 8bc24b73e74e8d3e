//! Registered services, which are removed with their allocations and nodes.

use super::build::{World, job, key, node};
use crate::{Table, Topic};
use caravan_types::alloc::ClientStatus;
use caravan_types::command::Change;
use caravan_types::job::JobType;
use caravan_types::node::NodeStatus;
use caravan_types::service::ServiceRegistration;

fn row(id: &str, alloc: &str) -> ServiceRegistration {
    ServiceRegistration {
        id: id.into(),
        service_name: "web".into(),
        namespace: "default".into(),
        node_id: "n1".into(),
        job_id: "web".into(),
        alloc_id: alloc.into(),
        port: 80,
        ..Default::default()
    }
}

fn world() -> World {
    let mut world = World::default();
    world.node(node("n1"));
    world.register(&job("web", JobType::Service, 1), "e1");
    world.place("a1", &key("web"), "n1");
    world.apply(Change::ServicesRegister { services: vec![row("s1", "a1"), row("s2", "a1")] });
    world
}

fn ids(world: &World) -> Vec<String> {
    let by_name = world.root.services_by_name(&"default".into(), "web");
    by_name.map(|row| row.id.to_string()).collect()
}

#[test]
fn a_registration_is_found_by_all_its_owners_and_kept_as_it_is() {
    let mut world = world();
    assert_eq!(ids(&world), ["s1", "s2"]);
    assert_eq!(world.root.services_by_alloc(&"a1".into()).count(), 2);
    assert_eq!(world.root.services_by_node(&"n1".into()).count(), 2);
    assert_eq!(world.root.services_by_job(&key("web")).count(), 2);
    let index = world.root.table_index(Table::Services);
    world.apply(Change::ServicesRegister { services: vec![row("s1", "a1")] });
    assert_eq!(world.root.table_index(Table::Services), index, "nothing new was said");
    world.apply(Change::ServicesRegister {
        services: vec![ServiceRegistration { port: 81, ..row("s1", "a1") }],
    });
    let changed = world.root.service(&"s1".into()).unwrap();
    assert!(changed.create_index < changed.modify_index && changed.port == 81);
    let strict = |id: &str| Change::ServicesDeregister { services: vec![id.into()], strict: true };
    world.apply(strict("s1"));
    let refused = world.try_apply(strict("s1")).refused.unwrap();
    assert_eq!(refused.to_string(), "service registration not found");
    let watched = Topic::ServicesOfName("default".into(), "web".into());
    assert_ne!(watched, Topic::ServicesOfAlloc("a1".into()));
}

#[test]
fn registrations_go_with_their_allocation_and_their_node() {
    let mut ended = world();
    ended.report("a1", ClientStatus::Complete);
    assert_eq!(ids(&ended), [""; 0]);
    ended.apply(Change::ServicesRegister { services: vec![row("s3", "a1"), row("s4", "nobody")] });
    assert_eq!(ids(&ended), [""; 0], "what is over has no services");
    let mut down = world();
    let change =
        Change::NodeStatus { node: "n1".into(), status: NodeStatus::Down, event: None, evals: vec![] };
    down.apply(change);
    assert_eq!(ids(&down), [""; 0]);
    let mut gone = world();
    gone.apply(Change::NodeDelete { node: "n1".into(), evals: vec![] });
    assert_eq!(ids(&gone), [""; 0]);
}
