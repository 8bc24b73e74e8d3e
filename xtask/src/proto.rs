//! `cargo xtask proto`: generates Rust from the protobuf files. The code is checked in, so a build needs no
//! generator.

use anyhow::{Context, bail};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Messages with a secret or with mount flags, which may contain one: they have no derived `Debug`.
/// `crates/wire/proto/src/redact.rs` lists the same messages; a missing one there does not compile.
const REDACTED: &[&str] = &[
    ".csi.v1.CreateVolumeRequest",
    ".csi.v1.DeleteVolumeRequest",
    ".csi.v1.ControllerPublishVolumeRequest",
    ".csi.v1.ControllerUnpublishVolumeRequest",
    ".csi.v1.ValidateVolumeCapabilitiesRequest",
    ".csi.v1.ControllerModifyVolumeRequest",
    ".csi.v1.CreateSnapshotRequest",
    ".csi.v1.DeleteSnapshotRequest",
    ".csi.v1.ListSnapshotsRequest",
    ".csi.v1.GetSnapshotRequest",
    ".csi.v1.ControllerExpandVolumeRequest",
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
    ".csi.v1.CreateVolumeGroupSnapshotRequest",
    ".csi.v1.DeleteVolumeGroupSnapshotRequest",
    ".csi.v1.GetVolumeGroupSnapshotRequest",
    ".csi.v1.VolumeCapability.MountVolume",
    ".hashicorp.nomad.plugins.base.proto.SetConfigRequest",
    ".hashicorp.nomad.plugins.device.ContainerReservation",
    ".hashicorp.nomad.plugins.drivers.proto.ExecTaskResponse",
    ".hashicorp.nomad.plugins.drivers.proto.ExecTaskStreamingIOOperation",
    ".hashicorp.nomad.plugins.drivers.proto.TaskConfig",
    ".hashicorp.nomad.plugins.drivers.proto.TaskHandle",
];

/// The protobuf files of go-plugin programs.
const PLUGINS: &[&str] = &[
    "base.proto",
    "device.proto",
    "driver.proto",
    "goplugin.proto",
    "health.proto",
    "hclspec.proto",
    "structs.proto",
];

/// Generates the code, or with `--check` compares it with the checked-in code.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let check = match arguments {
        [] => false,
        [only] if only == "--check" => true,
        _ => bail!("usage: cargo xtask proto [--check]"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent directory")?;
    let source = root.join("crates/wire/proto/proto");
    let checked_in = root.join("crates/wire/proto/src/generated");
    let out = if check { root.join("target/xtask-proto") } else { checked_in.clone() };
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    generate(&source, &out)?;
    if check {
        for entry in fs::read_dir(&checked_in).context("the generated code cannot be listed")? {
            let name = entry?.file_name();
            compare(&checked_in.join(&name), &out.join(&name))?;
        }
    }
    Ok(())
}

fn generate(source: &Path, out: &Path) -> anyhow::Result<()> {
    let csi = protox::compile(["csi.proto"], [source]).context("csi.proto does not compile")?;
    let plugins =
        protox::compile(PLUGINS, [source.join("plugins")]).context("the plugins' files do not compile")?;
    for descriptors in [csi, plugins] {
        tonic_prost_build::configure()
            .build_transport(false)
            .generate_default_stubs(true)
            .btree_map(".")
            .skip_debug(REDACTED)
            .emit_rerun_if_changed(false)
            .out_dir(out)
            .compile_fds(descriptors)
            .context("the generator refused the descriptors")?;
    }
    Ok(())
}

fn compare(checked_in: &Path, fresh: &PathBuf) -> anyhow::Result<()> {
    let old =
        fs::read_to_string(checked_in).with_context(|| format!("cannot read {}", checked_in.display()))?;
    let new = fs::read_to_string(fresh).with_context(|| format!("cannot read {}", fresh.display()))?;
    if old != new {
        bail!("{} is out of date: run `cargo xtask proto`", checked_in.display());
    }
    Ok(())
}
