//! The command line and the environment of the plugin.

use crate::{request::FsKind, thin::ThinPool};
use std::{collections::BTreeMap, fmt, path::PathBuf};

/// The options of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Path of the socket to serve on.
    pub endpoint: PathBuf,
    /// The plugin's name in `GetPluginInfo`.
    pub name: String,
    /// The plugin's id of its node.
    pub node_id: String,
    /// Directory for records and data of volumes.
    pub state_dir: PathBuf,
    /// Whether volumes must be attached by ControllerPublishVolume before they are staged.
    pub controller_publish: bool,
    /// Whether volumes must be staged before they are published.
    pub stage: bool,
    /// Whether to enforce the size of every volume, even if its parameters do not request it.
    pub enforce_size: bool,
    /// The default file system of enforced volumes.
    pub fs: FsKind,
    /// Whether enforced volumes are directories with a quota, unless a file system is requested.
    pub quota: bool,
    /// The pool for enforced volumes and devices, instead of sparse files.
    pub thin: Option<ThinPool>,
    /// The topology of the node; `None` means that volumes are reachable from everywhere.
    pub topology: Option<BTreeMap<String, String>>,
    /// Maximum number of volumes on the node; 0 means no limit.
    pub max_volumes: u32,
}

/// The action that the command line requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// Serve with these options.
    Run(Options),
    /// Print [`USAGE`].
    Help,
    /// Print the version.
    Version,
}

/// The environment from which options take their defaults.
pub struct Surroundings<'a> {
    /// A function that returns the value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The host's name.
    pub host_name: &'a str,
    /// The default state directory.
    pub state_dir: PathBuf,
}

impl fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("host_name", &self.host_name)
            .field("state_dir", &self.state_dir)
            .finish_non_exhaustive()
    }
}

/// The text of `--help`.
pub const USAGE: &str = "usage: caravan plugin hostpath [flags]

A CSI plugin (identity, controller, node) for directories of this host.
Flags may have one dash or two.

  --endpoint ADDRESS     socket to serve on: unix:///path, unix:path or a path
                         [CSI_ENDPOINT]
  --node-id ID           the plugin's id of this node
                         [NODE_ID, CARAVAN_NODE_NAME, NOMAD_NODE_NAME, host name]
  --state-dir DIR        records and data of the volumes; has to outlive the task
                         [CARAVAN_HOSTPATH_STATE; /local/csi/hostpath-state when
                         /local/csi is a mount point, as in a task with its own
                         root; else /var/lib/caravan-hostpath]
  --name NAME            the plugin's name [hostpath.caravan]
  --controller-publish   advertise PUBLISH_UNPUBLISH_VOLUME and insist on it
  --no-stage             do without NodeStageVolume: publish mounts directly
  --enforce-size         enforce the size of every volume (a file system image)
  --fs ext4|xfs          the file system of enforced volumes [ext4]
  --quota                limit enforced volumes by project quotas of xfs, which the
                         state directory has to be on (mount option prjquota)
  --lvm-thin GROUP/POOL  take enforced volumes and devices from a thin pool of LVM
  --topology KEY=VALUE   a topology segment of this node; may be repeated
  --no-topology          say nothing about topology
  --max-volumes N        how many volumes the node can have [0: no limit]
  --version              print the version
  --help                 print this text
";

/// The topology key that every node has: volumes can be used only on the node that created them.
pub const NODE_SEGMENT: &str = "hostpath.caravan/node";

