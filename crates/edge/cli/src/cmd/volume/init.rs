//! `volume init`

use crate::cmd::at_most_one;
use crate::ctx::Ctx;
use crate::error::{CliError, Doing as _, Outcome};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

/// Flags of `volume init`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct InitArgs {
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Type of volume: csi or host
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// File to write [default: volume.hcl or volume.json]
    #[arg(value_name = "FILE", num_args = 0..)]
    args: Vec<String>,
}

/// The example of a CSI volume.
pub(crate) const HCL: &str = r#"id        = "data"
name      = "data"
namespace = "default"
type      = "csi"
plugin_id = "hostpath"

# How big it must and may be; how big it is, is up to the plugin.
capacity_min = "100MiB"
capacity_max = "1GiB"

# Every way in which jobs will use it.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

# How its file system is mounted; the plugin's defaults if left out.
mount_options {
  fs_type = "ext4"
}

# What the plugin wants to hear when it makes the volume, and secrets for its calls.
# parameters { tier = "fast" }
# secrets    { token = "..." }

# Secrets that are looked up at each call: the item "token" of the variable "storage/array".
# secrets_from { token = "storage/array#token" }

# What it is made from instead of empty: a snapshot of the plugin's, or another volume.
# snapshot_id = "..."
# clone_id    = "..."

# Whether other volumes may stand for the same storage: all of them say so, and none has a mode that writes.
# shared_storage = true

# Where it must and should be reachable.
# topology_request {
#   required {
#     topology { segments { zone = "z1" } }
#   }
# }
"#;

/// The same example as JSON.
pub(crate) const JSON: &str = r#"{
    "id": "data",
    "name": "data",
    "namespace": "default",
    "type": "csi",
    "plugin_id": "hostpath",
    "capacity_min": "100MiB",
    "capacity_max": "1GiB",
    "capability": [
        {
            "access_mode": "single-node-writer",
            "attachment_mode": "file-system"
        }
    ],
    "mount_options": [
        {
            "fs_type": "ext4"
        }
    ]
}
"#;

/// The example of a host volume.
pub(crate) const HOST_HCL: &str = r#"name      = "scratch"
namespace = "default"
type      = "host"

# Built into every client. Other plugins are executables below host_volume_plugin_dir.
plugin_id = "mkdir"

# Where it is made: on this node, or on any of the pool that meets the constraints.
# node_id = "..."
node_pool = "default"
constraint {
  attribute = "${attr.kernel.name}"
  value     = "linux"
}

# Every way in which jobs will use it.
capability {
  access_mode     = "single-node-single-writer"
  attachment_mode = "file-system"
}

# What the plugin wants to hear; mkdir takes mode, uid and gid.
parameters {
  mode = "0750"
}
"#;

/// The same example as JSON.
pub(crate) const HOST_JSON: &str = r#"{
    "name": "scratch",
    "namespace": "default",
    "type": "host",
    "plugin_id": "mkdir",
    "node_pool": "default",
    "constraint": [
        {
            "attribute": "${attr.kernel.name}",
            "value": "linux"
        }
    ],
    "capability": [
        {
            "access_mode": "single-node-single-writer",
            "attachment_mode": "file-system"
        }
    ],
    "parameters": {
        "mode": "0750"
    }
}
"#;

/// Runs `volume init`. Never overwrites an existing file.
pub(crate) fn run(ctx: &Ctx, args: &InitArgs) -> Outcome {
    let host = super::kind(args.kind.as_deref())? == Some(super::Kind::Host);
    let (default, text) = match (args.json, host) {
        (false, false) => ("volume.hcl", HCL),
        (true, false) => ("volume.json", JSON),
        (false, true) => ("volume.hcl", HOST_HCL),
        (true, true) => ("volume.json", HOST_JSON),
    };
    let path =
        at_most_one(&args.args, "This command takes no arguments or one: <filename>")?.unwrap_or(default);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o660).open(path);
    let mut file = match file {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CliError::failed(format!("Volume specification \"{path}\" already exists")));
        }
        file => file.doing(format!("Failed to write \"{path}\""))?,
    };
    file.write_all(text.as_bytes()).doing(format!("Failed to write \"{path}\""))?;
    ctx.out.line(&format!("Example volume specification written to {path}"));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_hcl::volume::{VolumeSpec, parse};

    #[test]
    fn the_example_of_a_host_volume_is_read_again() {
        for (name, text) in [("v.hcl", HOST_HCL), ("v.json", HOST_JSON)] {
            let Ok(VolumeSpec::Host(volume)) = parse(text, name) else { panic!("{name}") };
            assert_eq!((volume.name.as_str(), volume.plugin_id.as_str()), ("scratch", "mkdir"));
            assert_eq!(volume.requested_capabilities[0].access_mode.as_str(), "single-node-single-writer");
            assert_eq!((volume.constraints.len(), volume.parameters["mode"].as_str()), (1, "0750"));
        }
    }
}
