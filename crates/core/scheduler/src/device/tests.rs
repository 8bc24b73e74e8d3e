use super::*;
use caravan_types::device::{DeviceAttribute, DeviceLocality};
use caravan_types::job::{Affinity, Constraint, Numa, Task};
use caravan_types::node::Hardware;
use serde_json::json;

fn device(name: &str, memory: i64, ids: &[&str]) -> DeviceGroup {
    let instance = |id: &&str| DeviceInstance { id: (*id).to_owned(), healthy: true, ..Default::default() };
    DeviceGroup {
        vendor: "nvidia".into(),
        kind: "gpu".into(),
        name: name.into(),
        instances: ids.iter().map(instance).collect(),
        attributes: [("memory".to_owned(), DeviceAttribute::int(memory, "MiB"))].into(),
    }
}

fn node() -> Node {
    let mut node = Node::default();
    node.node_resources.devices = vec![device("small", 4096, &["a", "b"]), device("big", 16384, &["c"])];
    node
}

fn request(name: &str, count: u64) -> RequestedDevice {
    RequestedDevice { name: name.into(), count, ..RequestedDevice::default() }
}

fn constraint(left: &str, operand: &str, right: &str) -> Constraint {
    Constraint { l_target: left.into(), operand: operand.into(), r_target: right.into() }
}

fn group(requests: Vec<RequestedDevice>) -> TaskGroup {
    let mut task = Task { name: "t".into(), ..Task::default() };
    task.resources.devices = requests;
    TaskGroup { tasks: vec![task], ..TaskGroup::default() }
}

fn offered(node: &Node, requests: Vec<RequestedDevice>, taken: &Taken) -> Result<Vec<String>, String> {
    let offer = offer(&mut Matcher::new(), node, taken, &group(requests), None)?;
    Ok(offer.by_task["t"].iter().flat_map(|d| d.device_ids.clone()).collect())
}

#[test]
fn names_constraints_and_wishes_pick_the_kind() {
    let none = Taken::new();
    let memory = "${device.attr.memory}";
    let at_least = |value: &str| RequestedDevice {
        constraints: vec![constraint(memory, ">=", value)],
        ..request("gpu", 1)
    };
    let wish = |weight: i64| RequestedDevice {
        affinities: vec![Affinity {
            l_target: memory.into(),
            operand: ">".into(),
            r_target: "8GB".into(),
            weight,
        }],
        ..request("gpu", 1)
    };
    let one = |request: RequestedDevice| offered(&node(), vec![request], &none);
    assert_eq!(one(request("gpu", 1)).unwrap(), ["a"]);
    assert_eq!(one(request("nvidia/gpu/big", 1)).unwrap(), ["c"]);
    assert_eq!(one(at_least("8 GiB")).unwrap(), ["c"]);
    assert_eq!(one(wish(50)).unwrap(), ["c"]);
    assert_eq!(one(wish(-50)).unwrap(), ["a"]);
    assert!(one(request("fpga", 1)).is_err());
    let exists = |count| exist(&mut Matcher::new(), &node(), &group(vec![request("gpu", count)]));
    assert!(exists(2) && !exists(3), "all instances of a request are of one kind");
    let score = |weight| {
        let asked = group(vec![wish(weight)]);
        offer(&mut Matcher::new(), &node(), &none, &asked, None).unwrap().affinity
    };
    assert_eq!((score(50), score(-50)), (Some(1.0), Some(0.0)));
}

#[test]
fn an_instance_is_assigned_once_and_only_if_it_is_healthy() {
    let mut taken = Taken::new();
    taken.insert(("nvidia".into(), "gpu".into(), "small".into(), "a".into()));
    let small = |count| vec![request("nvidia/gpu/small", count)];
    assert_eq!(offered(&node(), small(1), &taken).unwrap(), ["b"]);
    assert_eq!(offered(&node(), small(2), &taken), Err("devices: no devices match request".into()));
    let mut sick = node();
    sick.node_resources.devices[0].instances[0].healthy = false;
    assert_eq!(offered(&sick, small(1), &Taken::new()).unwrap(), ["b"]);
    assert!(offered(&sick, small(2), &Taken::new()).is_err());
    let asked = group(small(2));
    assert!(known(&mut Matcher::new(), &sick, &asked) && !exist(&mut Matcher::new(), &sick, &asked));
}

#[test]
fn requests_of_one_group_leave_each_other_what_they_need() {
    let none = Taken::new();
    let all = vec![request("gpu", 1), request("nvidia/gpu/small", 2)];
    assert_eq!(offered(&node(), all, &none).unwrap(), ["c", "a", "b"]);
    let too_many = vec![request("gpu", 2), request("nvidia/gpu/small", 1)];
    assert!(offered(&node(), too_many, &none).is_err());
}

#[test]
fn a_condition_on_ids_limits_the_instances() {
    let with = |operand: &str, value: &str, count| {
        let constraints = vec![constraint("${device.ids}", operand, value)];
        offered(&node(), vec![RequestedDevice { constraints, ..request("gpu", count) }], &Taken::new())
    };
    assert_eq!(with("set_contains_any", "b,c", 1).unwrap(), ["b"]);
    assert_eq!(with("set_contains", "c", 1).unwrap(), ["c"]);
    assert_eq!(with("set_contains", "b,a", 2).unwrap(), ["a", "b"]);
    assert_eq!(with("=", "c", 1).unwrap(), ["c"]);
    assert_eq!(with("!=", "a", 1).unwrap(), ["b"]);
    assert!(with("set_contains_any", "b,c", 2).is_err());
    assert!(with("set_contains", "a,c", 1).is_err());
}

#[test]
fn devices_near_cores_are_of_the_named_numa_node() {
    let mut node = node();
    let at = |bus: &str| Some(DeviceLocality { pci_bus_id: bus.into() });
    let [a, b] = &mut node.node_resources.devices[0].instances[..] else { unreachable!("there are two") };
    (a.locality, b.locality) = (at("0000:01:00.0"), at("0000:81:00.0"));
    node.node_resources.processors.topology = Some(Hardware(json!({
        "Nodes": [0, 1],
        "BusAssociativity": {"0000:01:00.0": 0, "0000:81:00.0": 1},
    })));
    let mut asked = group(vec![request("gpu", 1)]);
    asked.tasks[0].resources.numa =
        Some(Box::new(Numa { affinity: "require".into(), devices: Some(vec!["gpu".into()]) }));
    assert!(near_cores(&asked));
    let ids = |place| {
        let offer = offer(&mut Matcher::new(), &node, &Taken::new(), &asked, Some(place)).ok()?;
        Some(offer.by_task["t"][0].device_ids.clone())
    };
    assert_eq!((ids(0), ids(1), ids(2)), (Some(vec!["a".into()]), Some(vec!["b".into()]), None));
    asked.tasks[0].resources.numa =
        Some(Box::new(Numa { affinity: "none".into(), devices: Some(vec!["gpu".into()]) }));
    assert!(!near_cores(&asked), "without affinity the place of the cores does not matter");
}
