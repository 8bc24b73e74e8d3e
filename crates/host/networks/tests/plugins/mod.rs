//! CNI plugins: plugins that record their calls, and the reference plugins.

mod reference;

use caravan_networks::Forward;
use caravan_networks::cni::{Attached, Catalog, NetworkList, Runtime, SpecVersion};
use caravan_sys::describe;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

/// Plugins `first` and `second` that record their calls.
struct Recorded {
    dir: tempfile::TempDir,
    runtime: Runtime,
}

impl Recorded {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let programs = dir.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let recorder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorder.sh");
        for name in ["first", "second"] {
            symlink(recorder, programs.join(name)).unwrap();
        }
        let runtime = Runtime::new(&format!("/nonexistent::{}", programs.display()));
        Self { runtime: runtime.limited(Duration::from_secs(20)), dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn list(&self, version: SpecVersion) -> NetworkList {
        let log = self.path("log");
        let log = log.display();
        let text = format!(
            r#"{{"name":"MyNet","cniVersion":"{version}","plugins":[{{"type":"first","log":"{log}","own":{{"deep":[1,2]}}}},
                {{"type":"second","log":"{log}","capabilities":{{"portMappings":true,"mac":true}}}}]}}"#
        );
        NetworkList::parse(&text).unwrap()
    }

    fn attached(&self, version: SpecVersion) -> Attached {
        Attached {
            alloc: "alloc-1".into(),
            namespace: "/run/netns/x".into(),
            list: self.list(version),
            arguments: "IgnoreUnknown=true;NOMAD_REGION=global".into(),
            forwards: vec![Forward { address: None, port: 8080, to: 80 }],
            result: None,
            boot: String::new(),
        }
    }

    /// Returns the calls since the last call of this function: the first two words, the whole line, and the input.
    fn calls(&self) -> Vec<(String, String, Value)> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let _absent = fs::remove_file(self.path("log"));
        let lines: Vec<&str> = text.lines().collect();
        let calls = lines.chunks(2).map(|pair| {
            let words: Vec<&str> = pair[0].split(' ').take(2).collect();
            (words.join(" "), pair[0].to_owned(), serde_json::from_str(pair[1]).unwrap())
        });
        calls.collect()
    }

    fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|(name, ..)| name).collect()
    }
}

