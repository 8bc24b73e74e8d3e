//! Storage of a real kernel: quotas of xfs, thin volumes of LVM, growth of mounted ext4, and NFS.

use crate::main_job::TIMEOUT;
use crate::more;
use anyhow::{Context, Result, bail, ensure};
use caravan_testkit::vm::{AGENT_CONFIG, Bench, Disk, Machine, MachineOptions};
use caravan_testkit::{Plugin, eventually_within, plugin_job, program};
use serde_json::{Value, json};

/// The number of bytes in a mebibyte.
const MIB: u64 = 1 << 20;

/// Starts a machine with systemd, since it has the tools of file systems, and an agent in a separate scope.
fn machine(bench: &Bench, disks: Vec<Disk>) -> Result<Machine> {
    let options = MachineOptions {
        memory: 2048,
        disks,
        programs: vec![program()],
        ..MachineOptions::with_systemd("s")
    };
    bench.booted(options)
}

/// Starts the agent with a further part of the client's configuration.
fn start_agent(machine: &Machine, part: &str) -> Result<()> {
    machine.configure_agent("")?;
    let config = String::from_utf8(machine.get(AGENT_CONFIG)?)?;
    let config = config.replacen("client {", &format!("client {{{part}"), 1);
    machine.put(AGENT_CONFIG, 0o644, config.as_bytes())?;
    launch(machine)
}

fn launch(machine: &Machine) -> Result<()> {
    machine.start_agent_by(&["systemd-run", "--quiet", "--scope", "-p", "Delegate=yes"])
}

/// Runs the bundled plugin with flags and waits until it is healthy.
fn run_plugin(machine: &Machine, flags: &[&str]) -> Result<()> {
    let args = flags.iter().map(|flag| (*flag).to_owned()).collect();
    machine.run_job("hostpath", &plugin_job(&Plugin { driver: "raw_exec".to_owned(), args }))?;
    machine.wait_plugin("hostpath")
}

/// A volume of a story.
#[derive(Clone, Copy, Debug)]
struct Volume<'a> {
    id: &'a str,
    mebibytes: u64,
    is_device: bool,
    parameters: &'a [(&'a str, &'a str)],
    snapshot: Option<&'a str>,
}

impl<'a> Volume<'a> {
    fn new(id: &'a str, mebibytes: u64) -> Self {
        Self { id, mebibytes, is_device: false, parameters: &[], snapshot: None }
    }

    fn attachment(&self) -> &'static str {
        if self.is_device { "block-device" } else { "file-system" }
    }

    /// Creates the volume, or grows an existing one.
    fn create(&self, machine: &Machine) -> Result<()> {
        let bytes = self.mebibytes * MIB;
        let parameters: serde_json::Map<String, Value> =
            self.parameters.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let mut volume = json!({
            "ID": self.id, "Name": self.id, "PluginID": "hostpath", "Parameters": parameters,
            "RequestedCapacityMin": bytes, "RequestedCapacityMax": bytes,
            "RequestedCapabilities":
                [{ "AccessMode": "single-node-writer", "AttachmentMode": self.attachment() }],
        });
        if let Some(snapshot) = self.snapshot {
            volume["SnapshotID"] = json!(snapshot);
        }
        let body = json!({ "Volumes": [volume] });
        let path = format!("/v1/volume/csi/{}/create", self.id);
        machine.api_send("PUT", &path, Some(&body)).with_context(|| machine.agent_log_tail()).map(drop)
    }

    /// Runs a job that has the volume at `/data` (exec), and returns the path of the volume in the machine.
    fn run(&self, machine: &Machine) -> Result<String> {
        let id = self.id;
        let job = json!({
            "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
            "TaskGroups": [{
                "Name": "g",
                "Volumes": { "data": {
                    "Name": "data", "Type": "csi", "Source": id,
                    "AccessMode": "single-node-writer", "AttachmentMode": self.attachment(),
                } },
                "Tasks": [{
                    "Name": "t", "Driver": "exec",
                    "Config": { "command": "/bin/sleep", "args": ["100000"] },
                    "VolumeMounts": [{ "Volume": "data", "Destination": "/data" }],
                    "Resources": { "CPU": 10, "MemoryMB": 16 },
                }],
            }],
        });
        machine.api_send("PUT", "/v1/jobs", Some(&json!({ "Job": job })))?;
        machine.wait_running(id)?;
        self.path(machine)
    }

    fn path(&self, machine: &Machine) -> Result<String> {
        let table = machine.sh("cat /proc/self/mountinfo")?;
        let fits = |path: &&str| path.contains("/per-alloc/") && path.contains(&format!("/{}/", self.id));
        let found: Vec<&str> = table.lines().filter_map(|line| line.split(' ').nth(4)).filter(fits).collect();
        match found.as_slice() {
            [path] => Ok((*path).to_owned()),
            _ => bail!("mounts of {}: {found:?} in\n{table}", self.id),
        }
    }

    fn snapshot(&self, machine: &Machine) -> Result<String> {
        let body =
            json!({ "Snapshots": [{ "SourceVolumeID": self.id, "Name": format!("{}-now", self.id) }] });
        let made = machine.api_send("PUT", "/v1/volumes/snapshot", Some(&body))?;
        made["Snapshots"][0]["ID"].as_str().map(str::to_owned).with_context(|| format!("no id in {made}"))
    }

    /// Ends the job and deletes the volume.
    fn remove(&self, machine: &Machine) -> Result<()> {
        machine.caravan(&["job", "stop", "-purge", self.id])?;
        eventually_within(TIMEOUT, &format!("the volume {} to be deleted", self.id), || {
            machine.caravan(&["volume", "delete", self.id])?.ok().map(drop)
        })
    }
}

