//! Devices of a plugin in the test's own process: reported, reserved for tasks, and used by one task at a time.

use crate::support::{Agent, alloc, kinds, poll, shell};
use async_trait::async_trait;
use caravan_drivers::{
    DeviceError, DeviceGroup, DeviceGroupStats, DeviceInstance, DeviceNode, DevicePlugin, DeviceStats,
    DeviceStream, Mount, Propagation, Reservation, StatValue,
};
use caravan_types::alloc::{
    AllocatedDevice, AllocatedResources, AllocatedTaskResources, Allocation, ClientStatus, TaskState,
};
use caravan_types::job::JobType;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// A plugin whose devices the test changes.
#[derive(Debug)]
struct Cards {
    ids: watch::Sender<Vec<&'static str>>,
    data: PathBuf,
    reserved: Mutex<Vec<String>>,
}

impl Cards {
    fn new(ids: &[&'static str], data: PathBuf) -> Arc<Self> {
        Arc::new(Self { ids: watch::Sender::new(ids.to_vec()), data, reserved: Mutex::default() })
    }

    fn reserved(&self) -> Vec<String> {
        self.reserved.lock().unwrap().clone()
    }
}

#[async_trait]
impl DevicePlugin for Cards {
    fn name(&self) -> &'static str {
        "cards"
    }

    async fn fingerprint(&self) -> Result<DeviceStream<Vec<DeviceGroup>>, DeviceError> {
        let (sender, stream) = mpsc::channel(1);
        let mut ids = self.ids.subscribe();
        ids.mark_changed();
        tokio::spawn(async move {
            while ids.changed().await.is_ok() {
                let instance = |id: &&str| DeviceInstance {
                    id: (*id).into(),
                    healthy: true,
                    ..DeviceInstance::default()
                };
                let instances = ids.borrow_and_update().iter().map(instance).collect();
                let group = DeviceGroup {
                    vendor: "v".into(),
                    kind: "card".into(),
                    name: "m".into(),
                    instances,
                    ..DeviceGroup::default()
                };
                if sender.send(Ok(vec![group])).await.is_err() {
                    break;
                }
            }
        });
        Ok(stream)
    }

    async fn reserve(&self, ids: &[String]) -> Result<Reservation, DeviceError> {
        let ids = ids.join(",");
        self.reserved.lock().unwrap().push(ids.clone());
        if ids == "broken" {
            return Err(DeviceError::Rejected("the card is broken".into()));
        }
        Ok(Reservation {
            envs: [("CARDS".to_owned(), ids)].into(),
            mounts: vec![Mount {
                host_path: self.data.clone(),
                task_path: "/cards".into(),
                read_only: true,
                propagation: Propagation::Private,
            }],
            devices: vec![DeviceNode {
                host_path: "/dev/null".into(),
                task_path: "/dev/card".into(),
                permissions: "rw".into(),
            }],
        })
    }

    async fn stats(&self, _: Duration) -> Result<DeviceStream<Vec<DeviceGroupStats>>, DeviceError> {
        let (sender, stream) = mpsc::channel(1);
        let ids = self.ids.borrow().clone();
        tokio::spawn(async move {
            let of = |id: &&str| {
                let summary = StatValue { string: Some((*id).to_owned()), ..StatValue::default() };
                ((*id).to_owned(), DeviceStats { summary: Some(summary), ..DeviceStats::default() })
            };
            let group = DeviceGroupStats {
                vendor: "v".into(),
                kind: "card".into(),
                name: "m".into(),
                instances: ids.iter().map(of).collect(),
            };
            if sender.send(Ok(vec![group])).await.is_ok() {
                sender.closed().await;
            }
        });
        Ok(stream)
    }
}

fn work(id: &str, driver: &str, card: &str, script: &str) -> Allocation {
    let device = AllocatedDevice {
        vendor: "v".into(),
        kind: "card".into(),
        name: "m".into(),
        device_ids: vec![card.into()],
    };
    let task = AllocatedTaskResources { devices: vec![device], ..AllocatedTaskResources::default() };
    let mut all = AllocatedResources::default();
    all.tasks.insert("t".into(), task);
    let mut shell = shell("t", driver, script);
    shell.env.insert("CARDS".into(), "of the job".into());
    let mut work = alloc(id, JobType::Service, vec![shell]);
    work.allocated_resources = Some(Arc::new(all));
    work
}

fn agent(cards: &Arc<Cards>) -> Agent {
    Agent::with_devices(vec![Arc::clone(cards) as Arc<dyn DevicePlugin>])
}

fn says(agent: &Agent, alloc: &str, text: &str) -> bool {
    let Ok(fs) = agent.handle.fs(&alloc.into()) else { return false };
    fs.read_at("t/local/says", 0, None).is_ok_and(|seen| seen.trim_ascii() == text.as_bytes())
}

