//! A device plugin whose devices are the files of a directory.
//!
//! A file is healthy if its content is `healthy`; other content is the reason why it is not. A task that reserves
//! files finds their names in `CARAVAN_FILE_DEVICES`, the files below `/caravan/devices`, and a device node for each
//! in
//! `/dev`.
//!
//! ```hcl
//! plugin "exampledevice" {
//!   config {
//!     dir = "/var/lib/file-devices"
//!   }
//! }
//! ```

use caravan_plugin_sdk::hclspec::{Spec, Type, attr, object};
use caravan_plugin_sdk::{
    DeviceError, DeviceGroup, DevicePlugin, DeviceSpec, DeviceStats, GroupStats, Info, Instance, Mount,
    Reservation, StatObject, StatValue, async_trait, serve_device,
};
use caravan_sys::time::wall_now;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const VENDOR: &str = "caravan";
const TYPE: &str = "file";
const NAME: &str = "mock";
/// The content of a healthy file, without white space at its ends.
const HEALTHY: &str = "healthy";
/// The maximum length of a health description in bytes.
const DESCRIPTION_LIMIT: u64 = 256;

/// The configuration of the plugin.
#[derive(Clone, Debug, Deserialize)]
struct Config {
    /// The directory of the devices.
    dir: PathBuf,
    /// The device node of the host that represents each device.
    node: String,
}

#[derive(Debug, Default)]
struct Files {
    config: Mutex<Option<Config>>,
}

/// A file of the directory.
struct Found {
    id: String,
    size: u64,
    content: String,
}

impl Files {
    fn config(&self) -> Result<Config, DeviceError> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        config.ok_or_else(|| DeviceError::failed("the plugin is not configured"))
    }

    /// Reads the directory. A file whose name is not UTF-8 has no id and is left out.
    fn look(&self) -> Result<Vec<Found>, DeviceError> {
        let dir = self.config()?.dir;
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            // An error would end the plugin permanently, and the directory may appear later.
            Err(error) => {
                tracing::warn!(dir = %dir.display(), error = &error as &dyn std::error::Error, "there are no devices");
                return Ok(Vec::new());
            }
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let (Ok(id), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
            if !kind.is_file() {
                continue;
            }
            let content = match std::fs::File::open(entry.path()) {
                Ok(file) => {
                    let mut bytes = Vec::new();
                    match file.take(DESCRIPTION_LIMIT).read_to_end(&mut bytes) {
                        Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
                        Err(error) => error.to_string(),
                    }
                }
                Err(error) => error.to_string(),
            };
            let size = entry.metadata().map(|data| data.len()).unwrap_or_default();
            found.push(Found { id, size, content });
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(found)
    }
}

#[async_trait]
impl DevicePlugin for Files {
    type Config = Config;

    fn info(&self) -> Info {
        Info::new("example-device", env!("CARGO_PKG_VERSION"))
    }

    fn config_schema(&self) -> Option<Spec> {
        let schema = object()
            .field("dir", attr(Type::String).required())
            .field("node", attr(Type::String).or("/dev/null"));
        Some(schema.into())
    }

    async fn configure(&self, config: Config) -> Result<(), DeviceError> {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Some(config);
        Ok(())
    }

    async fn fingerprint(&self) -> Result<Vec<DeviceGroup>, DeviceError> {
        let found = self.look()?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let total = found.iter().map(|file| file.size).sum::<u64>();
        let instances = found.into_iter().map(|file| {
            let healthy = file.content == HEALTHY;
            Instance {
                id: file.id,
                healthy,
                health_description: if healthy { String::new() } else { file.content },
                pci_bus_id: None,
            }
        });
        Ok(vec![DeviceGroup {
            vendor: VENDOR.to_owned(),
            device_type: TYPE.to_owned(),
            name: NAME.to_owned(),
            instances: instances.collect(),
            attributes: BTreeMap::from([
                ("bytes".to_owned(), i64::try_from(total).unwrap_or(i64::MAX).into()),
                ("mountable".to_owned(), true.into()),
            ]),
        }])
    }

    fn fingerprint_interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn reserve(&self, ids: Vec<String>) -> Result<Reservation, DeviceError> {
        let found = self.look()?;
        let is_known = |id: &String| found.iter().any(|file| file.id == *id);
        let unknown: Vec<String> = ids.iter().filter(|id| !is_known(id)).cloned().collect();
        if !unknown.is_empty() {
            return Err(DeviceError::Unknown(unknown));
        }
        let Config { dir, node } = self.config()?;
        let mounts = ids.iter().map(|id| Mount {
            task_path: format!("/caravan/devices/{id}"),
            host_path: dir.join(id).display().to_string(),
            read_only: true,
        });
        let devices = ids.iter().map(|id| DeviceSpec {
            task_path: format!("/dev/caravan-{id}"),
            host_path: node.clone(),
            permissions: "rw".to_owned(),
        });
        Ok(Reservation {
            mounts: mounts.collect(),
            devices: devices.collect(),
            env: BTreeMap::from([("CARAVAN_FILE_DEVICES".to_owned(), ids.join(","))]),
        })
    }

    async fn stats(&self) -> Result<Vec<GroupStats>, DeviceError> {
        let instances = self.look()?.into_iter().map(|file| {
            let size = StatValue::int(i64::try_from(file.size).unwrap_or(i64::MAX))
                .unit("B")
                .description("size of the file");
            let stats = StatObject {
                values: BTreeMap::from([
                    ("size".to_owned(), size.clone()),
                    ("healthy".to_owned(), StatValue::bool(file.content == HEALTHY)),
                ]),
                nested: BTreeMap::new(),
            };
            (file.id, DeviceStats { summary: size, stats, at: wall_now() })
        });
        Ok(vec![GroupStats {
            vendor: VENDOR.to_owned(),
            device_type: TYPE.to_owned(),
            name: NAME.to_owned(),
            instances: instances.collect(),
        }])
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    serve_device(Files::default()).await
}
