//! Devices in the output of verbs: their statistics and attributes (docs/reference/drivers.md, section 10).

use crate::table::{Pairs, Table};
use caravan_types::device::{DeviceGroup, DeviceGroupStats, DeviceStats};

/// Returns the instances with their statistics, sorted by `vendor/type/name[id]`.
fn instances(stats: &[DeviceGroupStats]) -> Vec<(String, &DeviceStats)> {
    let named =
        |group: &DeviceGroupStats, id: &str| format!("{}/{}/{}[{id}]", group.vendor, group.kind, group.name);
    let mut all: Vec<_> = stats
        .iter()
        .flat_map(|group| group.instances.iter().map(move |(id, stats)| (named(group, id), stats)))
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Returns a line with the most important value of each instance; `None` without instances.
pub(crate) fn summaries(stats: &[DeviceGroupStats]) -> Option<String> {
    let rows: Vec<Vec<String>> = instances(stats)
        .into_iter()
        .map(|(name, stats)| {
            // The table shows an empty cell as `<none>`.
            vec![name, stats.summary.as_ref().map(ToString::to_string).unwrap_or_default()]
        })
        .collect();
    (!rows.is_empty()).then(|| Table::default().rows(rows).render())
}

/// Returns all values of each instance, one block for each.
pub(crate) fn figures(stats: &[DeviceGroupStats]) -> Vec<String> {
    let block = |(name, stats): (String, &DeviceStats)| {
        let mut pairs = Pairs::new().pair("Device", name);
        for (name, value) in stats.stats.iter().flat_map(|stats| stats.flat()) {
            pairs.push(name, value.to_string());
        }
        pairs.render()
    };
    instances(stats).into_iter().map(block).collect()
}

/// Returns the attributes of each group that has some, one block for each.
pub(crate) fn attributes(groups: &[DeviceGroup]) -> Vec<String> {
    let with_some = groups.iter().filter(|group| !group.attributes.is_empty());
    let block = |group: &DeviceGroup| {
        let name = format!("{}/{}/{}", group.vendor, group.kind, group.name);
        let mut pairs = Pairs::new().pair("Device Group", name);
        for (name, value) in &group.attributes {
            pairs.push(name, value.to_string());
        }
        pairs.render()
    };
    with_some.map(block).collect()
}

/// Returns sections of which the first has a heading.
pub(crate) fn headed(heading: &str, mut blocks: Vec<String>) -> Vec<String> {
    if let Some(first) = blocks.first_mut() {
        *first = format!("{heading}\n{first}");
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::device::{DeviceAttribute, StatObject, StatValue};

    fn value(part: i64, total: Option<i64>) -> StatValue {
        StatValue {
            int_numerator: Some(part),
            int_denominator: total,
            unit: "MiB".into(),
            ..StatValue::default()
        }
    }

    fn stats() -> Vec<DeviceGroupStats> {
        let nested =
            StatObject { attributes: [("used".to_owned(), value(1, None))].into(), ..Default::default() };
        let all = StatObject {
            nested: [("memory".to_owned(), nested)].into(),
            attributes: [("power".to_owned(), StatValue::default())].into(),
        };
        let measured =
            DeviceStats { summary: Some(value(1, Some(4))), stats: Some(all), ..Default::default() };
        vec![DeviceGroupStats {
            vendor: "nvidia".into(),
            kind: "gpu".into(),
            name: "t4".into(),
            instances: [("b".to_owned(), DeviceStats::default()), ("a".to_owned(), measured)].into(),
        }]
    }

    #[test]
    fn each_instance_has_a_line() {
        let text = summaries(&stats()).unwrap();
        assert_eq!(text, "nvidia/gpu/t4[a]  1 / 4 MiB\nnvidia/gpu/t4[b]  <none>");
        assert_eq!(summaries(&[]), None);
    }

    #[test]
    fn nested_values_have_dotted_names() {
        let blocks = headed("Device Stats", figures(&stats()));
        let first =
            "Device Stats\nDevice      = nvidia/gpu/t4[a]\nmemory.used = 1 MiB\npower       = <unknown>";
        assert_eq!(blocks, [first, "Device = nvidia/gpu/t4[b]"]);
    }

    #[test]
    fn groups_without_attributes_are_left_out() {
        let group = DeviceGroup {
            vendor: "nvidia".into(),
            kind: "gpu".into(),
            name: "t4".into(),
            attributes: [("memory".to_owned(), DeviceAttribute::int(16, "GiB"))].into(),
            ..DeviceGroup::default()
        };
        let blocks = attributes(&[DeviceGroup::default(), group]);
        assert_eq!(blocks, ["Device Group = nvidia/gpu/t4\nmemory       = 16 GiB"]);
    }
}