fn reports(task: &TaskState, words: &str) -> bool {
    task.events.iter().any(|event| event.display().contains(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_gets_what_its_devices_need() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("firmware"), "firmware").unwrap();
    let cards = Cards::new(&["a", "b", "broken"], data.path().to_owned());
    let agent = agent(&cards);
    let node = agent.servers.node("it registers", |_| true).await;
    let ids: Vec<&str> = node.node_resources.devices[0].instances.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["a", "b", "broken"]);
    let free = "echo \"$CARDS\" > $NOMAD_TASK_DIR/says; exec sleep 1000";
    let own_root = "echo \"$CARDS $(cat /cards/firmware) $(echo x > /dev/card && echo used)\" \
         > /local/says; exec sleep 1000";
    agent.servers.run(work("plain", "raw_exec", "a", free));
    agent.servers.run(work("confined", "exec", "b", own_root));
    poll("the plain task has its variable", || says(&agent, "plain", "a")).await;
    poll("the confined task has all", || says(&agent, "confined", "b firmware used")).await;
    let stats = || agent.handle.task_device_stats(&"confined".into(), "t").unwrap();
    poll("its statistics are known", || stats().iter().any(|group| !group.instances.is_empty())).await;
    assert_eq!(stats()[0].instances.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(agent.handle.device_stats()[0].instances.len(), 3);

    // A restarted task is a new start; a recovered one is not.
    let times = |card: &str| cards.reserved().iter().filter(|ids| *ids == card).count();
    assert_eq!((times("a"), times("b")), (1, 1));
    agent.servers.status("plain", ClientStatus::Running).await;
    agent.handle.restart(&"plain".into(), None, false).unwrap();
    let starts = |task: &TaskState| kinds(task).iter().filter(|kind| **kind == "Started").count() == 2;
    agent.servers.task("plain", "t", starts).await;
    assert_eq!((times("a"), times("b")), (2, 1));
    let agent = agent.restart().await;
    agent.servers.run(work("next", "raw_exec", "broken", free));
    poll("the next task is prepared", || cards.reserved().last().is_some_and(|ids| ids == "broken")).await;
    assert_eq!((times("a"), times("b")), (2, 1));
    agent.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_cannot_be_reserved_fails_the_start_with_its_reason() {
    let data = tempfile::tempdir().unwrap();
    let cards = Cards::new(&["a", "broken"], data.path().to_owned());
    let agent = agent(&cards);
    agent.servers.run(work("broken", "raw_exec", "broken", "exec sleep 1000"));
    let words = "devices: failed to reserve device v/card/m: the card is broken";
    agent
        .servers
        .task("broken", "t", |task| reports(task, words) && kinds(task).contains(&"Restarting"))
        .await;
    cards.ids.send_replace(vec!["a"]);
    agent.servers.node("the card is gone", |node| node.node_resources.devices[0].instances.len() == 1).await;
    agent.servers.run(work("gone", "raw_exec", "broken", "exec sleep 1000"));
    let words = "devices: failed to reserve device v/card/m: the node no longer has instance broken";
    agent.servers.task("gone", "t", |task| reports(task, words)).await;
    agent.clean().await;
}

/// The servers count a device as free as soon as its allocation is to stop. The task of the allocation may still run
/// then.
#[tokio::test(flavor = "multi_thread")]
async fn two_tasks_never_use_one_instance() {
    let data = tempfile::tempdir().unwrap();
    let cards = Cards::new(&["a"], data.path().to_owned());
    let mut agent = agent(&cards);
    let slow = "trap '' TERM INT; echo up > $NOMAD_TASK_DIR/says; \
         while [ ! -e $NOMAD_TASK_DIR/go ]; do sleep 0.02; done";
    for (old, new, restart) in [("one", "two", false), ("three", "four", true)] {
        let mut first = work(old, "raw_exec", "a", slow);
        let mut job = (*first.job.clone().unwrap()).clone();
        job.task_groups[0].tasks[0].kill_timeout = caravan_types::Nanos::from_secs(30);
        first.job = Some(Arc::new(job));
        agent.servers.run(first);
        poll("the first task runs", || says(&agent, old, "up")).await;
        if restart {
            agent = agent.restart().await;
        }
        agent.servers.stop(old);
        agent.servers.run(work(new, "raw_exec", "a", "echo up > $NOMAD_TASK_DIR/says; exec sleep 1000"));
        let words = format!("devices: waiting until allocation {old} has ended, which uses v/card/m[a]");
        let waiting = agent.servers.task(new, "t", |task| reports(task, &words)).await;
        assert!(!kinds(&waiting).contains(&"Started"));
        let go = agent.handle.alloc_dir(&old.into()).unwrap().join("t/local/go");
        std::fs::write(go, "").unwrap();
        poll("the second task runs", || says(&agent, new, "up")).await;
        agent.servers.stop(new);
        agent.servers.status(new, ClientStatus::Complete).await;
    }
    agent.clean().await;
}