/// Writes a file of a size below a directory of the machine; returns whether all of it was written.
fn fill(machine: &Machine, path: &str, mebibytes: u64) -> Result<bool> {
    let of = format!("of={path}");
    let count = format!("count={mebibytes}");
    Ok(machine.run(&["dd", "if=/dev/zero", &of, "bs=1M", &count, "conv=fsync"])?.code == 0)
}

fn delete_snapshot(machine: &Machine, id: &str) -> Result<()> {
    let path = format!("/v1/volumes/snapshot?plugin_id=hostpath&snapshot_id={id}");
    machine.api_send("DELETE", &path, None).map(drop)
}

#[test]
fn quotas_of_xfs_limit_directories() -> Result<()> {
    more("xfs-quotas", |bench| {
        let machine = machine(bench, vec![Disk::blank(1024)])?;
        machine.sh("mkfs.xfs -q /dev/vdb; mkdir -p /srv/x; mount /dev/vdb /srv/x")?;
        start_agent(&machine, "")?;
        let flags = ["--quota", "--enforce-size", "--state-dir=/srv/x/volumes"];

        // Without quotas, the plugin reports the missing option, and does not start.
        let refused =
            machine.caravan(&[&["plugin", "hostpath", "--endpoint=/run/x.sock"], &flags[..]].concat())?;
        ensure!(refused.code == 1 && refused.stderr.contains("prjquota"), "{refused:?}");
        machine.sh("umount /srv/x; mount -o prjquota /dev/vdb /srv/x")?;
        run_plugin(&machine, &flags)?;

        let (a, b) = (Volume::new("a", 16), Volume::new("b", 16));
        a.create(&machine)?;
        b.create(&machine)?;
        let (at, other) = (a.run(&machine)?, b.run(&machine)?);
        ensure!(fill(&machine, &format!("{at}/kept"), 8)?, "8 of 16 MiB cannot be written");
        ensure!(!fill(&machine, &format!("{at}/file"), 32)?, "more than the limit was written");
        ensure!(fill(&machine, &format!("{other}/file"), 12)?, "the limit of one volume stops another one");
        let size = machine.sh(&format!("df --output=size -B1 {at} | tail -1"))?;
        ensure!(size.trim() == (16 * MIB).to_string(), "the size is {size}");

        // Growth takes effect immediately; the copy of a snapshot has a separate limit.
        machine.sh(&format!("rm {at}/file"))?;
        Volume { mebibytes: 48, ..a }.create(&machine)?;
        ensure!(fill(&machine, &format!("{at}/file"), 32)?, "the limit did not grow");
        machine.sh(&format!("rm {at}/file"))?;
        let snapshot = a.snapshot(&machine)?;
        let copy = Volume { snapshot: Some(&snapshot), ..Volume::new("c", 48) };
        copy.create(&machine)?;
        let at = copy.run(&machine)?;
        let size = machine.sh(&format!("stat -c %s {at}/kept"))?;
        ensure!(size.trim() == (8 * MIB).to_string(), "the copy has {size} bytes");
        ensure!(!fill(&machine, &format!("{at}/file"), 44)?, "the copy has no limit");

        for volume in [a, b, copy] {
            volume.remove(&machine)?;
        }
        delete_snapshot(&machine, &snapshot)?;
        let left = machine.sh("xfs_quota -x -c 'report -p -n -N' /srv/x | grep -v '^#0 ' || true")?;
        ensure!(left.trim().is_empty(), "projects are left: {left}");
        Ok(())
    })
}

