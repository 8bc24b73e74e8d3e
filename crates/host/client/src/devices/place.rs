//! The NUMA nodes of devices on the PCI bus, from sysfs(5).

use caravan_drivers::DeviceGroup;
use std::collections::BTreeMap;

/// Returns the NUMA nodes by the bus ids that plugins report, for the buses whose NUMA node the kernel reports.
pub(super) fn of_groups(groups: &[DeviceGroup]) -> BTreeMap<String, u64> {
    let localities = groups.iter().flat_map(|group| &group.instances).filter_map(|one| one.locality.as_ref());
    localities
        .filter_map(|locality| {
            let path = format!("/sys/bus/pci/devices/{}/numa_node", normal(&locality.pci_bus_id)?);
            // The kernel reports -1 for a device without a NUMA node.
            let node = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
            Some((locality.pci_bus_id.clone(), node))
        })
        .collect()
}

/// Returns a bus id in the kernel's form, `0000:01:00.0`. Some plugins report it in capitals, or with a domain of eight
/// digits.
fn normal(bus: &str) -> Option<String> {
    let number = |text: &str, digits: usize| {
        let value = u32::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))?;
        Some(format!("{value:0digits$x}"))
    };
    let (front, function) = bus.rsplit_once('.')?;
    let (front, device) = front.rsplit_once(':')?;
    let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
    let (domain, bus) = (number(domain, 4)?, number(bus, 2)?);
    Some(format!("{domain}:{bus}:{}.{}", number(device, 2)?, number(function, 1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_have_one_form_and_are_no_paths() {
        assert_eq!(normal("00000000:3B:00.0").as_deref(), Some("0000:3b:00.0"));
        assert_eq!(normal("0000:01:00.0").as_deref(), Some("0000:01:00.0"));
        assert_eq!(normal("3b:1.2").as_deref(), Some("0000:3b:01.2"));
        for wrong in ["", "..", "../../etc:0:0.0", "x:y.z", "0000:00:00", "0:+1:0.0"] {
            assert_eq!(normal(wrong), None, "{wrong}");
        }
    }
}
