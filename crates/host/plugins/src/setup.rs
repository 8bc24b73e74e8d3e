//! The configuration of a new process: its identity, SetConfig, Init, and the schema of tasks.

use crate::convert::{self, Supports};
use crate::driver_client;
use crate::error::describe;
use crate::process::{MAX_MESSAGE, Process};
use crate::{PluginError, spec};
use caravan_proto::plugins::base::{
    ClientTopology, ClientTopologyCore, ConfigSchemaRequest, NomadConfig, NomadDriverConfig,
    PluginInfoRequest, PluginType, SetConfigRequest, base_plugin_client::BasePluginClient,
};
use caravan_proto::plugins::driver::{CapabilitiesRequest, InitRequest, TaskConfigSchemaRequest};
use caravan_schema::{Problem, Spec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tonic::{Code, Response, Status};

/// The version of the plugins' API that the agent supports. Plugins write it with or without `v`.
const API_VERSION: &str = "v0.1.0";
/// The longest time for one call of the configuration.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The ports of the reference client, which plugins receive.
const PORTS: (u32, u32) = (14000, 14512);
/// The longest name of a plugin.
const MAX_NAME: usize = 128;

/// The kind of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A driver of tasks.
    Driver,
    /// A plugin for devices.
    Device,
}

/// The identity of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// The kind of the plugin.
    pub kind: Kind,
    /// The name by which jobs address a driver.
    pub name: String,
    /// The version of the plugin.
    pub version: String,
    api_version: String,
}

/// The configuration of each process of a plugin.
#[derive(Clone)]
pub(crate) struct Setup {
    /// The `config` of the `plugin` block.
    pub(crate) config: serde_json::Value,
    /// The places of the configuration's keys in the files, by path.
    pub(crate) places: BTreeMap<String, String>,
    /// The identity that each process must have; `None` before the first.
    pub(crate) info: Option<Info>,
    /// The processors of this machine, for drivers.
    pub(crate) cores: Vec<u32>,
}

impl fmt::Debug for Setup {
    /// Omits the configuration, since it may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("info", &self.info).finish_non_exhaustive()
    }
}

/// A process that is ready.
pub(crate) struct Configured {
    pub(crate) info: Info,
    /// The configuration with its defaults, as the agent shows it.
    pub(crate) shown: serde_json::Value,
    /// The features of a driver.
    pub(crate) supports: Option<Supports>,
    /// The schema of the tasks of a driver.
    pub(crate) task_schema: Option<Spec>,
}

