//! The computed class of a node. Nodes of one class give the same result for every constraint that uses no
//! `unique.` attribute (docs/reference/http-api.md, section 5.4, `ComputedClass`).

use crate::node::Node;

/// An FNV-1a hash over strings. Each string is preceded by its length, so `ab`, `c` and `a`, `bc` differ.
struct Digest(u64);

impl Digest {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes(&text.len().to_le_bytes());
        self.bytes(text.as_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.bytes(&[u8::from(flag)]);
    }
}

impl Node {
    /// Returns the class of the node: `v1:` and a hash of its datacenter, pool, class, drivers, devices,
    /// networks, and all attributes and meta that are not `unique.`.
    pub fn class(&self) -> String {
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        for text in [&self.datacenter, &self.node_pool, &self.node_class] {
            digest.text(text);
        }
        for pairs in [&self.attributes, &self.meta] {
            for (key, value) in pairs.iter().filter(|(key, _)| !key.starts_with("unique.")) {
                digest.text(key);
                digest.text(value);
            }
            digest.text("");
        }
        for (name, driver) in &self.drivers {
            digest.text(name);
            digest.flag(driver.detected && driver.healthy);
        }
        for device in &self.node_resources.devices {
            for text in [&device.vendor, &device.kind, &device.name] {
                digest.text(text);
            }
            for (name, value) in &device.attributes {
                digest.text(name);
                digest.text(&value.to_string());
            }
            digest.text("");
        }
        let networks = &self.node_resources.node_networks;
        networks.iter().for_each(|network| digest.text(&network.mode));
        format!("v1:{}", digest.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unique_may_differ_within_a_class() {
        let mut node = Node { datacenter: "dc1".into(), ..Node::default() };
        node.attributes.insert("kernel.name".into(), "linux".into());
        let class = node.class();
        assert!(class.starts_with("v1:"));
        let mut other = Node { name: "other".into(), ..node.clone() };
        other.attributes.insert("unique.hostname".into(), "other".into());
        other.meta.insert("unique.shelf".into(), "7".into());
        assert_eq!(other.class(), class);
        other.meta.insert("rack".into(), "r1".into());
        assert_ne!(other.class(), class);
        let mut moved = node.clone();
        moved.node_class = "linux".into();
        assert_ne!(moved.class(), class);
        node.drivers.insert("exec".into(), Default::default());
        assert_ne!(node.class(), class);
    }
}
