//! Plugins with deviating behaviour: a failed or dead mount keeps no claim, and does not block the next allocation.

use crate::id_of;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::cluster::{Cluster, ClusterOptions, FaultPlugin, Stamper, stamper_job};
use caravan_testkit::eventually;
use serde_json::{Value, json};

/// A cluster with one node, a fault plugin and a volume `v`.
struct World(Cluster);

impl World {
    fn start(plugin: &FaultPlugin, access_mode: &str) -> Result<Self> {
        Self::start_in("data", plugin, access_mode)
    }

    fn start_in(data: &str, plugin: &FaultPlugin, access_mode: &str) -> Result<Self> {
        let options = ClusterOptions { nodes: 1, data: data.to_owned(), ..ClusterOptions::default() };
        let mut cluster = Cluster::start(&options)?;
        cluster.run_plugin(plugin)?;
        cluster.create_volume("v", "p", access_mode)?;
        Ok(Self(cluster))
    }

    fn faults(&self, rules: &[Value]) -> Result<()> {
        self.0.san("p").set_faults(rules)
    }

    fn run(&self, job: &str, access_mode: &str, broken_mount: &str) -> Result<()> {
        let job_text = stamper_job(&Stamper {
            id: job.into(),
            driver: "raw_exec".into(),
            volume: "v".into(),
            access_mode: access_mode.into(),
            count: 1,
            version: 0,
            broken_mount: broken_mount.into(),
        });
        self.0.run_job(job, &job_text)
    }

    /// Waits until a job runs and has written. Returns its allocation.
    fn writes(&self, job: &str) -> Result<String> {
        eventually(&format!("job {job} to write"), || {
            let allocs = self.0.server().allocs(job)?;
            let running = allocs.iter().find(|a| a["ClientStatus"] == "running");
            let Some(alloc) = running else { bail!("{allocs:?}") };
            let id = id_of(alloc)?;
            let stamps = self.0.san("p").stamps("v")?;
            ensure!(stamps.iter().any(|stamp| stamp.alloc == id), "allocation {id} has written nothing");
            Ok(id)
        })
        .with_context(|| self.status())
    }

    /// Returns the number of calls of this name about the volume.
    fn calls(&self, call: &str) -> Result<usize> {
        let log = std::fs::read_to_string(self.0.san("p").trace())?;
        let is = |line: &&str| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["event"] == "begin" && line["call"] == call && line["volume"] == "v"
        };
        Ok(log.lines().filter(is).count())
    }

    fn called(&self, call: &str, times: usize) -> Result<()> {
        eventually(&format!("{call} to be called {times} times"), || {
            let now = self.calls(call)?;
            if now >= times { Ok(()) } else { bail!("{now} times") }
        })
        .with_context(|| self.status())
    }

    fn kill_plugin(&self) -> Result<()> {
        let killed =
            self.0.nodes()[0].kill_with(&["caravan-faultplugin serve", "--drivername=p.csi.test"])?;
        ensure!(killed > 0, "the plugin does not run");
        Ok(())
    }

    fn explain(&self) -> Result<String> {
        Ok(self.0.server().get("/v1/volume/csi/v/explain")?.to_string())
    }

    fn explains(&self, words: &[&str]) -> Result<()> {
        eventually(&format!("the volume to be explained by {words:?}"), || {
            let text = self.explain()?;
            if words.iter().all(|word| text.contains(word)) { Ok(()) } else { bail!("{text}") }
        })
        .with_context(|| self.status())
    }

    /// Stops all jobs and checks that no claim, no mount and no state at the plugin remains.
    fn ends(&self, jobs: &[&str]) -> Result<()> {
        for job in jobs {
            self.0.stop_job(job, false)?;
        }
        self.0.server().wait_no_claims("v").with_context(|| self.status())?;
        let left = self.0.nodes()[0].volume_mounts()?;
        ensure!(left.is_empty(), "{left:?}");
        self.0.server().caravan(&["volume", "delete", "v"])?.ok().with_context(|| self.status()).map(drop)
    }

    fn status(&self) -> String {
        let trace = std::fs::read_to_string(self.0.san("p").trace()).unwrap_or_default();
        let about: Vec<&str> = trace.lines().filter(|line| line.contains("\"volume\":\"v\"")).collect();
        format!("--- the plugin's log\n{}\n{}", about.join("\n"), self.0.nodes()[0].agent().log_tail())
    }
}