#[test]
fn thin_volumes_of_lvm() -> Result<()> {
    more("lvm-thin", |bench| {
        let machine = machine(bench, vec![Disk::blank(1024)])?;
        machine.sh("vgcreate -q vg0 /dev/vdb && lvcreate -q --type thin-pool -L 800M -n pool vg0")?;
        start_agent(&machine, "")?;
        let flags = ["--lvm-thin=vg0/pool", "--enforce-size", "--state-dir=/var/lib/volumes"];
        let wrong = ["plugin", "hostpath", "--endpoint=/run/x.sock", "--lvm-thin=vg0/none"];
        let refused = machine.caravan(&wrong)?;
        ensure!(refused.code == 1 && refused.stderr.contains("vg0/none"), "{refused:?}");
        run_plugin(&machine, &flags)?;

        let files = Volume::new("files", 64);
        let device = Volume { is_device: true, ..Volume::new("device", 32) };
        files.create(&machine)?;
        device.create(&machine)?;
        let at = files.run(&machine)?;
        machine.sh(&format!("echo first > {at}/word"))?;
        let snapshot = files.snapshot(&machine)?;
        machine.sh(&format!("echo second > {at}/word"))?;
        let copy = Volume { snapshot: Some(&snapshot), ..Volume::new("copy", 96) };
        copy.create(&machine)?;
        let copied = copy.run(&machine)?;
        assert_eq!(machine.sh(&format!("cat {copied}/word {at}/word"))?, "first\nsecond\n");
        ensure!(fill(&machine, &format!("{copied}/file"), 70)?, "the copy did not grow to its size");

        // A mounted ext4 grows.
        Volume { mebibytes: 128, ..files }.create(&machine)?;
        ensure!(fill(&machine, &format!("{at}/file"), 96)?, "the mounted file system did not grow");

        let path = device.run(&machine)?;
        machine.sh(&format!("test -b {path}; echo block | dd of={path} conv=fsync 2>/dev/null"))?;
        assert_eq!(machine.sh(&format!("blockdev --getsize64 {path}"))?.trim(), (32 * MIB).to_string());

        // After a restart, the plugin activates volumes that the machine has not activated.
        machine.sh("sync; mkdir -p /etc/lvm; echo 'activation { auto_activation_volume_list = [] }' >> /etc/lvm/lvmlocal.conf")?;
        machine.reboot()?;
        machine.sh("lvchange -a n vg0/$(ls /dev/vg0 2>/dev/null | grep hp- | head -1) || true")?;
        launch(&machine)?;
        machine.wait_running("files")?;
        machine.wait_running("device")?;
        let at = files.path(&machine)?;
        assert_eq!(machine.sh(&format!("cat {at}/word"))?, "second\n");
        let path = device.path(&machine)?;
        assert_eq!(machine.sh(&format!("dd if={path} bs=6 count=1 2>/dev/null"))?, "block\n");

        for volume in [files, device, copy] {
            volume.remove(&machine)?;
        }
        delete_snapshot(&machine, &snapshot)?;
        let left = machine.sh("lvs --noheadings -o lv_name vg0")?;
        assert_eq!(left.trim(), "pool", "volumes are left");
        Ok(())
    })
}

#[test]
fn a_mounted_image_grows() -> Result<()> {
    more("growth", |bench| {
        let machine = machine(bench, Vec::new())?;
        start_agent(&machine, "")?;
        run_plugin(&machine, &["--enforce-size", "--state-dir=/var/lib/volumes"])?;
        let ext4 = Volume::new("ext4", 32);
        let xfs = Volume { parameters: &[("fs", "xfs")], ..Volume::new("xfs", 320) };
        let device = Volume { is_device: true, ..Volume::new("device", 8) };
        for volume in [ext4, xfs, device] {
            volume.create(&machine)?;
            let at = volume.run(&machine)?;
            let size = format!(
                "if test -b {at}; then blockdev --getsize64 {at}; else df --output=size -B1 {at} | tail -1; fi"
            );
            let size = || -> Result<u64> { machine.sh(&size)?.trim().parse().context("no number") };
            let before = size()?;
            Volume { mebibytes: volume.mebibytes * 2, ..volume }.create(&machine)?;
            let after = size()?;
            ensure!(after > before * 3 / 2, "{} had {before} bytes and has {after}", volume.id);
            volume.remove(&machine)?;
        }
        Ok(())
    })
}