/// An invalid command line; the text names the wrong part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl Options {
    /// Parses the arguments after `caravan plugin hostpath`.
    pub fn parse(
        arguments: impl IntoIterator<Item = String>,
        surroundings: &Surroundings<'_>,
    ) -> Result<Invocation, UsageError> {
        let variable = |name: &str| (surroundings.variable)(name).filter(|value| !value.is_empty());
        let mut endpoint = variable("CSI_ENDPOINT");
        let mut name = "hostpath.caravan".to_owned();
        let mut node_id = ["NODE_ID", "CARAVAN_NODE_NAME", "NOMAD_NODE_NAME"].into_iter().find_map(variable);
        let mut state_dir = variable("CARAVAN_HOSTPATH_STATE").map(PathBuf::from);
        let (mut controller_publish, mut stage, mut enforce_size) = (false, true, false);
        let mut fs = FsKind::Ext4;
        let (mut quota, mut thin) = (false, None);
        let mut segments = BTreeMap::new();
        let mut with_topology = true;
        let mut max_volumes = 0;

        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                return Err(UsageError(format!("{argument:?} is not a flag")));
            };
            let (flag, attached) = match flag.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (flag, None),
            };
            let switch = |attached: &Option<String>| match attached.as_deref() {
                None | Some("true") => Ok(true),
                Some("false") => Ok(false),
                Some(other) => Err(UsageError(format!("--{flag} is true or false, not {other:?}"))),
            };
            let mut value = || {
                attached
                    .clone()
                    .or_else(|| arguments.next())
                    .filter(|value| !value.is_empty())
                    .ok_or_else(|| UsageError(format!("--{flag} needs a value")))
            };
            match flag {
                "endpoint" => endpoint = Some(value()?),
                "name" => name = value()?,
                "node-id" => node_id = Some(value()?),
                "state-dir" => state_dir = Some(PathBuf::from(value()?)),
                "controller-publish" => controller_publish = switch(&attached)?,
                "stage" => stage = switch(&attached)?,
                "no-stage" => stage = !switch(&attached)?,
                "enforce-size" => enforce_size = switch(&attached)?,
                "fs" => {
                    let value = value()?;
                    fs = FsKind::from_name(&value)
                        .ok_or_else(|| UsageError(format!("--fs is ext4 or xfs, not {value:?}")))?;
                }
                "quota" => quota = switch(&attached)?,
                "lvm-thin" => {
                    let value = value()?;
                    thin = Some(
                        ThinPool::parse(&value)
                            .ok_or_else(|| UsageError(format!("--lvm-thin is GROUP/POOL, not {value:?}")))?,
                    );
                }
                "topology" => {
                    let value = value()?;
                    let (key, segment) = value
                        .split_once('=')
                        .filter(|(key, segment)| !key.is_empty() && !segment.is_empty())
                        .ok_or_else(|| UsageError(format!("--topology is KEY=VALUE, not {value:?}")))?;
                    segments.insert(key.to_owned(), segment.to_owned());
                }
                "no-topology" => with_topology = !switch(&attached)?,
                "max-volumes" => {
                    let value = value()?;
                    max_volumes = value
                        .parse()
                        .map_err(|_| UsageError(format!("--max-volumes is a number, not {value:?}")))?;
                }
                "version" => return Ok(Invocation::Version),
                "help" | "h" => return Ok(Invocation::Help),
                other => return Err(UsageError(format!("there is no flag --{other}; see --help"))),
            }
        }

        let endpoint = endpoint
            .ok_or_else(|| UsageError("no endpoint: give --endpoint or set CSI_ENDPOINT".to_owned()))?;
        let endpoint = endpoint_path(&endpoint)?;
        check_name(&name)?;
        let node_id = node_id.unwrap_or_else(|| surroundings.host_name.to_owned());
        if node_id.is_empty() {
            return Err(UsageError("no node id: give --node-id, the host has no name".to_owned()));
        }
        let state_dir = state_dir.unwrap_or_else(|| surroundings.state_dir.clone());
        if !state_dir.is_absolute() {
            return Err(UsageError(format!("--state-dir {} is not an absolute path", state_dir.display())));
        }
        let topology = with_topology.then(|| {
            segments.entry(NODE_SEGMENT.to_owned()).or_insert_with(|| node_id.clone());
            segments
        });
        Ok(Invocation::Run(Self {
            endpoint,
            name,
            node_id,
            state_dir,
            controller_publish,
            stage,
            enforce_size,
            fs,
            quota,
            thin,
            topology,
            max_volumes,
        }))
    }
}

/// Returns the path in `unix:///path`, `unix:path` or a bare path.
fn endpoint_path(endpoint: &str) -> Result<PathBuf, UsageError> {
    let path = match endpoint.strip_prefix("unix:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None if endpoint.contains("://") => {
            return Err(UsageError(format!("the endpoint {endpoint:?} is not a unix socket")));
        }
        None => endpoint,
    };
    if path.is_empty() {
        return Err(UsageError(format!("the endpoint {endpoint:?} has no path")));
    }
    Ok(PathBuf::from(path))
}

