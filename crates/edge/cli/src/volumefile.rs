//! Volume files (docs/reference/storage.md, section 10).

use crate::error::CliError;
use crate::jobfile;
use crate::out::Out;
use caravan_hcl::diag::render;
use caravan_hcl::volume::{self, VolumeSpec};

/// Reads a volume file, HCL or JSON.
pub(crate) fn load(out: &Out, path: &str) -> Result<VolumeSpec, CliError> {
    let text = jobfile::read_as(path, &format!("Error reading the volume definition {path:?}"))?;
    parse(path, &text, out.colours_errors())
}

fn parse(path: &str, text: &str, colour: bool) -> Result<VolumeSpec, CliError> {
    let volume = match volume::parse(text, if path == "-" { "<stdin>" } else { path }) {
        Ok(VolumeSpec::Csi(volume)) => volume,
        // Leave missing fields of a host volume to the servers, which have the defaults and the earlier volume.
        Ok(host @ VolumeSpec::Host(_)) => return Ok(host),
        Err(found) => {
            return Err(CliError::failed(format!(
                "Error decoding the volume definition {path:?}:\n{found}\n\n{}",
                render::pretty(&found, colour).trim_end()
            )));
        }
    };
    for (name, value) in [("id", volume.id.as_str()), ("plugin_id", volume.plugin_id.as_str())] {
        if value.is_empty() {
            return Err(CliError::failed(format!("The volume definition {path:?} lacks {name}")));
        }
    }
    Ok(VolumeSpec::Csi(volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_that_is_written_is_read_again() {
        for text in [crate::cmd::volume::init::HCL, crate::cmd::volume::init::JSON] {
            let VolumeSpec::Csi(volume) = parse("volume", text, false).unwrap() else { panic!("{text}") };
            assert_eq!((volume.id.as_str(), volume.plugin_id.as_str()), ("data", "hostpath"));
            assert_eq!(volume.requested_capacity_min, 100 << 20);
            assert_eq!(volume.requested_capacity_max, 1 << 30);
            assert_eq!(volume.requested_capabilities[0].access_mode.as_str(), "single-node-writer");
            assert_eq!(volume.mount_options.unwrap().fs_type, "ext4");
        }
    }

    #[test]
    fn the_example_of_a_host_volume_is_read_again() {
        for text in [crate::cmd::volume::init::HOST_HCL, crate::cmd::volume::init::HOST_JSON] {
            let VolumeSpec::Host(volume) = parse("volume", text, false).unwrap() else { panic!("{text}") };
            assert_eq!((volume.name.as_str(), volume.plugin_id.as_str()), ("scratch", "mkdir"));
            assert_eq!(volume.requested_capabilities[0].access_mode, "single-node-single-writer");
            assert_eq!(volume.constraints[0].l_target, "${attr.kernel.name}");
            assert_eq!(volume.parameters["mode"], "0750");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let reported = |text: &str| parse("v.hcl", text, false).unwrap_err().to_string();
        assert!(reported("type = \"csi\"\nid = \"a\"\n").contains("lacks plugin_id"));
        let message = reported("type = \"csi\"\nid = \"a\"\ncapacity_min = \"lots\"\n");
        assert!(message.contains("v.hcl:3,") && message.contains("lots"), "{message}");
    }
}
