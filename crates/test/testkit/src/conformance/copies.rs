//! Expansion of a volume, and copies of it.

use super::{
    Outcome,
    bench::{Bench, Volume},
    contents,
    life::problem,
};
use anyhow::Result;
use caravan_csi::{
    CapacityRange, Class, ContentSource, ControllerCapability, CsiError, ListSnapshotsRequest,
    NodeCapability, PluginCapability, Snapshot,
};
use std::time::{Duration, Instant};

impl Bench<'_> {
    pub(super) async fn growing(&mut self, volume: &mut Volume) -> Result<()> {
        let (controller, node) = (
            self.offered.controller.has(ControllerCapability::ExpandVolume),
            self.offered.node.has(NodeCapability::ExpandVolume),
        );
        if !controller {
            return Ok(());
        }
        let before = volume.made.capacity_bytes.max(self.settings.size);
        let desired = CapacityRange { required_bytes: before.saturating_mul(2), limit_bytes: 0 };
        let (target, online) =
            (volume.target("one"), self.offered.plugin.has(PluginCapability::ExpansionOnline));
        let mut grown = self.expand(volume, desired).await;
        let refused = grown.as_ref().err().and_then(CsiError::class) == Some(Class::FailedPrecondition);
        let mut offline = false;
        if let (true, Err(error)) = (refused, &grown) {
            let words = error.to_string();
            self.report.add(
                Outcome::Note,
                "ControllerExpandVolume in use",
                if online { format!("says that it can (ONLINE), and refuses it: {words}") } else { words },
            );
            offline = true;
            self.take_down(volume).await;
            grown = self.expand(volume, desired).await;
        }
        let check =
            if offline { "ControllerExpandVolume not in use" } else { "ControllerExpandVolume in use" };
        let Some(grown) = self.report.ok(check, grown) else {
            return self.put_up_again(volume, offline).await;
        };
        self.report.is(
            "ControllerExpandVolume answers the size",
            grown.capacity_bytes >= desired.required_bytes,
            || format!("{} bytes, asked for {}", grown.capacity_bytes, desired.required_bytes),
        );
        let again = self.expand(volume, desired).await;
        if let Some(again) = self.report.ok("ControllerExpandVolume again", again) {
            self.report.is(
                "ControllerExpandVolume again changes nothing",
                again.capacity_bytes == grown.capacity_bytes,
                || format!("{} bytes and then {}", grown.capacity_bytes, again.capacity_bytes),
            );
        }
        let smaller = CapacityRange { required_bytes: 0, limit_bytes: before / 2 };
        let smaller = self.expand(volume, smaller).await;
        self.report.may_refuse("ControllerExpandVolume to less", smaller, Class::OutOfRange);
        self.put_up_again(volume, offline).await?;
        if grown.node_expansion_required && node {
            for check in ["NodeExpandVolume", "NodeExpandVolume again"] {
                let result = self.expand_on_node(volume, &target, grown.capacity_bytes).await;
                self.report.ok(check, result);
            }
        } else if grown.node_expansion_required {
            self.report
                .failed("NodeExpandVolume", "it is required, and the node does not name EXPAND_VOLUME");
        }
        let size = contents::size(volume, &target)?;
        if volume.is_device() {
            self.report.is("the device has the new size", size >= desired.required_bytes, || {
                format!("{size} bytes")
            });
        } else if size > before {
            self.report.passed("the file system has grown");
        } else {
            self.report
                .note("the file system has grown", format!("it has {size} bytes, the volume had {before}"));
        }
        self.reads(volume, &target, "first", "the volume keeps what was written while it grows");
        volume.made.capacity_bytes = grown.capacity_bytes;
        Ok(())
    }

    pub(super) async fn copies(&mut self, volume: &mut Volume, name: &str) -> Result<()> {
        if self.offered.controller.has(ControllerCapability::CreateDeleteSnapshot) {
            let cut = format!("{name}-cut");
            let mut result = self.snapshot(volume, &cut).await;
            let refused = result.as_ref().err().and_then(CsiError::class) == Some(Class::FailedPrecondition);
            if let (true, Err(error)) = (refused, &result) {
                self.report.note("CreateSnapshot of a volume in use", error.to_string());
                self.take_down(volume).await;
                result = self.snapshot(volume, &cut).await;
            }
            let made = self.report.ok("CreateSnapshot", result);
            self.put_up_again(volume, refused).await?;
            if let Some(snapshot) = made {
                self.of_snapshot(volume, name, &cut, snapshot).await?;
            }
        }
        if self.offered.controller.has(ControllerCapability::CloneVolume) {
            let request = self.copy(&format!("{name}-clone"), volume, ContentSource::Volume(volume.id()));
            let mut result = self.create(request.clone()).await;
            let refused = result.as_ref().err().and_then(CsiError::class) == Some(Class::FailedPrecondition);
            if let (true, Err(error)) = (refused, &result) {
                self.report.note("CreateVolume from a volume in use", error.to_string());
                self.take_down(volume).await;
                result = self.create(request).await;
            }
            let made = self.report.ok("CreateVolume from a volume", result);
            self.put_up_again(volume, refused).await?;
            if let Some(made) = made {
                let copy = self.volume(made, &volume.capability, &format!("{name}-clone"))?;
                self.copy_in_use(copy, "the clone", "first").await;
            }
        }
        Ok(())
    }

    async fn of_snapshot(
        &mut self,
        volume: &Volume,
        name: &str,
        cut: &str,
        snapshot: Snapshot,
    ) -> Result<()> {
        let deadline = Instant::now() + self.settings.patience;
        let mut ready = snapshot.ready_to_use;
        while !ready && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ready = self.snapshot(volume, cut).await.is_ok_and(|snapshot| snapshot.ready_to_use);
        }
        self.report
            .is("the snapshot gets ready", ready, || format!("not within {:?}", self.settings.patience));
        let again = self.snapshot(volume, cut).await;
        if let Some(again) = self.report.ok("CreateSnapshot again", again) {
            self.report.is(
                "CreateSnapshot again is the same snapshot",
                again.snapshot_id == snapshot.snapshot_id,
                || format!("{} and then {}", snapshot.snapshot_id, again.snapshot_id),
            );
        }
        let other = self.create(self.creation(&format!("{name}-other"), &volume.capability)).await;
        if let Some(other) = self.report.ok("CreateVolume", other) {
            let other = self.volume(other, &volume.capability, &format!("{name}-other"))?;
            let result = self.snapshot(&other, cut).await;
            self.report.refused(
                "CreateSnapshot by the same name of another volume",
                result,
                Class::AlreadyExists,
            );
            self.clear(&other).await;
        }
        if self.offered.controller.has(ControllerCapability::ListSnapshots) {
            for (check, filter) in [
                (
                    "ListSnapshots of the volume",
                    ListSnapshotsRequest { source_volume_id: volume.id(), ..Default::default() },
                ),
                (
                    "ListSnapshots of the snapshot",
                    ListSnapshotsRequest { snapshot_id: snapshot.snapshot_id.clone(), ..Default::default() },
                ),
            ] {
                let filter = ListSnapshotsRequest { secrets: self.settings.secrets.clone(), ..filter };
                let page = self.client.list_snapshots(filter).await;
                if let Some(page) = self.report.ok(check, page) {
                    let found = page.entries.iter().filter(|s| s.snapshot_id == snapshot.snapshot_id).count();
                    self.report.is(
                        &format!("{check} has it, alone"),
                        found == 1 && page.entries.len() == 1,
                        || format!("{found} times among {}", page.entries.len()),
                    );
                }
            }
        }
        // The copy does not contain later writes.
        let written = contents::write(volume, &volume.target("one"), "later");
        self.report.is("the volume can be written after a snapshot", written.is_ok(), || problem(&written));
        let source = ContentSource::Snapshot(snapshot.snapshot_id.clone());
        let request = self.copy(&format!("{name}-restored"), volume, source);
        let made = self.create(request).await;
        if let Some(made) = self.report.ok("CreateVolume from a snapshot", made) {
            let copy = self.volume(made, &volume.capability, &format!("{name}-restored"))?;
            self.copy_in_use(copy, "the volume from the snapshot", "first").await;
        }
        let written = contents::write(volume, &volume.target("one"), "first");
        self.report.is("the volume can be written again", written.is_ok(), || problem(&written));
        for check in ["DeleteSnapshot", "DeleteSnapshot again"] {
            let result = self.delete_snapshot(&snapshot.snapshot_id).await;
            self.report.ok(check, result);
        }
        Ok(())
    }

    async fn copy_in_use(&mut self, mut copy: Volume, what: &str, word: &str) {
        let target = copy.target("one");
        let result = self.bring(&mut copy, &target).await;
        if self.report.ok(&format!("{what} can be used"), result).is_some() {
            self.reads(&copy, &target, word, &format!("{what} holds what it was made from"));
        }
        self.clear(&copy).await;
    }
}
