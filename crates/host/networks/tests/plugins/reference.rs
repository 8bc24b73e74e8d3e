//! The reference plugins: a bridge, addresses, ports of the node and the firewall.

use crate::{HOST, OUTSIDE, World, ask, ask_from, forward, serve};
use caravan_networks::cni::{Attached, NetworkList, Runtime};
use caravan_sys::netns;
use std::path::{Path, PathBuf};

/// The line that installs the plugins.
const INSTALL: &str = "scripts/tools.sh test";

/// Returns the directory of the plugins from `CNI_PLUGINS`, or the workspace's tools.
fn plugins() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/cni");
    let dir = std::env::var_os("CNI_PLUGINS").map_or(workspace, PathBuf::from);
    assert!(
        dir.join("portmap").is_file(),
        "the reference plugins of CNI are not installed; in the workspace's root run\n  {INSTALL}"
    );
    dir.canonicalize().unwrap()
}

fn list(dir: &Path, version: &str) -> NetworkList {
    let state = dir.join("host-local");
    let text = format!(
        r#"{{"name":"mine","cniVersion":"{version}","plugins":[{{"type":"loopback"}},
            {{"type":"bridge","bridge":"cni9","ipMasq":true,"ipMasqBackend":"nftables","isGateway":true,"hairpinMode":true,
              "ipam":{{"type":"host-local","ranges":[[{{"subnet":"10.77.0.0/24"}}]],
                       "routes":[{{"dst":"0.0.0.0/0"}}],"dataDir":"{}"}}}},
            {{"type":"portmap","backend":"nftables","capabilities":{{"portMappings":true}},"snat":true}}]}}"#,
        state.display()
    );
    NetworkList::parse(&text).unwrap()
}

#[test]
fn the_reference_plugins_make_check_and_remove_networks() {
    World::run(false, |world| {
        let runtime = Runtime::new(&plugins().display().to_string());
        let versions = Runtime::versions([plugins().join("bridge").as_path()].into_iter());
        assert!(versions["bridge"].starts_with("v1."), "{versions:?}");
        for version in ["0.4.0", "1.0.0", "1.1.0"] {
            let state = tempfile::tempdir().unwrap();
            let namespace = world.path("alloc");
            netns::hold(&namespace).unwrap();
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            let mut attached = Attached {
                alloc: "alloc".into(),
                namespace: namespace.clone(),
                list: list(state.path(), version),
                arguments: "IgnoreUnknown=true;NOMAD_ALLOC_ID=alloc".into(),
                forwards: vec![forward(None, 8001, 80)],
                result: None,
                boot: String::new(),
            };
            runtime.status(&attached.list).unwrap();
            runtime.add(&mut attached).unwrap();
            let reached = attached.result.as_ref().unwrap().reached().unwrap();
            assert_eq!(
                (reached.interface.as_str(), reached.address.to_string().as_str()),
                ("eth0", "10.77.0.2")
            );
            let _server = serve(&namespace, "0.0.0.0:80");
            let outside = world.path("outside");
            assert_eq!(ask_from(&outside, &format!("{HOST}:8001")), Some(OUTSIDE.into()), "{version}");
            assert!(ask("10.77.0.2:80").is_some());
            runtime.check(&attached).unwrap();
            runtime.gc(&attached.list, &[&attached]).unwrap();

            // The plugin refuses an address that is assigned twice, and the failed addition is undone.
            let fault = runtime.add(&mut attached.clone()).unwrap_err().to_string();
            assert!(fault.contains("failed (add)") && fault.contains("(code 999)"), "{fault}");
            // As after a restart of the machine: the namespace does not exist.
            netns::let_go(&namespace).unwrap();
            attached.namespace = PathBuf::new();
            runtime.del(&attached).unwrap();
            runtime.del(&attached).unwrap();
            let left: Vec<_> = std::fs::read_dir(state.path().join("host-local/mine"))
                .map(|all| all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
                .unwrap_or_default();
            assert!(!left.iter().any(|name| name.starts_with("10.")), "{left:?}");
            assert_eq!(ask(&format!("{HOST}:8001")), None);
        }
    });
}
