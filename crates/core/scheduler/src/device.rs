//! The devices of nodes: the devices that match a request, and the free instances (docs/reference/drivers.md, section
//! 9.1, docs/reference/http-api.md, section 5.4).

mod value;

use crate::cores::place_of_bus;
use crate::rank;
use caravan_lang::constraint::{Matcher, Operator};
use caravan_types::alloc::{AllocatedDevice, Allocation};
use caravan_types::device::{DeviceGroup, DeviceInstance};
use caravan_types::job::{RequestedDevice, TaskGroup};
use caravan_types::node::Node;
use std::collections::{BTreeMap, BTreeSet};
use value::holds;

/// The instances in use: vendor, type, name and id.
pub(crate) type Taken = BTreeSet<(String, String, String, String)>;

/// The name of a group's instance ids in conditions. A constraint on it limits the instances that may be assigned.
const IDS: &str = "${device.ids}";

/// Returns the device instances that an allocation uses.
pub(crate) fn of_alloc(alloc: &Allocation) -> impl Iterator<Item = (String, String, String, String)> + '_ {
    let tasks = alloc.allocated_resources.iter().flat_map(|supplied| supplied.tasks.values());
    tasks.flat_map(|task| &task.devices).flat_map(|device| {
        let of =
            move |id: &String| (device.vendor.clone(), device.kind.clone(), device.name.clone(), id.clone());
        device.device_ids.iter().map(of)
    })
}

/// A device request of a group.
#[derive(Clone, Copy)]
pub(crate) struct Requested<'a> {
    task: &'a str,
    request: &'a RequestedDevice,
    /// Whether the instances must belong to the NUMA node of the task's cores.
    near: bool,
}

/// Returns the device requests of a group.
pub(crate) fn requested(group: &TaskGroup) -> impl Iterator<Item = Requested<'_>> {
    let of_task = |task| {
        let task: &caravan_types::job::Task = task;
        let near: Vec<&str> = match (task.resources.numa_wish(), &task.resources.numa) {
            (Some(_), Some(numa)) => numa.devices.iter().flatten().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        task.resources.devices.iter().filter(|request| request.count > 0).map(move |request| Requested {
            task: &task.name,
            request,
            near: near.contains(&request.name.as_str()),
        })
    };
    group.tasks.iter().flat_map(of_task)
}

/// Returns whether some devices of a group must belong to the NUMA node of its cores.
pub(crate) fn near_cores(group: &TaskGroup) -> bool {
    requested(group).any(|requested| requested.near)
}

/// Returns whether a request names a device: `type`, `vendor/type` or `vendor/type/name`.
fn is_called(device: &DeviceGroup, request: &str) -> bool {
    let mut parts = request.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(kind), None, None) => kind == device.kind,
        (Some(vendor), Some(kind), None) => vendor == device.vendor && kind == device.kind,
        (Some(vendor), Some(kind), Some(name)) => {
            vendor == device.vendor && kind == device.kind && name == device.name
        }
        _ => false,
    }
}

fn key(device: &DeviceGroup, id: &str) -> (String, String, String, String) {
    (device.vendor.clone(), device.kind.clone(), device.name.clone(), id.to_owned())
}

/// Returns whether a kind of device matches a request, apart from the number of its instances.
fn suits(matcher: &mut Matcher, device: &DeviceGroup, request: &RequestedDevice) -> bool {
    is_called(device, &request.name)
        && request
            .constraints
            .iter()
            .filter(|constraint| constraint.l_target.trim() != IDS)
            .all(|c| holds(matcher, device, &c.l_target, &c.operand, &c.r_target))
}

/// Returns the healthy instances that a request may get, in the order of the node.
fn eligible<'n>(
    matcher: &mut Matcher,
    device: &'n DeviceGroup,
    request: &RequestedDevice,
) -> Vec<&'n DeviceInstance> {
    let on_ids = || request.constraints.iter().filter(|c| c.l_target.trim() == IDS);
    let healthy: Vec<&DeviceInstance> = device.instances.iter().filter(|one| one.healthy).collect();
    let all = healthy.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(",");
    for constraint in on_ids() {
        let Ok(operator) = Operator::parse(&constraint.operand) else { return Vec::new() };
        // Each instance is checked separately, but only several instances together contain all elements of a set.
        if operator == Operator::SetContainsAll
            && !matcher.check(Some(&all), operator, Some(&constraint.r_target))
        {
            return Vec::new();
        }
    }
    let permits = |matcher: &mut Matcher, one: &DeviceInstance| {
        on_ids().all(|constraint| {
            let operator = match Operator::parse(&constraint.operand) {
                Ok(Operator::SetContainsAll) => Operator::SetContainsAny,
                Ok(operator) => operator,
                Err(_) => return false,
            };
            matcher.check(Some(&one.id), operator, Some(&constraint.r_target))
        })
    };
    healthy.into_iter().filter(|one| permits(matcher, one)).collect()
}

