use super::*;
use async_trait::async_trait;
use caravan_drivers::{DeviceAttribute, DeviceInstance, DeviceStats, DeviceStream, StatValue};
use caravan_types::node::Node;
use tokio::sync::mpsc;

/// Waits for a condition, with a deadline that only a hang reaches.
async fn eventually(what: &str, is: impl Fn() -> bool) {
    let reached = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("never: {what}"));
}

type Sender<T> = mpsc::Sender<Result<Vec<T>, DeviceError>>;

/// A plugin whose reports the test sends.
#[derive(Debug, Default)]
struct Scripted {
    reports: Mutex<Option<Sender<DeviceGroup>>>,
    stats: Mutex<Option<Sender<DeviceGroupStats>>>,
    opened: std::sync::atomic::AtomicUsize,
    ended: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl DevicePlugin for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }
    async fn fingerprint(&self) -> Result<DeviceStream<Vec<DeviceGroup>>, DeviceError> {
        let (sender, stream) = mpsc::channel(8);
        *self.reports.lock() = Some(sender);
        self.opened.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(stream)
    }
    async fn reserve(&self, ids: &[String]) -> Result<Reservation, DeviceError> {
        if ids == ["b"] {
            return Err(DeviceError::Rejected("no power".to_owned()));
        }
        Ok(Reservation { envs: [("IDS".to_owned(), ids.join(","))].into(), ..Reservation::default() })
    }
    async fn stats(&self, _: Duration) -> Result<DeviceStream<Vec<DeviceGroupStats>>, DeviceError> {
        let (sender, stream) = mpsc::channel(8);
        *self.stats.lock() = Some(sender);
        Ok(stream)
    }
    async fn shutdown(&self) {
        self.ended.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Scripted {
    async fn report(&self, report: Result<Vec<DeviceGroup>, DeviceError>) {
        eventually("the stream is open", || self.reports.lock().is_some()).await;
        let sender = self.reports.lock().clone().unwrap();
        sender.send(report).await.unwrap();
    }
}

fn group(ids: &[(&str, bool)]) -> DeviceGroup {
    let instance = |(id, healthy): &(&str, bool)| DeviceInstance {
        id: (*id).to_owned(),
        healthy: *healthy,
        ..Default::default()
    };
    DeviceGroup {
        vendor: "v".into(),
        kind: "gpu".into(),
        name: "m".into(),
        instances: ids.iter().map(instance).collect(),
        ..DeviceGroup::default()
    }
}

fn assigned(ids: &[&str]) -> [AllocatedDevice; 1] {
    [AllocatedDevice {
        vendor: "v".into(),
        kind: "gpu".into(),
        name: "m".into(),
        device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    }]
}

struct Rig {
    plugin: Arc<Scripted>,
    manager: DeviceManager,
    node: NodeState,
    cancel: CancellationToken,
}

fn rig() -> Rig {
    let plugin = Arc::new(Scripted::default());
    let node = NodeState::new(Node::default());
    let manager = DeviceManager::new(vec![plugin.clone()], Duration::from_secs(1), node.clone());
    let cancel = CancellationToken::new();
    tokio::spawn(manager.clone().run(cancel.clone()));
    Rig { plugin, manager, node, cancel }
}

impl Rig {
    async fn shows(&self, groups: &[DeviceGroup]) {
        eventually("the node has the devices", || self.node.get().node_resources.devices == groups).await;
    }
}

#[tokio::test]
async fn every_change_is_written_into_the_node_at_once() {
    let rig = rig();
    let (both, one) = (group(&[("a", true), ("b", true)]), group(&[("a", false)]));
    rig.plugin.report(Ok(vec![both.clone()])).await;
    rig.manager.first_fingerprints(Duration::from_secs(60)).await;
    assert_eq!(rig.node.get().node_resources.devices, [both]);
    rig.plugin.report(Ok(vec![one.clone()])).await;
    rig.shows(&[one]).await;
    rig.plugin.report(Ok(Vec::new())).await;
    rig.shows(&[]).await;
    rig.cancel.cancel();
    let ended = || rig.plugin.ended.load(std::sync::atomic::Ordering::SeqCst) == 1;
    eventually("the plugin is ended", ended).await;
}

#[tokio::test]
async fn a_plugin_whose_process_ended_is_started_again_and_others_are_given_up() {
    let rig = rig();
    let healthy = group(&[("a", true)]);
    rig.plugin.report(Ok(vec![healthy.clone()])).await;
    rig.shows(std::slice::from_ref(&healthy)).await;
    rig.plugin.report(Err(DeviceError::Gone("scripted".into()))).await;
    let opened = || rig.plugin.opened.load(std::sync::atomic::Ordering::SeqCst) == 2;
    eventually("a new stream is open", opened).await;
    assert_eq!(rig.node.get().node_resources.devices, [healthy], "devices stay until the new report");
    let wrong = [("memory".to_owned(), DeviceAttribute::int(1, "furlong"))].into();
    rig.plugin.report(Ok(vec![DeviceGroup { attributes: wrong, ..group(&[("a", true)]) }])).await;
    rig.shows(&[]).await;
    assert_eq!(rig.plugin.opened.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn assigned_instances_are_reserved_and_missing_ones_are_named() {
    let rig = rig();
    rig.plugin.report(Ok(vec![group(&[("a", true), ("b", true)])])).await;
    rig.manager.first_fingerprints(Duration::from_secs(60)).await;
    let reserved = rig.manager.reserve(&assigned(&["a"])).await.unwrap();
    assert_eq!(reserved.envs["IDS"], "a");
    let fault = rig.manager.reserve(&assigned(&["b"])).await.unwrap_err();
    assert_eq!(caravan_sys::describe(&fault), "failed to reserve device v/gpu/m: no power");
    let fault = rig.manager.reserve(&assigned(&["a", "x"])).await.unwrap_err();
    assert_eq!(fault.to_string(), "failed to reserve device v/gpu/m: the node no longer has instance x");
}

#[tokio::test]
async fn statistics_are_those_of_the_assigned_instances() {
    let rig = rig();
    rig.plugin.report(Ok(vec![group(&[("a", true), ("b", true)])])).await;
    eventually("statistics are asked for", || rig.plugin.stats.lock().is_some()).await;
    let stats = DeviceStats {
        summary: Some(StatValue { int_numerator: Some(5), ..StatValue::default() }),
        ..DeviceStats::default()
    };
    let all = DeviceGroupStats {
        vendor: "v".into(),
        kind: "gpu".into(),
        name: "m".into(),
        instances: [("a".to_owned(), stats.clone()), ("b".to_owned(), stats)].into(),
    };
    let sender = rig.plugin.stats.lock().clone().unwrap();
    sender.send(Ok(vec![all])).await.unwrap();
    eventually("statistics are known", || !rig.manager.stats().is_empty()).await;
    let own = rig.manager.stats_of(&assigned(&["b"]));
    assert_eq!(own[0].instances.keys().collect::<Vec<_>>(), ["b"]);
    assert!(rig.manager.stats_of(&[]).is_empty());
    assert!(rig.manager.stats_of(&assigned(&["gone"]))[0].instances.is_empty());
}

#[test]
fn a_report_names_every_device_once() {
    let valid = group(&[("a", true), ("b", false)]);
    assert_eq!(check(std::slice::from_ref(&valid)), Ok(()));
    let nameless = DeviceGroup { name: String::new(), ..valid.clone() };
    for wrong in [
        vec![nameless],
        vec![group(&[("", true)])],
        vec![group(&[("a", true), ("a", true)])],
        vec![valid.clone(), valid],
    ] {
        assert!(check(&wrong).is_err(), "{wrong:?}");
    }
}