const ONE: &str = "single-node-writer";
const MANY: &str = "multi-node-multi-writer";

/// Fails every mount of a plugin that refuses to undo a step that it never executed.
fn never_mounted(plugin: &FaultPlugin, fails: &str, undone_by: &str) -> Result<()> {
    let world = World::start(plugin, ONE)?;
    world.faults(&[json!({ "call": fails, "action": "fail", "code": "Internal" })])?;
    world.run("w", ONE, "hold")?;
    world.called(fails, 2)?;
    world.0.stop_job("w", false)?;
    world.0.server().wait_no_claims("v").with_context(|| world.status())?;
    if fails == "NodeStageVolume" {
        ensure!(world.calls("NodeUnpublishVolume")? == 0, "what was never published was unpublished");
    }
    ensure!(world.calls(undone_by)? > 0, "what may have happened is undone: {}", world.status());
    world.explains(&[
        "told to fail",
        "it is not known here",
        "nothing is mounted at",
        "the claim goes on",
    ])?;
    world.ends(&["w"])
}

#[test]
fn a_stage_that_failed_keeps_no_claim_with_internal() -> Result<()> {
    let plugin = FaultPlugin::new("p", true, true, &["--unknown=internal", "--topology"]);
    never_mounted(&plugin, "NodeStageVolume", "NodeUnstageVolume")
}

#[test]
fn a_stage_that_failed_keeps_no_claim_with_failed_precondition() -> Result<()> {
    let plugin =
        FaultPlugin::new("p", false, true, &["--unknown=failed-precondition", "--capabilities-twice"]);
    never_mounted(&plugin, "NodeStageVolume", "NodeUnstageVolume")
}

#[test]
fn a_publish_that_failed_keeps_no_claim_without_a_stage() -> Result<()> {
    let plugin = FaultPlugin::new("p", false, false, &["--unknown=internal"]);
    never_mounted(&plugin, "NodePublishVolume", "NodeUnpublishVolume")
}

#[test]
fn a_publish_that_failed_keeps_no_claim_on_a_stage() -> Result<()> {
    let plugin = FaultPlugin::new("p", false, true, &["--unknown=internal", "--outside"]);
    never_mounted(&plugin, "NodePublishVolume", "NodeUnpublishVolume")
}

#[test]
fn an_agent_that_dies_after_a_failed_stage_keeps_no_claim() -> Result<()> {
    let mut world = World::start(&FaultPlugin::new("p", true, true, &["--unknown=internal"]), ONE)?;
    world.faults(&[json!({ "call": "NodeStageVolume", "action": "fail", "code": "Internal" })])?;
    world.run("w", ONE, "hold")?;
    world.called("NodeStageVolume", 1)?;
    world.0.node(0).kill_agent()?;
    world.0.stop_job("w", false)?;
    world.0.node(0).start_agent()?;
    world.0.node(0).wait_ready()?;
    world.0.server().wait_no_claims("v").with_context(|| world.status())?;
    ensure!(world.calls("NodePublishVolume")? == 0 && world.calls("NodeUnpublishVolume")? == 0);
    world.ends(&["w"])
}

/// Kills the daemon of a FUSE file system with the plugin while a writer holds files open.
fn daemon_dies(habits: &[&str], stage: bool) -> Result<()> {
    let world = World::start(&FaultPlugin::new("p", false, stage, habits), ONE)?;
    world.run("one", ONE, "hold")?;
    world.writes("one")?;
    world.kill_plugin()?;
    world.run("two", ONE, "hold")?;
    world.0.stop_job("one", false)?;
    world.writes("two")?;
    world.ends(&["one", "two"])
}

#[test]
fn a_dead_stage_does_not_block_the_next_writer() -> Result<()> {
    daemon_dies(&["--fuse", "--once", "--unknown=internal"], true)
}

#[test]
fn a_dead_stage_unknown_to_its_plugin_does_not_block_the_next_writer() -> Result<()> {
    daemon_dies(&["--fuse", "--once", "--unknown=failed-precondition", "--forget"], true)
}