/// Waits for the answer of a call.
async fn ask<T>(
    process: &Process,
    name: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, PluginError> {
    optional(process, name, call).await?.ok_or_else(|| PluginError::Call {
        call: name,
        message: "the plugin does not implement the call".into(),
    })
}

/// Waits for the answer of a call that a plugin need not implement.
async fn optional<T>(
    process: &Process,
    name: &'static str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, PluginError> {
    let answer = tokio::select! {
        answer = tokio::time::timeout(CALL_TIMEOUT, call) => answer,
        () = process.ended() => {
            return Err(PluginError::Ended { how: process.end_reason().await, output: format!("during {name}") });
        }
    };
    match answer {
        Err(_) => Err(PluginError::Timeout { call: name, limit: CALL_TIMEOUT }),
        Ok(Ok(answer)) => Ok(Some(answer.into_inner())),
        Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(None),
        Ok(Err(status)) => Err(PluginError::Call { call: name, message: describe(&status) }),
    }
}

impl Setup {
    /// Examines a process, and configures a new one. A process that an earlier agent left keeps its configuration.
    pub(crate) async fn configure(&self, process: &Process) -> Result<Configured, PluginError> {
        let channel = process.channel();
        let mut base = BasePluginClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let info = ask(process, "PluginInfo", base.plugin_info(PluginInfoRequest {})).await?;
        let info = read_info(info.r#type, info.name, info.plugin_version, info.plugin_api_versions)?;
        if let Some(known) =
            self.info.as_ref().filter(|known| (known.kind, &known.name) != (info.kind, &info.name))
        {
            return Err(PluginError::Call {
                call: "PluginInfo",
                message: format!("the program was the plugin {:?}, and is {:?} now", known.name, info.name),
            });
        }
        let schema = ask(process, "ConfigSchema", base.config_schema(ConfigSchemaRequest {})).await?.spec;
        let schema = schema.map(|schema| spec::read("the plugin's configuration", schema)).transpose()?;
        let config = spec::configure(schema.as_ref(), &self.config).map_err(|error| self.place(error))?;
        if process.is_new {
            let request = SetConfigRequest {
                msgpack_config: if schema.is_some() { config.to_msgpack() } else { Vec::new() },
                nomad_config: (info.kind == Kind::Driver).then(|| self.client_config()),
                plugin_api_version: info.api_version.clone(),
            };
            ask(process, "SetConfig", base.set_config(request)).await?;
        }
        let (mut supports, mut task_schema) = (None, None);
        if info.kind == Kind::Driver {
            let mut driver = driver_client(channel);
            if process.is_new {
                let _absent = optional(process, "Init", driver.init(InitRequest {})).await?;
            }
            let found = ask(process, "Capabilities", driver.capabilities(CapabilitiesRequest {})).await?;
            supports = Some(convert::supports(&found.capabilities.unwrap_or_default()));
            let found =
                ask(process, "TaskConfigSchema", driver.task_config_schema(TaskConfigSchemaRequest {}));
            task_schema =
                found.await?.spec.map(|schema| spec::read("the tasks' configuration", schema)).transpose()?;
        }
        Ok(Configured { info, shown: config.to_json(), supports, task_schema })
    }

    /// Adds the places of a configuration that does not fit.
    fn place(&self, error: PluginError) -> PluginError {
        let PluginError::Misfit(problems) = error else { return error };
        let place = |problem: &Problem| {
            // A key that is missing has no place: its block has one.
            let ends = problem.path().match_indices('.').map(|(end, _)| end).rev();
            let paths = std::iter::once(problem.path().len()).chain(ends).map(|end| &problem.path()[..end]);
            paths.chain(std::iter::once("")).find_map(|path| self.places.get(path)).cloned()
        };
        PluginError::Config(problems.into_iter().map(|problem| (place(&problem), problem)).collect())
    }

    fn client_config(&self) -> NomadConfig {
        let core = |id: &u32| ClientTopologyCore { core_id: *id, ..Default::default() };
        NomadConfig {
            driver: Some(NomadDriverConfig {
                client_max_port: PORTS.1,
                client_min_port: PORTS.0,
                topology: Some(ClientTopology {
                    node_ids: vec![0],
                    cores: self.cores.iter().map(core).collect(),
                    ..Default::default()
                }),
            }),
        }
    }
}

fn read_info(kind: i32, name: String, version: String, api: Vec<String>) -> Result<Info, PluginError> {
    let kind = match PluginType::try_from(kind) {
        Ok(PluginType::Driver) => Kind::Driver,
        Ok(PluginType::Device) => Kind::Device,
        _ => return Err(PluginError::Kind(kind)),
    };
    let is_fine = |c: char| !c.is_control() && !c.is_whitespace() && c != '/';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_fine) {
        return Err(PluginError::Name(name));
    }
    if parse_version(&version).is_none() {
        return Err(PluginError::Version(version));
    }
    let speaks = |text: &String| text.trim_start_matches('v') == API_VERSION.trim_start_matches('v');
    let Some(api_version) = api.iter().find(|text| speaks(text)).cloned() else {
        return Err(PluginError::Api(api));
    };
    Ok(Info { kind, name, version, api_version })
}

/// Parses the parts of a version by which two versions are compared: the numbers, and whether it is a release.
pub(crate) fn parse_version(text: &str) -> Option<(Vec<u64>, bool)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let text = text.split_once('+').map_or(text, |(version, _metadata)| version);
    let (numbers, pre) = text.split_once('-').map_or((text, None), |(numbers, pre)| (numbers, Some(pre)));
    let mut read: Vec<u64> = numbers.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    read.resize(read.len().max(3), 0);
    Some((read, pre.is_none_or(str::is_empty)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        let parse = |text| parse_version(text).expect(text);
        assert!(parse("v0.10.0") > parse("0.9.1"));
        assert!(parse("1.0.0") > parse("1.0.0-beta1"));
        assert_eq!(parse("1.0"), parse("v1.0.0+git"));
        assert!(parse_version("latest").is_none() && parse_version("").is_none());
    }

    #[test]
    fn each_fault_of_an_identity_has_its_error() {
        let read = |kind, name: &str, version: &str, api: &[&str]| {
            read_info(kind, name.into(), version.into(), api.iter().map(ToString::to_string).collect())
        };
        assert_eq!(read(2, "x", "1.0", &["0.1.0"]).expect("info").kind, Kind::Driver);
        assert_eq!(read(3, "x", "v1.0", &["v0.2.0", "v0.1.0"]).expect("info").kind, Kind::Device);
        assert!(matches!(read(0, "x", "1.0", &["v0.1.0"]), Err(PluginError::Kind(0))));
        assert!(matches!(read(2, "", "1.0", &["v0.1.0"]), Err(PluginError::Name(_))));
        assert!(matches!(read(2, "../x", "1.0", &["v0.1.0"]), Err(PluginError::Name(_))));
        assert!(matches!(read(2, "x", "one", &["v0.1.0"]), Err(PluginError::Version(_))));
        assert!(matches!(read(2, "x", "1.0", &["v9.0.0"]), Err(PluginError::Api(_))));
        assert!(matches!(read(2, "x", "1.0", &[]), Err(PluginError::Api(_))));
    }
}
