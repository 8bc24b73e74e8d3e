//! Kills the plugin at random moments of all calls. If the calls are repeated, every volume still completes its life,
//! and no data, record or mount of it remains.

use crate::support::{Plugin, until};
use caravan_csi::*;
use rustix::process::Signal;
use std::{fs, future::Future, path::Path, time::Duration};

const MIB: u64 = 1 << 20;

/// Number of volumes in each run.
const ROUNDS: u64 = 9;

/// Reproducible random numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

struct Run {
    plugin: Plugin,
    client: CsiClient,
    numbers: Numbers,
    kills: usize,
}

impl Run {
    /// Repeats a call until it succeeds, and kills the plugin during every other attempt.
    async fn call<T, F: Future<Output = Result<T, CsiError>>>(
        &mut self,
        what: &str,
        make: impl Fn(CsiClient) -> F,
    ) -> T {
        let mut tries = 0;
        loop {
            tries += 1;
            assert!(tries < 400, "{what} does not get done:\n{}", self.plugin.log());
            if tries < 4 && self.numbers.below(2) == 0 {
                let moment = Duration::from_micros(self.numbers.below(25_000));
                if let Ok(Ok(done)) = tokio::time::timeout(moment, make(self.client.clone())).await {
                    // The call was quicker than the kill.
                    return done;
                }
                self.plugin.end(Signal::KILL);
                self.plugin.restart();
                self.kills += 1;
                continue;
            }
            match make(self.client.clone()).await {
                Ok(done) => return done,
                // The connection broke, or an earlier call is still running.
                Err(error) if error.is_retryable() && error.class() != Some(Class::Internal) => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{what}: {error}\n{}", self.plugin.log()),
            }
        }
    }

    async fn life(&mut self, number: u64, capability: &VolumeCapability, parameters: StringMap) {
        let name = format!("v{number}");
        let creation = |name: &str, content_source| CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 16 * MIB, limit_bytes: 0 }),
            capabilities: vec![capability.clone()],
            parameters: parameters.clone(),
            content_source,
            ..Default::default()
        };
        let request = creation(&name, None);
        let volume = self
            .call("create", |client| {
                let request = request.clone();
                async move { client.create_volume(request).await }
            })
            .await;
        let id = volume.volume_id.clone();
        let snapshot = CreateSnapshotRequest {
            source_volume_id: id.clone(),
            name: format!("{name}-cut"),
            ..Default::default()
        };
        let cut = self
            .call("snapshot", |client| {
                let request = snapshot.clone();
                async move { client.create_snapshot(request).await }
            })
            .await;
        let expand = ControllerExpandRequest {
            volume_id: id.clone(),
            capacity_range: CapacityRange { required_bytes: 32 * MIB, limit_bytes: 0 },
            secrets: Secrets::default(),
            capability: Some(capability.clone()),
        };
        let grown = self
            .call("expand", |client| {
                let request = expand.clone();
                async move { client.controller_expand(request).await }
            })
            .await;
        assert_eq!(grown.capacity_bytes, 32 * MIB);

        let (staging, targets) =
            (self.plugin.make(&format!("staging-{name}")), self.plugin.make(&format!("targets-{name}")));
        let target = targets.join("one");
        let stage = NodeStageRequest {
            volume_id: id.clone(),
            publish_context: StringMap::new(),
            staging_target_path: staging.clone(),
            capability: capability.clone(),
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        self.call("stage", |client| {
            let request = stage.clone();
            async move { client.node_stage(request).await }
        })
        .await;
        let publish = NodePublishRequest {
            volume_id: id.clone(),
            publish_context: StringMap::new(),
            staging_target_path: Some(staging.clone()),
            target_path: target.clone(),
            capability: capability.clone(),
            readonly: false,
            secrets: Secrets::default(),
            context: StringMap::new(),
        };
        self.call("publish", |client| {
            let request = publish.clone();
            async move { client.node_publish(request).await }
        })
        .await;
        let of_file = capability.attachment_mode == AttachmentMode::FileSystem;
        let mut clone = None;
        if of_file {
            fs::write(target.join("file"), "kept").expect("it takes writes");
            // The volume is in use: the file system of an image is frozen during the copy and thawed in any case.
            let request = creation(&format!("{name}-clone"), Some(ContentSource::Volume(id.clone())));
            let made = self
                .call("clone", |client| {
                    let request = request.clone();
                    async move { client.create_volume(request).await }
                })
                .await;
            fs::write(target.join("file"), "on it goes").expect("it takes writes");
            clone = Some(made);
        }
        let unpublish = NodeUnpublishRequest { volume_id: id.clone(), target_path: target.clone() };
        self.call("unpublish", |client| {
            let request = unpublish.clone();
            async move { client.node_unpublish(request).await }
        })
        .await;
        assert!(!target.exists());
        let unstage = NodeUnstageRequest { volume_id: id.clone(), staging_target_path: staging };
        self.call("unstage", |client| {
            let request = unstage.clone();
            async move { client.node_unstage(request).await }
        })
        .await;
        for id in [Some(id), clone.map(|made| made.volume_id)].into_iter().flatten() {
            let delete = DeleteVolumeRequest { volume_id: id, secrets: Secrets::default() };
            self.call("delete", |client| {
                let request = delete.clone();
                async move { client.delete_volume(request).await }
            })
            .await;
        }
        let delete = DeleteSnapshotRequest { snapshot_id: cut.snapshot_id, secrets: Secrets::default() };
        self.call("delete snapshot", |client| {
            let request = delete.clone();
            async move { client.delete_snapshot(request).await }
        })
        .await;
    }
}

fn left(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is there").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// `HOSTPATH_SEED` repeats one run.
#[tokio::test]
async fn a_plugin_that_is_killed_at_any_moment_loses_nothing_and_leaves_nothing() {
    let chosen = std::env::var("HOSTPATH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = chosen.unwrap_or_else(|| {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::process::id())
    });
    println!("HOSTPATH_SEED={seed}");
    let plugin = Plugin::start(&[]);
    let client = plugin.client();
    let mut run = Run { plugin, client, numbers: Numbers(seed | 1), kills: 0 };
    let ways = [
        (VolumeCapability::file_system(AccessMode::SingleNodeWriter), StringMap::new()),
        (
            VolumeCapability::file_system(AccessMode::SingleNodeWriter),
            StringMap::from([("fs".to_owned(), "ext4".to_owned())]),
        ),
        (VolumeCapability::block_device(AccessMode::SingleNodeWriter), StringMap::new()),
    ];
    for (number, (capability, parameters)) in (0..ROUNDS).zip(ways.iter().cycle()) {
        run.life(number, capability, parameters.clone()).await;
    }
    println!("killed {} times", run.kills);
    // The next start completes or undoes the unfinished calls of a killed process.
    run.plugin.end(Signal::KILL);
    run.plugin.restart();
    assert_eq!(run.plugin.mounts(), Vec::<String>::new());
    // A process that has a device open at this moment, as losetup(8) does for all of them, delays its end.
    until("the loop devices are freed", || run.plugin.loop_devices().is_empty());
    for directory in ["records", "snapshots", "data", "locks"] {
        assert_eq!(left(&run.plugin.path("state").join(directory)), Vec::<String>::new(), "{directory}");
    }
}
