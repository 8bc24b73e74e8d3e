//! The life of one volume with one combination of modes.

use super::{
    bench::{Bench, Volume, patiently},
    contents,
};
use anyhow::Result;
use caravan_csi::{
    CapacityRange, Class, ControllerCapability, CreateVolumeRequest, CsiError, NodeCapability,
    NodeStatsRequest, ValidateRequest, Validation, VolumeCapability,
};
use std::path::Path;

impl Bench<'_> {
    /// Creates a volume and uses it with all features of the plugin.
    pub(super) async fn life(&mut self, capability: &VolumeCapability, name: &str) -> Result<()> {
        let request = self.creation(name, capability);
        let made = match self.create(request.clone()).await {
            Ok(made) => made,
            Err(error) if matches!(error.class(), Some(Class::InvalidArgument | Class::Unimplemented)) => {
                self.report.not_offered("volumes of this kind", error.to_string());
                return Ok(());
            }
            Err(error) => {
                self.report.failed("CreateVolume", error.to_string());
                return Ok(());
            }
        };
        self.report.passed("CreateVolume");
        let mut volume = self.volume(made, capability, name)?;
        self.creation_again(&request, &volume).await;
        self.found(&volume).await;
        self.attached(&mut volume).await;
        if self.in_use(&volume).await? {
            self.overlapping(&volume).await;
            self.hurrying(&volume, name).await?;
            self.growing(&mut volume).await?;
            self.copies(&mut volume, name).await?;
            self.deletion_in_use(&volume, name).await?;
            self.undone(&mut volume).await?;
        }
        self.end(volume).await;
        Ok(())
    }

    async fn creation_again(&mut self, request: &CreateVolumeRequest, volume: &Volume) {
        let again = self.create(request.clone()).await;
        if let Some(again) = self.report.ok("CreateVolume again", again) {
            self.report.is(
                "CreateVolume again is the same volume",
                again.volume_id == volume.made.volume_id,
                || format!("{} and then {}", volume.made.volume_id, again.volume_id),
            );
        }
        if volume.made.capacity_bytes == 0 {
            self.report
                .note("CreateVolume by the same name with another size", "sizes of volumes are not known");
            return;
        }
        let required_bytes = volume.made.capacity_bytes.saturating_mul(2);
        let larger = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            ..request.clone()
        };
        let result = self.create(larger).await;
        self.report.refused("CreateVolume by the same name with another size", result, Class::AlreadyExists);
    }

    /// Checks the plugin's responses about a volume.
    async fn found(&mut self, volume: &Volume) {
        let validate = ValidateRequest {
            volume_id: volume.id(),
            context: volume.made.context.clone(),
            capabilities: vec![volume.capability.clone()],
            parameters: self.settings.parameters.clone(),
            secrets: self.settings.secrets.clone(),
        };
        match self.client.validate_capabilities(validate).await {
            Ok(Validation::Confirmed) => self.report.passed("ValidateVolumeCapabilities"),
            Ok(Validation::Refused(words)) => {
                self.report
                    .note("ValidateVolumeCapabilities", format!("does not confirm what it made: {words}"));
            }
            Err(error) => self.report.failed("ValidateVolumeCapabilities", error.to_string()),
        }
        if self.offered.controller.has(ControllerCapability::ListVolumes) {
            let listed = self.is_listed(&volume.made.volume_id).await;
            if let Some(listed) = self.report.ok("ListVolumes", listed) {
                self.report.is("ListVolumes has the volume, once", listed == 1, || format!("{listed} times"));
            }
            let result = self.client.list_volumes(0, "no-token-of-anyone").await;
            self.report.refused("ListVolumes from a token that was never given", result, Class::Aborted);
        }
        if self.offered.controller.has(ControllerCapability::GetVolume) {
            let result = self.client.controller_get_volume(&volume.made.volume_id).await;
            if let Some(got) = self.report.ok("ControllerGetVolume", result) {
                self.report.is("ControllerGetVolume is the same volume", got.volume == volume.made, || {
                    format!("{:?}", got.volume.volume_id)
                });
            }
        }
    }

    async fn is_listed(&self, id: &str) -> Result<usize, CsiError> {
        let (mut found, mut token) = (0, String::new());
        loop {
            let page = self.client.list_volumes(100, &token).await?;
            found += page.entries.iter().filter(|entry| entry.volume.volume_id == id).count();
            match page.next_token {
                Some(next) if next != token => token = next,
                _ => return Ok(found),
            }
        }
    }

    async fn attached(&mut self, volume: &mut Volume) {
        if !self.offered.attaches() {
            return;
        }
        let nowhere = self.attach_to(volume, &format!("{}-that-is-not", self.node.node_id)).await;
        self.report.refused(
            "ControllerPublishVolume to a node that does not exist",
            nowhere,
            Class::NotFound,
        );
        // A call without the context of an attachment, as by a faulty caller.
        if self.offered.stages() {
            let early = self.stage(volume).await;
            let succeeded = early.is_ok();
            self.report.may_refuse(
                "NodeStageVolume before ControllerPublishVolume",
                early,
                Class::FailedPrecondition,
            );
            if succeeded {
                let undone = self.unstage(volume).await;
                self.report.ok("NodeUnstageVolume", undone);
            }
        }
        let attached = self.attach(volume).await;
        if let Some(context) = self.report.ok("ControllerPublishVolume", attached) {
            let again = self.attach(volume).await;
            if let Some(again) = self.report.ok("ControllerPublishVolume again", again)
                && again != context
            {
                self.report.note("ControllerPublishVolume again", "answers another publish context");
            }
            volume.context = context;
        }
    }

    /// Stages and publishes the volume. Returns whether the volume can be used.
    async fn in_use(&mut self, volume: &Volume) -> Result<bool> {
        let target = volume.target("one");
        if self.offered.stages() {
            let early = self.publish(volume, &target, false).await;
            let succeeded = early.is_ok();
            self.report.refused("NodePublishVolume before NodeStageVolume", early, Class::FailedPrecondition);
            if succeeded {
                let undone = self.unpublish(volume, &target).await;
                self.report.ok("NodeUnpublishVolume", undone);
            }
            for check in ["NodeStageVolume", "NodeStageVolume again"] {
                let staged = self.stage(volume).await;
                if self.report.ok(check, staged).is_none() {
                    return Ok(false);
                }
            }
        }
        for check in ["NodePublishVolume", "NodePublishVolume again"] {
            let published = self.publish(volume, &target, false).await;
            if self.report.ok(check, published).is_none() {
                return Ok(false);
            }
        }
        let seen = contents::look(volume, &target);
        self.report.is("the volume is at its target", seen.is_ok(), || problem(&seen));
        let written = contents::write(volume, &target, "first");
        self.report.is("the volume can be written", written.is_ok(), || problem(&written));
        self.reads(volume, &target, "first", "the volume reads what was written");
        self.second_target(volume).await;
        self.measured(volume, &target).await;
        Ok(true)
    }

    pub(super) fn reads(&mut self, volume: &Volume, target: &Path, word: &str, check: &str) {
        let read = contents::read(volume, target);
        let so = read.as_ref().is_ok_and(|read| read == word);
        self.report.is(check, so, || match &read {
            Ok(read) => format!("{read:?} instead of {word:?}"),
            Err(error) => format!("{error:#}"),
        });
    }

    /// Publishes the volume at a second target on the same node, read-only.
    async fn second_target(&mut self, volume: &Volume) {
        let target = volume.target("two");
        match self.publish(volume, &target, true).await {
            Err(error) => {
                self.report.note("a second target for reading only", error.to_string());
            }
            Ok(()) => {
                self.report.note("a second target for reading only", "allows it");
                self.reads(volume, &target, "first", "the second target reads what was written at the first");
                let written = contents::write(volume, &target, "no");
                self.report.is("a target for reading only takes no writes", written.is_err(), || {
                    "the write succeeded".to_owned()
                });
                // A call for the same target with another mode.
                let otherwise = self.publish(volume, &target, false).await;
                self.report.may_refuse(
                    "NodePublishVolume again in another way",
                    otherwise,
                    Class::AlreadyExists,
                );
            }
        }
        let undone = self.unpublish(volume, &target).await;
        self.report.ok("NodeUnpublishVolume of the second target", undone);
        self.reads(volume, &volume.target("one"), "first", "the first target outlives the second");
    }

    async fn measured(&mut self, volume: &Volume, target: &Path) {
        if !self.offered.node.has(NodeCapability::GetVolumeStats) {
            return;
        }
        let stats = self.stats(volume, target).await;
        if let Some(stats) = self.report.ok("NodeGetVolumeStats", stats) {
            let total = stats.bytes.is_some_and(|bytes| bytes.total > 0);
            if !total {
                self.report.note("NodeGetVolumeStats", "does not count bytes");
            }
            if stats.inodes.is_none() && !volume.is_device() {
                self.report.note("NodeGetVolumeStats", "does not count inodes");
            }
            if self.offered.node.has(NodeCapability::VolumeCondition) {
                let condition = stats.condition.as_ref().is_some_and(|condition| !condition.abnormal);
                self.report.is("NodeGetVolumeStats tells a good condition", condition, || {
                    format!("{:?}", stats.condition)
                });
            }
        }
        let elsewhere = self.stats(volume, &volume.target("nowhere")).await;
        self.report.refused(
            "NodeGetVolumeStats at a path where the volume is not",
            elsewhere,
            Class::NotFound,
        );
        let nobody = NodeStatsRequest {
            volume_id: self.name("nobody"),
            volume_path: target.to_owned(),
            staging_target_path: None,
        };
        let nobody = self.client.node_get_volume_stats(nobody).await;
        self.report.refused("NodeGetVolumeStats of what does not exist", nobody, Class::NotFound);
    }

    /// Sends several calls for the volume at the same time.
    async fn overlapping(&mut self, volume: &Volume) {
        let target = volume.target("overlap");
        let publish = || self.client.node_publish(self.publish_request(volume, &target, false));
        let (one, two, three, four) = tokio::join!(publish(), publish(), publish(), publish());
        self.side_by_side("NodePublishVolume, four at once", vec![one, two, three, four]);
        let settled = self.publish(volume, &target, false).await;
        let published = self.report.ok("NodePublishVolume after four at once", settled).is_some();
        if published {
            self.reads(volume, &target, "first", "the volume is whole after four at once");
        }
        let unpublish = || self.client.node_unpublish(self.unpublish_request(volume, &target));
        let (one, two, three, four) = tokio::join!(unpublish(), unpublish(), unpublish(), unpublish());
        self.side_by_side("NodeUnpublishVolume, four at once", vec![one, two, three, four]);
        let settled = self.unpublish(volume, &target).await;
        self.report.ok("NodeUnpublishVolume after four at once", settled);
        self.not_at(&target);
    }

    /// Checks overlapping calls: each succeeds, or fails with a code that means "later".
    fn side_by_side(&mut self, check: &str, results: Vec<Result<(), CsiError>>) {
        let done = results.iter().filter(|result| result.is_ok()).count();
        let errors: Vec<CsiError> = results.into_iter().filter_map(Result::err).collect();
        if let Some(error) = errors.iter().find(|error| !error.is_retryable()) {
            self.report.note(check, format!("answers what cannot be taken for \"later\": {error}"));
        } else if let Some(error) = errors.first() {
            let class = error.class().map_or_else(|| "nothing".to_owned(), |class| class.to_string());
            self.report.note(check, format!("carries out {done}, answers {class} when calls overlap"));
        } else {
            self.report.note(check, "carries out all of them, when calls overlap");
        }
    }

    fn not_at(&mut self, target: &Path) {
        let name = target.display().to_string();
        let mounted = crate::mounts_below(&name).is_ok_and(|mounts| !mounts.is_empty());
        self.report.is("NodeUnpublishVolume ends the mount", !mounted, || format!("{name} is still mounted"));
        if !mounted && target.exists() {
            self.report.note("NodeUnpublishVolume", "leaves the target path behind, which it should remove");
        }
    }

    /// Sends calls whose deadlines expire before they complete, and then repeats them.
    async fn hurrying(&mut self, volume: &Volume, name: &str) -> Result<()> {
        let target = volume.target("hurry");
        let cut = self.hurried.node_publish(self.publish_request(volume, &target, false)).await;
        self.cut_off("NodePublishVolume", cut);
        let again = self.publish(volume, &target, false).await;
        if self.report.ok("NodePublishVolume again after its deadline", again).is_some() {
            self.reads(volume, &target, "first", "the volume is whole after a deadline");
        }
        let cut = self.hurried.node_unpublish(self.unpublish_request(volume, &target)).await;
        self.cut_off("NodeUnpublishVolume", cut);
        let again = self.unpublish(volume, &target).await;
        self.report.ok("NodeUnpublishVolume again after its deadline", again);
        self.not_at(&target);

        let request = self.creation(&format!("{name}-hurry"), &volume.capability);
        let cut = self.hurried.create_volume(request.clone()).await.map(drop);
        self.cut_off("CreateVolume", cut);
        let made = self.create(request.clone()).await;
        let Some(made) = self.report.ok("CreateVolume again after its deadline", made) else {
            return Ok(());
        };
        let again = self.create(request).await;
        if let Some(again) = self.report.ok("CreateVolume once more", again) {
            self.report.is(
                "CreateVolume after a deadline makes one volume",
                again.volume_id == made.volume_id,
                || format!("{} and then {}", made.volume_id, again.volume_id),
            );
        }
        let cut = self.hurried.delete_volume(self.delete_request(made.volume_id.clone())).await;
        self.cut_off("DeleteVolume", cut);
        let again = self.delete(&made.volume_id).await;
        self.report.ok("DeleteVolume again after its deadline", again);
        Ok(())
    }

    fn cut_off(&mut self, call: &str, result: Result<(), CsiError>) {
        let check = format!("{call} with a deadline of a millisecond");
        match result {
            Ok(()) => self.report.note(&check, "keeps it"),
            Err(error) if error.outcome_unknown() => self.report.passed(&check),
            Err(error) => self.report.note(&check, error.to_string()),
        }
    }

    /// Unpublishes and unstages the volume.
    pub(super) async fn take_down(&mut self, volume: &mut Volume) {
        let unpublished = self.unpublish(volume, &volume.target("one")).await;
        self.report.ok("NodeUnpublishVolume", unpublished);
        if self.offered.stages() {
            let unstaged = self.unstage(volume).await;
            self.report.ok("NodeUnstageVolume", unstaged);
        }
        if self.offered.attaches() {
            let detached = self.detach(volume).await;
            self.report.ok("ControllerUnpublishVolume", detached);
        }
    }

    pub(super) async fn put_up_again(&mut self, volume: &mut Volume, down: bool) -> Result<()> {
        if down {
            let target = volume.target("one");
            let result = self.bring(volume, &target).await;
            self.report.ok("NodePublishVolume anew", result);
        }
        Ok(())
    }

    /// Deletes a volume in use, with a volume that no other check needs.
    async fn deletion_in_use(&mut self, like: &Volume, name: &str) -> Result<()> {
        let name = format!("{name}-used");
        let made = self.create(self.creation(&name, &like.capability)).await;
        let Some(made) = self.report.ok("CreateVolume", made) else { return Ok(()) };
        let mut volume = self.volume(made, &like.capability, &name)?;
        let target = volume.target("one");
        let result = self.bring(&mut volume, &target).await;
        if self.report.ok("NodePublishVolume of a second volume", result).is_some() {
            let deleted = self.client.delete_volume(self.delete_request(volume.id())).await;
            self.report.may_refuse("DeleteVolume in use", deleted, Class::FailedPrecondition);
        }
        self.clear(&volume).await;
        Ok(())
    }

    /// Undoes all steps, each twice, and repeats them: the data must still exist.
    async fn undone(&mut self, volume: &mut Volume) -> Result<()> {
        let target = volume.target("one");
        self.take_down_twice(volume, &target).await;
        if self.offered.stages() {
            let late = self.publish(volume, &target, false).await;
            self.report.refused("NodePublishVolume after NodeUnstageVolume", late, Class::FailedPrecondition);
        }
        let result = self.bring(volume, &target).await;
        if self.report.ok("the volume is used anew", result).is_some() {
            self.reads(volume, &target, "first", "the volume keeps what was written");
            self.take_down_twice(volume, &target).await;
        }
        Ok(())
    }

    async fn take_down_twice(&mut self, volume: &Volume, target: &Path) {
        for check in ["NodeUnpublishVolume", "NodeUnpublishVolume again"] {
            let result = self.unpublish(volume, target).await;
            self.forgiving(check, result);
        }
        self.not_at(target);
        if self.offered.stages() {
            for check in ["NodeUnstageVolume", "NodeUnstageVolume again"] {
                let result = self.unstage(volume).await;
                self.forgiving(check, result);
            }
            let name = volume.staging.display().to_string();
            let mounted = crate::mounts_below(&name).is_ok_and(|mounts| !mounts.is_empty());
            self.report
                .is("NodeUnstageVolume ends the mount", !mounted, || format!("{name} is still mounted"));
        }
        if self.offered.attaches() {
            for check in ["ControllerUnpublishVolume", "ControllerUnpublishVolume again"] {
                let result = self.detach(volume).await;
                self.forgiving(check, result);
            }
        }
    }

    /// Checks a repeated undo, which must succeed; some plugins respond that there is nothing to undo.
    fn forgiving(&mut self, check: &str, result: Result<(), CsiError>) {
        match result {
            Err(error) if check.ends_with("again") && error.class() == Some(Class::NotFound) => {
                self.report.note(check, format!("answers NOT_FOUND where nothing is left to do: {error}"));
            }
            result => {
                self.report.ok(check, result);
            }
        }
    }

    async fn end(&mut self, volume: Volume) {
        self.clear_quietly(&volume).await;
        for check in ["DeleteVolume", "DeleteVolume again"] {
            let result = self.delete(&volume.made.volume_id).await;
            self.report.ok(check, result);
        }
        if self.offered.controller.has(ControllerCapability::ListVolumes) {
            let listed = self.is_listed(&volume.made.volume_id).await;
            if let Ok(listed) = listed {
                self.report
                    .is("ListVolumes forgets the volume", listed == 0, || "it is still listed".to_owned());
            }
        }
        if self.offered.stages() {
            let result = self.stage(&volume).await;
            self.report.refused("NodeStageVolume of a deleted volume", result, Class::NotFound);
        }
        let target = volume.target("late");
        if !self.offered.stages() {
            let result = self.publish(&volume, &target, false).await;
            self.report.refused("NodePublishVolume of a deleted volume", result, Class::NotFound);
        }
    }

    /// Removes the volume that remains after a failed check.
    async fn clear_quietly(&self, volume: &Volume) {
        let targets = std::fs::read_dir(&volume.targets).into_iter().flatten().flatten();
        for target in targets.map(|entry| entry.path()) {
            // A failure here follows from an earlier failed check.
            let _ = patiently(self.settings.patience, || {
                self.client.node_unpublish(self.unpublish_request(volume, &target))
            })
            .await;
        }
    }
}

pub(super) fn problem(result: &Result<()>) -> String {
    result.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"))
}
