//! Devices of nodes: which devices match a request, and which instances are free (docs/reference/jobspec.md, section
//! 4.11, docs/reference/http-api.md, section 5.4).

use crate::rank;
use caravan_lang::constraint::{Matcher, Operator, Targets};
use caravan_types::alloc::{AllocatedDevice, Allocation};
use caravan_types::job::{RequestedDevice, TaskGroup};
use caravan_types::node::Node;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Instances in use: vendor, type, name and id.
pub(crate) type Taken = BTreeSet<(String, String, String, String)>;

/// Returns the device instances that an allocation uses.
pub(crate) fn of_alloc(alloc: &Allocation) -> impl Iterator<Item = (String, String, String, String)> + '_ {
    let tasks = alloc.allocated_resources.iter().flat_map(|supplied| supplied.tasks.values());
    tasks.flat_map(|task| &task.devices).flat_map(|device| {
        let of =
            move |id: &String| (device.vendor.clone(), device.kind.clone(), device.name.clone(), id.clone());
        device.device_ids.iter().map(of)
    })
}

/// Returns the device requests of a group, with the task of each.
pub(crate) fn requested(group: &TaskGroup) -> impl Iterator<Item = (&str, &RequestedDevice)> {
    let tasks = group.tasks.iter();
    tasks
        .flat_map(|task| task.resources.devices.iter().map(move |d| (task.name.as_str(), d)))
        .filter(|(_, d)| d.count > 0)
}

/// A kind of device on a node, with its instances.
pub(crate) struct Group {
    vendor: String,
    kind: String,
    name: String,
    ids: Vec<String>,
    attributes: BTreeMap<String, String>,
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Group {
    /// Returns the devices that a node reports; unhealthy instances do not count.
    pub fn of_node(node: &Node) -> Vec<Self> {
        node.node_resources.devices.iter().map(|device| Self::read(&device.0)).collect()
    }

    fn read(value: &Value) -> Self {
        let instances = value.get("Instances").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let healthy = |i: &&Value| i.get("Healthy").and_then(Value::as_bool).unwrap_or(false);
        let attributes = value.get("Attributes").and_then(Value::as_object);
        Self {
            vendor: text(value, "Vendor"),
            kind: text(value, "Type"),
            name: text(value, "Name"),
            ids: instances.iter().filter(healthy).map(|i| text(i, "ID")).collect(),
            attributes: attributes
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), attribute(value)?)))
                .collect(),
        }
    }

    /// Returns whether a request names this device: `type`, `vendor/type` or `vendor/type/name`.
    fn is_called(&self, request: &str) -> bool {
        let mut parts = request.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(kind), None, None) => kind == self.kind,
            (Some(vendor), Some(kind), None) => vendor == self.vendor && kind == self.kind,
            (Some(vendor), Some(kind), Some(name)) => {
                vendor == self.vendor && kind == self.kind && name == self.name
            }
            _ => false,
        }
    }

    fn key(&self, id: &str) -> (String, String, String, String) {
        (self.vendor.clone(), self.kind.clone(), self.name.clone(), id.to_owned())
    }
}

/// Returns one attribute as text; a number keeps its unit.
fn attribute(value: &Value) -> Option<String> {
    let unit = value.get("Unit").and_then(Value::as_str).unwrap_or_default();
    ["Float", "Int", "String", "Bool"].iter().find_map(|key| match value.get(*key)? {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(format!("{number}{unit}")),
        _ => None,
    })
}

struct DeviceTargets<'a>(&'a Group);

impl Targets for DeviceTargets<'_> {
    fn target(&self, name: &str) -> Option<Cow<'_, str>> {
        let group = self.0;
        if let Some(key) = name.strip_prefix("device.attr.") {
            return group.attributes.get(key).map(|value| Cow::Borrowed(value.as_str()));
        }
        match name {
            "device.vendor" => Some(Cow::Borrowed(group.vendor.as_str())),
            "device.type" => Some(Cow::Borrowed(group.kind.as_str())),
            "device.model" => Some(Cow::Borrowed(group.name.as_str())),
            "device.ids" => Some(Cow::Owned(group.ids.join(","))),
            _ => None,
        }
    }
}