/// The part of the client's configuration with a host volume on NFS, and one on the machine's own disk.
const VOLUMES: &str = r#"
  host_volume "far" {
    path = "/mnt/far"
  }
  host_volume "near" {
    path = "/srv/near"
  }
"#;

/// Returns a job with a host volume, whose task writes as a user.
fn host_job(id: &str, volume: &str) -> Value {
    json!({ "Job": {
        "ID": id, "Name": id, "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{
            "Name": "g",
            "Volumes": { "data": { "Name": "data", "Type": "host", "Source": volume } },
            "RestartPolicy": { "Attempts": 100, "Interval": 3_600_000_000_000_u64, "Delay": 1_000_000_000, "Mode": "delay" },
            "Tasks": [{
                "Name": "t", "Driver": "exec", "User": "daemon",
                "KillTimeout": 2_000_000_000_u64,
                "Config": { "command": "/bin/sh", "args": ["-c", "while :; do echo x >> /data/log; sleep 1; done"] },
                "VolumeMounts": [{ "Volume": "data", "Destination": "/data" }],
                "Resources": { "CPU": 10, "MemoryMB": 16 },
            }],
        }],
    } })
}

#[test]
fn a_server_of_nfs_goes_away() -> Result<()> {
    more("nfs", |bench| {
        let machine = machine(bench, Vec::new())?;
        // The server maps root to nobody, so that only the task's user may write.
        machine.sh(
            "mkdir -p /srv/far /srv/near /mnt/far; mount -t tmpfs none /srv/far; chown daemon /srv/near; \
             mkdir /srv/far/data; chown daemon:daemon /srv/far/data; chmod 750 /srv/far/data; \
             echo '/srv/far/data 127.0.0.1(rw,root_squash,no_subtree_check,fsid=7)' > /etc/exports; \
             modprobe nfsd; mount -t nfsd none /proc/fs/nfsd || true; exportfs -ra; rpc.mountd -N 3; \
             rpc.nfsd -N 3 -V 4 -G 5 -L 10 2; \
             mount -t nfs -o vers=4.2,hard,proto=tcp,timeo=10 127.0.0.1:/srv/far/data /mnt/far",
        )?;
        start_agent(&machine, VOLUMES)?;
        for (id, volume) in [("far", "far"), ("near", "near")] {
            machine.api_send("PUT", "/v1/jobs", Some(&host_job(id, volume)))?;
            machine.wait_running(id)?;
        }
        let grows = |path: &str| -> Result<()> {
            let lines = || -> Result<usize> {
                machine.sh(&format!("wc -l < {path}"))?.trim().parse().context("no number")
            };
            let before = eventually_within(TIMEOUT, &format!("lines of {path}"), lines)?;
            eventually_within(TIMEOUT, &format!("more lines of {path}"), || {
                let now = lines()?;
                ensure!(now > before, "{now} lines");
                Ok(())
            })
        };
        grows("/srv/far/data/log")?;
        assert_eq!(machine.sh("stat -c %U /srv/far/data/log")?, "daemon\n");

        // The server no longer answers. The agent does, and tasks on other volumes start and end.
        machine.sh("rpc.nfsd 0")?;
        grows("/srv/near/log")?;
        machine.api_send("PUT", "/v1/jobs", Some(&host_job("more", "near")))?;
        machine.wait_running("more")?;
        machine.caravan(&["job", "stop", "-purge", "-detach", "far"])?.ok()?;
        machine.caravan(&["job", "stop", "-purge", "more"])?.ok()?;
        machine.api_send("PUT", "/v1/jobs", Some(&host_job("again", "far")))?;
        eventually_within(TIMEOUT, "the allocation to report the volume", || {
            let allocs = machine.api("/v1/job/again/allocations")?;
            let text = allocs.to_string();
            ensure!(allocs[0]["ClientStatus"] != "running", "it runs: {text}");
            ensure!(text.contains("not answer") || text.contains("does not respond"), "no reason in {text}");
            Ok(())
        })
        .with_context(|| machine.agent_log_tail())?;
        grows("/srv/near/log")?;

        // An agent that starts next to the dead mount serves the other volumes.
        machine.end_agent("KILL")?;
        launch(&machine)?;
        grows("/srv/near/log")?;
        machine.api_send("PUT", "/v1/jobs", Some(&host_job("more", "near")))?;
        machine.wait_running("more")?;

        // The server is back: all tasks continue.
        machine.sh("rpc.nfsd -N 3 -V 4 -G 5 -L 10 2")?;
        machine.wait_running("again")?;
        grows("/srv/far/data/log")
    })
}