/// Checks a plugin name by "GetPluginInfo": domain name notation, at most 63 characters, a letter or digit at both
/// ends.
fn check_name(name: &str) -> Result<(), UsageError> {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let fine = name.len() <= 63
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || matches!(c, '-' | '.' | '_'));
    if fine { Ok(()) } else { Err(UsageError(format!("{name:?} cannot be the name of a CSI plugin"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Invocation, UsageError> {
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Options::parse(
            arguments.iter().map(|argument| (*argument).to_owned()),
            &Surroundings { variable: &variable, host_name: "host", state_dir: PathBuf::from("/state") },
        )
    }

    fn options(arguments: &[&str], variables: &[(&str, &str)]) -> Options {
        match parse(arguments, variables) {
            Ok(Invocation::Run(options)) => options,
            other => panic!("expected options, got {other:?}"),
        }
    }

    #[test]
    fn the_environment_is_enough() {
        let options = options(&[], &[("CSI_ENDPOINT", "unix:///csi/csi.sock"), ("NODE_ID", "")]);
        assert_eq!(options.endpoint, PathBuf::from("/csi/csi.sock"));
        assert_eq!(options.node_id, "host");
        assert_eq!(options.state_dir, PathBuf::from("/state"));
        assert!(options.stage && !options.controller_publish && !options.enforce_size);
        assert_eq!(options.topology, Some([(NODE_SEGMENT.to_owned(), "host".to_owned())].into()));
    }

    #[test]
    fn flags_win_over_the_environment_with_one_dash_or_two() {
        let options = options(
            &[
                "-endpoint=unix:rel.sock",
                "--node-id",
                "n1",
                "--state-dir=/s",
                "-controller-publish",
                "--no-stage",
                "--enforce-size=true",
                "--fs",
                "xfs",
                "--quota",
                "--lvm-thin=vg0/pool",
                "--topology",
                "zone=a",
                "--max-volumes=3",
            ],
            &[("CSI_ENDPOINT", "unix:///other"), ("NODE_ID", "n2"), ("CARAVAN_HOSTPATH_STATE", "/t")],
        );
        assert_eq!(options.endpoint, PathBuf::from("rel.sock"));
        assert_eq!((options.node_id.as_str(), options.max_volumes), ("n1", 3));
        assert_eq!(options.state_dir, PathBuf::from("/s"));
        assert!(options.controller_publish && !options.stage && options.enforce_size);
        assert_eq!(options.fs, FsKind::Xfs);
        assert!(options.quota && options.thin == ThinPool::parse("vg0/pool"));
        let topology = options.topology.expect("topology is on by default");
        assert_eq!(topology.get("zone").map(String::as_str), Some("a"));
        assert_eq!(topology.get(NODE_SEGMENT).map(String::as_str), Some("n1"));
    }

    #[test]
    fn bad_command_lines_get_a_sentence() {
        let endpoint = [("CSI_ENDPOINT", "/s")];
        for (arguments, variables, expected) in [
            (&["--nope"][..], &endpoint[..], "there is no flag --nope; see --help"),
            (&["serve"], &endpoint, "\"serve\" is not a flag"),
            (&["--fs", "ntfs"], &endpoint, "--fs is ext4 or xfs, not \"ntfs\""),
            (&["--lvm-thin", "vg0"], &endpoint, "--lvm-thin is GROUP/POOL, not \"vg0\""),
            (&["--node-id"], &endpoint, "--node-id needs a value"),
            (&["--topology", "zone"], &endpoint, "--topology is KEY=VALUE, not \"zone\""),
            (&["--stage=maybe"], &endpoint, "--stage is true or false, not \"maybe\""),
            (&["--endpoint", "tcp://host:1"], &[], "the endpoint \"tcp://host:1\" is not a unix socket"),
            (&[], &[], "no endpoint: give --endpoint or set CSI_ENDPOINT"),
            (&["--name", "-x"], &endpoint, "\"-x\" cannot be the name of a CSI plugin"),
            (&["--state-dir", "here"], &endpoint, "--state-dir here is not an absolute path"),
        ] {
            let error = parse(arguments, variables).expect_err("it is wrong");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        assert_eq!(parse(&["-help"], &[]), Ok(Invocation::Help));
        assert_eq!(parse(&["--version"], &[]), Ok(Invocation::Version));
    }
}