/// Parses a number with a unit into base units and the measured quantity; `None` if the text is something else.
fn quantity(text: &str) -> Option<(f64, &'static str)> {
    let text = text.trim();
    let split =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let (unit, measure) = match unit.strip_suffix("/s") {
        Some(unit) => (unit, "rate"),
        None => (unit, "size"),
    };
    let binary = |power: i32| 1024_f64.powi(power);
    let decimal = |power: i32| 1000_f64.powi(power);
    let (factor, measure) = match unit {
        "" => (1.0, "count"),
        "B" => (1.0, measure),
        "kB" | "KB" => (decimal(1), measure),
        "MB" => (decimal(2), measure),
        "GB" => (decimal(3), measure),
        "TB" => (decimal(4), measure),
        "PB" => (decimal(5), measure),
        "EB" => (decimal(6), measure),
        "KiB" => (binary(1), measure),
        "MiB" => (binary(2), measure),
        "GiB" => (binary(3), measure),
        "TiB" => (binary(4), measure),
        "PiB" => (binary(5), measure),
        "EiB" => (binary(6), measure),
        "Hz" => (1.0, "frequency"),
        "kHz" | "KHz" => (decimal(1), "frequency"),
        "MHz" => (decimal(2), "frequency"),
        "GHz" => (decimal(3), "frequency"),
        "mW" => (0.001, "power"),
        "W" => (1.0, "power"),
        "kW" | "KW" => (decimal(1), "power"),
        "MW" => (decimal(2), "power"),
        "GW" => (decimal(3), "power"),
        _ => return None,
    };
    Some((number * factor, measure))
}

/// Returns whether a condition holds for a kind of device. Quantities are compared with their units, everything else as
/// for nodes.
fn holds(matcher: &mut Matcher, group: &Group, left: &str, operand: &str, right: &str) -> bool {
    use caravan_lang::constraint::resolve;
    let Ok(operator) = Operator::parse(operand) else { return false };
    let targets = DeviceTargets(group);
    let (l, r) = (resolve(left, &targets), resolve(right, &targets));
    let compared = matches!(
        operator,
        Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessEqual
            | Operator::Greater
            | Operator::GreaterEqual
    );
    if compared && let (Some(l), Some(r)) = (l.as_deref().and_then(quantity), r.as_deref().and_then(quantity))
    {
        if l.1 != r.1 {
            return operator == Operator::NotEqual;
        }
        return match operator {
            Operator::Less => l.0 < r.0,
            Operator::LessEqual => l.0 <= r.0,
            Operator::Greater => l.0 > r.0,
            Operator::GreaterEqual => l.0 >= r.0,
            Operator::NotEqual => (l.0 - r.0).abs() > f64::EPSILON * l.0.abs(),
            _ => (l.0 - r.0).abs() <= f64::EPSILON * l.0.abs(),
        };
    }
    // Devices share this rule with nodes: a missing value differs from every value.
    matcher.check(l.as_deref(), operator, r.as_deref())
}

fn suits(matcher: &mut Matcher, group: &Group, request: &RequestedDevice) -> bool {
    group.is_called(&request.name)
        && request.constraints.iter().all(|c| holds(matcher, group, &c.l_target, &c.operand, &c.r_target))
}

/// Returns whether a node has the devices at all, even if they are in use.
pub(crate) fn exist(matcher: &mut Matcher, node: &Node, group: &TaskGroup) -> bool {
    let has = Group::of_node(node);
    let mut asked: BTreeMap<usize, u64> = BTreeMap::new();
    requested(group).all(|(_, request)| {
        let found = has.iter().enumerate().find(|(at, device)| {
            let left = (device.ids.len() as u64).saturating_sub(asked.get(at).copied().unwrap_or(0));
            left >= request.count && suits(matcher, device, request)
        });
        match found {
            Some((at, _)) => {
                *asked.entry(at).or_default() += request.count;
                true
            }
            None => false,
        }
    })
}

/// Devices that are given to a group, by task.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offer {
    pub by_task: BTreeMap<String, Vec<AllocatedDevice>>,
    /// How well affinities are met, -1 to 1; `None` without affinities.
    pub affinity: Option<f64>,
}