#[test]
fn a_dead_target_does_not_block_the_next_writer() -> Result<()> {
    daemon_dies(&["--fuse", "--once", "--unknown=internal", "--forget"], false)
}

#[test]
fn a_dead_stage_beneath_a_mount_of_the_plugins_own_does_not_block_the_next_writer() -> Result<()> {
    daemon_dies(&["--fuse", "--outside", "--unknown=internal"], true)
}

/// Checks two users of a staged volume whose daemon dies. The new user waits for the existing one, reports the wait,
/// and does not count as a user.
#[test]
fn a_newcomer_waits_for_the_user_of_a_dead_stage_and_is_none() -> Result<()> {
    let plugin = FaultPlugin::new("p", false, true, &["--fuse", "--once", "--unknown=internal"]);
    let world = World::start(&plugin, MANY)?;
    world.run("one", MANY, "hold")?;
    let one = world.writes("one")?;
    world.kill_plugin()?;
    world.run("two", MANY, "hold")?;
    let reason = ["is dead", "Transport endpoint is not connected", &one, "of job"];
    world.explains(&reason)?;
    let reported = eventually("the newcomer's event", || {
        let text = world.0.server().allocs("two")?.first().map(ToString::to_string).unwrap_or_default();
        if reason.iter().all(|word| text.contains(word)) { Ok(()) } else { bail!("{text}") }
    });
    reported.with_context(|| world.status())?;
    ensure!(world.calls("NodeStageVolume")? == 1, "nothing is staged over a dead stage");
    world.0.stop_job("one", false)?;
    world.writes("two")?;
    ensure!(world.calls("NodeUnstageVolume")? > 0, "the dead stage was ended: {}", world.status());
    world.ends(&["one", "two"])
}

#[test]
fn writers_that_are_restarted_share_a_new_stage_after_their_daemon_died() -> Result<()> {
    let plugin = FaultPlugin::new("p", false, true, &["--fuse", "--once", "--unknown=internal"]);
    let world = World::start(&plugin, MANY)?;
    for job in ["one", "two"] {
        world.run(job, MANY, "restart")?;
    }
    let writers = [world.writes("one")?, world.writes("two")?];
    world.kill_plugin()?;
    let before = world.0.san("p").stamps("v")?.len();
    eventually("both to write again", || {
        let stamps = world.0.san("p").stamps("v")?;
        let again = |alloc: &String| stamps[before..].iter().any(|stamp| stamp.alloc == *alloc);
        if writers.iter().all(again) { Ok(()) } else { bail!("{} stamps", stamps.len()) }
    })
    .with_context(|| world.status())?;
    world.ends(&["one", "two"])
}

/// Fails a call that has mounted the volume without a record of the mount. The plugin refuses to repeat the call.
fn half_way(call: &str, habits: &[&str]) -> Result<()> {
    let world = World::start(&FaultPlugin::new("p", false, true, habits), ONE)?;
    world.faults(&[json!({ "call": call, "action": "half", "times": 1 })])?;
    world.run("w", ONE, "hold")?;
    world.writes("w")?;
    world.ends(&["w"])
}

#[test]
fn a_stage_that_half_succeeded_is_ended_and_made_again() -> Result<()> {
    half_way("NodeStageVolume", &["--once", "--unknown=internal"])
}

#[test]
fn a_stage_that_half_succeeded_is_ended_although_the_plugin_does_not_know_it() -> Result<()> {
    half_way("NodeStageVolume", &["--once", "--unknown=internal", "--forget"])
}

#[test]
fn a_publish_that_half_succeeded_is_ended_and_made_again() -> Result<()> {
    half_way("NodePublishVolume", &["--once", "--unknown=failed-precondition", "--forget"])
}

/// Checks undos that succeed, whose answers are lost, and that the plugin refuses to repeat.
#[test]
fn undoing_whose_answer_was_lost_ends() -> Result<()> {
    let world = World::start(&FaultPlugin::new("p", false, true, &["--unknown=internal"]), ONE)?;
    world.run("w", ONE, "hold")?;
    world.writes("w")?;
    world.faults(&[
        json!({ "call": "NodeUnpublishVolume", "action": "fail", "when": "after", "times": 1 }),
        json!({ "call": "NodeUnstageVolume", "action": "fail", "when": "after", "times": 1 }),
    ])?;
    world.0.stop_job("w", false)?;
    world.explains(&["it is not known here"])?;
    world.ends(&["w"])
}