#[test]
fn plugins_are_called_as_each_version_demands() {
    let world = Recorded::new();
    for version in SpecVersion::ALL {
        let mut attached = world.attached(version);
        if version < SpecVersion::V0_3_0 {
            world.put("result", r#"{"ip4":{"ip":"10.99.0.7/24"}}"#);
        }
        world.runtime.add(&mut attached).unwrap();
        let calls = world.calls();
        let (first, second) = (&calls[0], &calls[1]);
        assert_eq!((calls.len(), first.0.as_str(), second.0.as_str()), (2, "first ADD", "second ADD"));
        assert_eq!(
            first.1,
            "first ADD id=alloc-1 if=eth0 netns=/run/netns/x args=IgnoreUnknown=true;NOMAD_REGION=global \
             env=CNI_ARGS,CNI_COMMAND,CNI_CONTAINERID,CNI_IFNAME,CNI_NETNS,CNI_PATH,PATH,PWD,",
            "nothing of the client's environment"
        );
        assert_eq!(first.2["name"], "MyNet");
        assert_eq!(first.2["cniVersion"], version.as_str());
        assert_eq!(first.2["own"]["deep"][1], 2);
        assert_eq!(first.2.get("runtimeConfig"), None, "it declares no capability");
        assert_eq!(first.2.get("prevResult"), None);
        assert_eq!(second.2.get("capabilities"), None);
        assert_eq!(second.2["runtimeConfig"]["portMappings"][0]["hostPort"], 8080);
        assert_eq!(second.2["runtimeConfig"].as_object().unwrap().len(), 1, "no other capability is offered");
        assert_eq!(second.2["prevResult"]["cniVersion"], version.as_str());
        let reached = attached.result.as_ref().unwrap().reached().unwrap();
        assert_eq!((reached.interface.as_str(), reached.address.to_string().as_str()), ("eth0", "10.99.0.7"));
        if version >= SpecVersion::V0_3_0 {
            assert_eq!(second.2["prevResult"]["by"], "first");
        }

        // The record survives its storage.
        let text = serde_json::to_string(&attached).unwrap();
        let attached: Attached = serde_json::from_str(&text).unwrap();
        world.runtime.check(&attached).unwrap();
        let checks = world.calls();
        match version.has_check() {
            true => {
                let names: Vec<_> = checks.iter().map(|(name, ..)| name.as_str()).collect();
                assert_eq!(names, ["first CHECK", "second CHECK"]);
                assert_eq!(checks[0].2["prevResult"]["by"], "second");
                assert_eq!(checks[1].2["runtimeConfig"], second.2["runtimeConfig"]);
            }
            false => assert!(checks.is_empty()),
        }
        world.runtime.del(&attached).unwrap();
        let calls = world.calls();
        assert_eq!((calls[0].0.as_str(), calls[1].0.as_str(), calls.len()), ("second DEL", "first DEL", 2));
        assert_eq!(calls[0].2.get("prevResult").is_some(), version.has_check());
        assert!(calls[0].1.contains("args=IgnoreUnknown=true;NOMAD_REGION=global"));

        world.runtime.status(&attached.list).unwrap();
        world.runtime.gc(&attached.list, &[&attached]).unwrap();
        let calls = world.calls();
        match version.has_status() {
            true => {
                let names: Vec<_> = calls.iter().map(|(name, ..)| name.as_str()).collect();
                assert_eq!(names, ["first STATUS", "second STATUS", "first GC", "second GC"]);
                let valid = serde_json::json!([{"containerID": "alloc-1", "ifname": "eth0"}]);
                assert_eq!(calls[2].2["cni.dev/valid-attachments"], valid);
            }
            false => assert!(calls.is_empty()),
        }
        let _absent = fs::remove_file(world.path("result"));
    }
}

#[test]
fn a_failed_addition_is_undone_and_a_failed_removal_goes_on() {
    let world = Recorded::new();
    let mut attached = world.attached(SpecVersion::V1_0_0);
    world
        .put("fail-second-ADD", r#"{"cniVersion":"1.0.0","code":11,"msg":"no ports left","details":"of 3"}"#);
    let fault = world.runtime.add(&mut attached).unwrap_err();
    assert_eq!(fault.to_string(), "plugin type=\"second\" failed (add): no ports left: of 3 (code 11)");
    assert!(fault.is_passing() && !fault.is_incompatible());
    assert_eq!(attached.result, None);
    let calls = world.calls();
    let names: Vec<_> = calls.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["first ADD", "second ADD", "second DEL", "first DEL"]);
    assert_eq!(calls[2].2["prevResult"]["by"], "first", "what the first one had made");
    fs::remove_file(world.path("fail-second-ADD")).unwrap();

    world.runtime.add(&mut attached).unwrap();
    world.names();
    world.put("fail-second-DEL", "no JSON");
    let fault = world.runtime.del(&attached).unwrap_err();
    assert_eq!(fault.to_string(), "plugin type=\"second\" failed (del): exit status 1");
    assert_eq!(world.names(), ["second DEL", "first DEL"]);
    world.put("fail-first-DEL", r#"{"code":7,"msg":"bad"}"#);
    let fault = world.runtime.del(&attached).unwrap_err().to_string();
    assert!(
        fault.contains("\"second\"") && fault.contains("\"first\" failed (del): bad (code 7)"),
        "{fault}"
    );
    world.names();

    // A plugin that does not support the command is no difference.
    world.put("fail-first-CHECK", r#"{"code":4,"msg":"unknown CNI_COMMAND: CHECK"}"#);
    world.runtime.check(&attached).unwrap();
    world.put("fail-first-CHECK", r#"{"code":999,"msg":"address is missing"}"#);
    let fault = describe(&world.runtime.check(&attached).unwrap_err());
    assert!(fault.contains("address is missing"), "{fault}");

    let newest = world.list(SpecVersion::V1_1_0);
    world.put("fail-second-STATUS", r#"{"code":50,"msg":"the daemon is down"}"#);
    let fault = world.runtime.status(&newest).unwrap_err().to_string();
    assert_eq!(fault, "plugin type=\"second\" failed (status): the daemon is down (code 50)");
    world.put("fail-first-GC", r#"{"code":5,"msg":"busy"}"#);
    world.names();
    assert!(world.runtime.gc(&newest, &[]).is_err());
    assert_eq!(world.names(), ["first GC", "second GC"], "the others go on");
}

#[test]
fn a_plugin_that_hangs_is_killed_with_its_children() {
    let world = Recorded::new();
    let mut attached = world.attached(SpecVersion::V1_0_0);
    let runtime = world.runtime.clone().limited(Duration::from_secs(2));
    world.put("hang-ADD", "");
    let fault = runtime.add(&mut attached).unwrap_err().to_string();
    assert_eq!(fault, "plugin type=\"first\" failed (add): no answer in 2 seconds");
    let child = fs::read_to_string(world.path("hanging")).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
    assert_eq!(world.names(), ["first ADD", "second DEL", "first DEL"]);
}

#[test]
fn plugins_and_results_that_are_of_no_use_are_named() {
    let world = Recorded::new();
    let mut attached = world.attached(SpecVersion::V1_0_0);
    world.put("result", "nothing");
    let fault = world.runtime.add(&mut attached).unwrap_err().to_string();
    assert!(fault.starts_with("plugin type=\"first\" returned an invalid result"), "{fault}");
    let absent = Runtime::new("/nonexistent");
    let fault = absent.add(&mut attached).unwrap_err();
    assert_eq!(fault.to_string(), "plugin type=\"first\" is not in cni_path \"/nonexistent\"");
    assert!(!fault.is_passing() && absent.status(&attached.list).is_err());
}

#[test]
fn configurations_are_read_at_each_use() {
    let world = Recorded::new();
    let dir = world.path("config");
    assert!(Catalog::read(&dir).lists.is_empty());
    fs::create_dir(&dir).unwrap();
    for version in ["0.4.0", "1.1.0"] {
        let text = format!(r#"{{"name":"MyNet","cniVersion":"{version}","plugins":[{{"type":"first"}}]}}"#);
        fs::write(dir.join("a.conflist"), text).unwrap();
        assert_eq!(Catalog::find(&dir, "MyNet").unwrap().version().as_str(), version);
    }
    assert!(Catalog::find(&dir, "mynet").is_err(), "the spelling counts");
    let programs = world.runtime.programs();
    let versions = Runtime::versions(programs.iter().map(|(path, _)| path.as_path()));
    assert_eq!(versions["first"], "v9.8.7");
    assert_eq!(versions.len(), 2);
    // A second directory has a program of the same name, which never runs.
    fs::create_dir(world.path("other")).unwrap();
    symlink("/bin/true", world.path("other/first")).unwrap();
    let behind = [world.path("bin/first"), world.path("other/first")];
    assert_eq!(Runtime::versions(behind.iter().map(PathBuf::as_path))["first"], "v9.8.7");
    let before = [world.path("other/first"), world.path("bin/first")];
    assert!(Runtime::versions(before.iter().map(PathBuf::as_path)).is_empty(), "prints no version");
}