/// Returns the devices that a node would give to a group: for each request the kind that meets its affinities best.
/// Nothing is recorded. The error is the exhausted dimension.
pub(crate) fn offer(
    matcher: &mut Matcher,
    node: &Node,
    taken: &Taken,
    group: &TaskGroup,
) -> Result<Offer, String> {
    let has = Group::of_node(node);
    let mut supplied = Offer::default();
    let mut taken_now = Taken::new();
    let (mut met, mut total) = (0_i64, 0_i64);
    for (task, request) in requested(group) {
        let wishes = &request.affinities;
        let count = usize::try_from(request.count).unwrap_or(usize::MAX);
        let mut best: Option<(i64, &Group, Vec<String>)> = None;
        for device in has.iter().filter(|d| d.is_called(&request.name)) {
            if !suits(matcher, device, request) {
                continue;
            }
            let is_free = |id: &&String| {
                let key = device.key(id);
                !taken.contains(&key) && !taken_now.contains(&key)
            };
            let free: Vec<String> = device.ids.iter().filter(is_free).take(count).cloned().collect();
            if free.len() < count {
                continue;
            }
            let mut score = 0_i64;
            for wish in wishes {
                if holds(matcher, device, &wish.l_target, &wish.operand, &wish.r_target) {
                    score = score.saturating_add(wish.weight);
                }
            }
            if best.as_ref().is_none_or(|(known, ..)| score > *known) {
                best = Some((score, device, free));
            }
        }
        let (score, device, ids) = best.ok_or_else(|| "devices: no devices match request".to_owned())?;
        met = met.saturating_add(score);
        total = wishes.iter().fold(total, |sum, wish| sum.saturating_add(wish.weight.saturating_abs()));
        taken_now.extend(ids.iter().map(|id| device.key(id)));
        supplied.by_task.entry(task.to_owned()).or_default().push(AllocatedDevice {
            vendor: device.vendor.clone(),
            kind: device.kind.clone(),
            name: device.name.clone(),
            device_ids: ids,
        });
    }
    supplied.affinity = (total != 0).then(|| rank::ratio(met, total));
    Ok(supplied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::job::{Affinity, Constraint, Task};
    use caravan_types::node::Hardware;
    use serde_json::json;

    fn node() -> Node {
        let mut node = Node::default();
        let device = |name: &str, memory: i64, ids: &[&str]| {
            let instances: Vec<Value> = ids.iter().map(|id| json!({"ID": id, "Healthy": true})).collect();
            Hardware(json!({
                "Vendor": "nvidia", "Type": "gpu", "Name": name, "Instances": instances,
                "Attributes": {"memory": {"Int": memory, "Unit": "MiB"}},
            }))
        };
        node.node_resources.devices = vec![device("small", 4096, &["a", "b"]), device("big", 16384, &["c"])];
        node
    }

    fn group(
        name: &str,
        count: u64,
        constraint: Option<(&str, &str)>,
        wish: Option<(&str, &str)>,
    ) -> TaskGroup {
        let left = || "${device.attr.memory}".to_owned();
        let condition = |(operand, value): (&str, &str)| Constraint {
            l_target: left(),
            operand: operand.into(),
            r_target: value.into(),
        };
        let affinity = |(operand, value): (&str, &str)| Affinity {
            l_target: left(),
            operand: operand.into(),
            r_target: value.into(),
            weight: 50,
        };
        let request = RequestedDevice {
            name: name.into(),
            count,
            constraints: constraint.map(condition).into_iter().collect(),
            affinities: wish.map(affinity).into_iter().collect(),
        };
        let mut task = Task { name: "t".into(), ..Task::default() };
        task.resources.devices.push(request);
        TaskGroup { tasks: vec![task], ..TaskGroup::default() }
    }

    fn offered(group: &TaskGroup, taken: &Taken) -> Result<Vec<String>, String> {
        let offer = offer(&mut Matcher::new(), &node(), taken, group)?;
        Ok(offer.by_task["t"].iter().flat_map(|d| d.device_ids.clone()).collect())
    }

    #[test]
    fn names_constraints_and_wishes_pick_the_kind() {
        let none = Taken::new();
        assert_eq!(offered(&group("gpu", 1, None, None), &none).unwrap(), ["a"]);
        assert_eq!(offered(&group("nvidia/gpu/big", 1, None, None), &none).unwrap(), ["c"]);
        assert_eq!(offered(&group("gpu", 1, Some((">=", "8 GiB")), None), &none).unwrap(), ["c"]);
        assert_eq!(offered(&group("gpu", 1, None, Some((">", "8GB"))), &none).unwrap(), ["c"]);
        assert!(offered(&group("fpga", 1, None, None), &none).is_err());
        assert!(!exist(&mut Matcher::new(), &node(), &group("gpu", 3, None, None)));
        assert!(exist(&mut Matcher::new(), &node(), &group("gpu", 2, None, None)));
    }

    #[test]
    fn an_instance_is_assigned_once() {
        let mut taken = Taken::new();
        taken.insert(("nvidia".into(), "gpu".into(), "small".into(), "a".into()));
        assert_eq!(offered(&group("nvidia/gpu/small", 1, None, None), &taken).unwrap(), ["b"]);
        assert_eq!(
            offered(&group("nvidia/gpu/small", 2, None, None), &taken),
            Err("devices: no devices match request".into())
        );
    }

    #[test]
    fn quantities_know_their_units() {
        assert_eq!(quantity("2 GiB"), Some((2_147_483_648.0, "size")));
        assert_eq!(quantity("1.5GHz"), Some((1_500_000_000.0, "frequency")));
        assert_eq!(quantity("10"), Some((10.0, "count")));
        assert_eq!(quantity("fast"), None);
    }
}