/// Checks that live mounts are ended that a new process of the plugin has not recorded and refuses to end.
#[test]
fn mounts_that_a_new_process_of_the_plugin_does_not_know_are_ended() -> Result<()> {
    let world = World::start(&FaultPlugin::new("p", false, true, &["--unknown=internal", "--forget"]), ONE)?;
    world.run("w", ONE, "hold")?;
    world.writes("w")?;
    world.kill_plugin()?;
    world.ends(&["w"])
}

/// Checks a path of a socket that is longer than an address (107 bytes, unix(7)).
#[test]
fn a_new_plugin_process_is_recognized_below_a_long_path() -> Result<()> {
    let plugin = FaultPlugin::new("p", false, true, &["--unknown=internal", "--forget"]);
    let world = World::start_in(&format!("{}/data", "deep".repeat(20)), &plugin, ONE)?;
    world.run("w", ONE, "hold")?;
    world.writes("w")?;
    world.kill_plugin()?;
    world.ends(&["w"])
}

/// Checks that a definitely refused attach causes no detach, which the plugin would refuse.
#[test]
fn an_attach_that_was_refused_keeps_no_claim() -> Result<()> {
    let plugin = FaultPlugin::new("p", true, true, &["--unknown-attachment=internal"]);
    let world = World::start(&plugin, ONE)?;
    let refuse = json!({ "call": "ControllerPublishVolume", "action": "fail", "code": "PermissionDenied" });
    world.faults(&[refuse])?;
    world.run("w", ONE, "hold")?;
    world.called("ControllerPublishVolume", 2)?;
    world.0.stop_job("w", false)?;
    world.0.server().wait_no_claims("v").with_context(|| world.status())?;
    ensure!(world.calls("ControllerUnpublishVolume")? == 0, "what was never attached was detached");
    world.explains(&["told to fail"])?;
    world.ends(&["w"])
}

/// Checks that an attach with an unknown outcome proves nothing: the claim waits for the plugin and shows its
/// message. The claim ends once the plugin attaches again, and thus has a record of the attachment to undo.
#[test]
fn an_attach_whose_outcome_is_open_is_undone_by_the_plugin_only() -> Result<()> {
    let plugin = FaultPlugin::new("p", true, true, &["--unknown-attachment=internal"]);
    let world = World::start(&plugin, ONE)?;
    world.faults(&[json!({ "call": "ControllerPublishVolume", "action": "fail", "code": "Internal" })])?;
    world.run("w", ONE, "hold")?;
    world.called("ControllerPublishVolume", 1)?;
    world.0.stop_job("w", false)?;
    world.called("ControllerUnpublishVolume", 2)?;
    world.explains(&["detaching", "it is not known here", "attaching the volume to the node again"])?;
    world.faults(&[])?;
    world.ends(&["w"])
}

/// Loses the answer of a successful detach, which the plugin refuses to repeat.
fn a_detach_whose_answer_was_lost_ends(habits: &[&str], settled_by: &str) -> Result<()> {
    let habits = [&["--unknown-attachment=internal"], habits].concat();
    let world = World::start(&FaultPlugin::new("p", true, true, &habits), ONE)?;
    world.run("w", ONE, "hold")?;
    world.writes("w")?;
    let lost = json!({ "call": "ControllerUnpublishVolume", "action": "fail", "when": "after", "times": 1 });
    world.faults(&[lost])?;
    world.0.stop_job("w", false)?;
    world.explains(&["it is not known here", settled_by])?;
    world.ends(&["w"])
}

#[test]
fn a_lost_detach_is_settled_by_attaching_again() -> Result<()> {
    a_detach_whose_answer_was_lost_ends(&[], "again and then detached")
}

#[test]
fn a_lost_detach_is_settled_by_a_plugin_that_lists_its_nodes() -> Result<()> {
    a_detach_whose_answer_was_lost_ends(&["--list-nodes"], "lists no attachment")
}