/// Returns whether a node has devices of the requested kinds, which all nodes of its class then have.
pub(crate) fn known(matcher: &mut Matcher, node: &Node, group: &TaskGroup) -> bool {
    requested(group).all(|requested| {
        node.node_resources.devices.iter().any(|device| suits(matcher, device, requested.request))
    })
}

/// Returns whether a node has enough healthy devices, even if they are in use.
pub(crate) fn exist(matcher: &mut Matcher, node: &Node, group: &TaskGroup) -> bool {
    offer(matcher, node, &Taken::new(), group, None).is_ok()
}

/// The devices that are assigned to a group, by task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offer {
    pub by_task: BTreeMap<String, Vec<AllocatedDevice>>,
    /// The degree to which affinities are met, -1 to 1; `None` without affinities.
    pub affinity: Option<f64>,
}

/// A kind of device that meets a request.
struct Choice<'n> {
    score: i64,
    device: &'n DeviceGroup,
    ids: Vec<String>,
}

/// Returns the kinds of devices that meet a request with free instances, in descending order of the affinities that
/// they meet.
fn choices<'n>(
    matcher: &mut Matcher,
    node: &'n Node,
    used: impl Fn(&(String, String, String, String)) -> bool,
    requested: Requested<'_>,
    place: Option<u64>,
) -> Vec<Choice<'n>> {
    let request = requested.request;
    let count = usize::try_from(request.count).unwrap_or(usize::MAX);
    let mut out = Vec::new();
    for device in &node.node_resources.devices {
        if !suits(matcher, device, request) {
            continue;
        }
        let is_near = |one: &&DeviceInstance| match place.filter(|_| requested.near) {
            Some(place) => {
                let bus = one.locality.as_ref().map(|locality| locality.pci_bus_id.as_str());
                place_of_bus(node, bus) == Some(place)
            }
            None => true,
        };
        let eligible = eligible(matcher, device, request);
        let free = eligible.into_iter().filter(is_near).filter(|one| !used(&key(device, &one.id)));
        let ids: Vec<String> = free.take(count).map(|one| one.id.clone()).collect();
        if ids.len() < count {
            continue;
        }
        let mut score = 0_i64;
        for wish in &request.affinities {
            if holds(matcher, device, &wish.l_target, &wish.operand, &wish.r_target) {
                score = score.saturating_add(wish.weight);
            }
        }
        out.push(Choice { score, device, ids });
    }
    out.sort_by_key(|choice| std::cmp::Reverse(choice.score));
    out
}

/// The maximum number of steps of the search for an assignment. If a group needs more steps, its remaining requests
/// are assigned greedily.
const MAX_STEPS: usize = 256;

/// Assigns devices to the remaining requests. Tries the next kind if a later request has no match.
fn assign<'n>(
    matcher: &mut Matcher,
    node: &'n Node,
    taken: &Taken,
    place: Option<u64>,
    left: &[Requested<'_>],
    (chosen, steps): (&mut Vec<Choice<'n>>, &mut usize),
) -> bool {
    let Some((first, rest)) = left.split_first() else { return true };
    let now: Taken = chosen.iter().flat_map(|c| c.ids.iter().map(|id| key(c.device, id))).collect();
    let used = |key: &(String, String, String, String)| taken.contains(key) || now.contains(key);
    for choice in choices(matcher, node, used, *first, place) {
        *steps += 1;
        chosen.push(choice);
        if assign(matcher, node, taken, place, rest, (&mut *chosen, &mut *steps)) {
            return true;
        }
        chosen.pop();
        if *steps >= MAX_STEPS {
            return false;
        }
    }
    false
}

/// Returns the devices that a node would assign to a group: for each request, the kind that meets its affinities
/// best. Devices that must be near cores belong to the NUMA node `place`, if it is `Some`. Nothing is recorded. The
/// error is the exhausted dimension.
pub(crate) fn offer(
    matcher: &mut Matcher,
    node: &Node,
    taken: &Taken,
    group: &TaskGroup,
    place: Option<u64>,
) -> Result<Offer, String> {
    let asked: Vec<Requested<'_>> = requested(group).collect();
    let mut chosen = Vec::new();
    if !assign(matcher, node, taken, place, &asked, (&mut chosen, &mut 0)) {
        return Err("devices: no devices match request".to_owned());
    }
    let mut supplied = Offer::default();
    let (mut met, mut total) = (0_i64, 0_i64);
    for (requested, choice) in asked.into_iter().zip(chosen) {
        met = met.saturating_add(choice.score);
        let weights = requested.request.affinities.iter().map(|wish| wish.weight.saturating_abs());
        total = weights.fold(total, i64::saturating_add);
        supplied.by_task.entry(requested.task.to_owned()).or_default().push(AllocatedDevice {
            vendor: choice.device.vendor.clone(),
            kind: choice.device.kind.clone(),
            name: choice.device.name.clone(),
            device_ids: choice.ids,
        });
    }
    supplied.affinity = (total != 0).then(|| rank::ratio(met, total));
    Ok(supplied)
}

#[cfg(test)]
mod tests;
