//! Values of a task's `config` that have a special notation.

use caravan_drivers::{Error, Reader, Result};
use std::collections::BTreeMap;

/// A limit of setrlimit(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ulimit {
    pub(crate) name: String,
    pub(crate) soft: i64,
    pub(crate) hard: i64,
}

/// Reads limits in the notation `soft[:hard]`.
pub(super) fn ulimits(map: &BTreeMap<String, String>) -> Result<Vec<Ulimit>> {
    map.iter().map(|(name, text)| ulimit(name, text)).collect()
}

fn ulimit(name: &str, text: &str) -> Result<Ulimit> {
    let malformed =
        |what: String| Error::Config(format!("failed to parse ulimit configuration: Malformed {what}"));
    if text.is_empty() {
        return Err(malformed(format!("ulimit specification {name}: \"\", cannot be empty")));
    }
    let (soft, hard) = text.split_once(':').unwrap_or((text, text));
    let soft = soft.parse().map_err(|_| malformed(format!("soft ulimit {name}: {text}")))?;
    let hard = hard.parse().map_err(|_| malformed(format!("hard ulimit {name}: {text}")))?;
    Ok(Ulimit { name: name.to_owned(), soft, hard })
}

/// A device of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) host: String,
    pub(crate) container: String,
    /// Letters of `rwm`.
    pub(crate) permissions: String,
}

pub(super) fn devices(reader: &mut Reader<'_>) -> Result<Vec<Device>> {
    reader.blocks("devices")?.into_iter().map(device).collect()
}

fn device(mut block: Reader<'_>) -> Result<Device> {
    let host = block.string("host_path")?.filter(|path| !path.is_empty());
    let host =
        host.ok_or_else(|| Error::Config("host path must be set in configuration for devices".into()))?;
    let container = block.string("container_path")?.filter(|path| !path.is_empty());
    let permissions = block.string("cgroup_permissions")?.filter(|letters| !letters.is_empty());
    block.finish()?;
    let permissions = permissions.unwrap_or_else(|| "rwm".into());
    if permissions.chars().any(|letter| !"rwm".contains(letter)) {
        return Err(Error::Config(format!("invalid cgroup permission string: {permissions:?}")));
    }
    Ok(Device { container: container.unwrap_or_else(|| host.clone()), host, permissions })
}

/// An option of the engine's security, in its notation `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SecurityOpt {
    /// An option that is sent unchanged.
    Plain(String),
    /// A filter of system calls in a file of the host, whose content is sent.
    SeccompFile(String),
}

pub(super) fn security(reader: &mut Reader<'_>) -> Result<Vec<SecurityOpt>> {
    reader.strings("security_opt")?.iter().map(|text| security_opt(text)).collect()
}

fn security_opt(text: &str) -> Result<SecurityOpt> {
    let pair = text.split_once('=').or_else(|| text.split_once(':'));
    match pair {
        None if text == "no-new-privileges" => Ok(SecurityOpt::Plain(text.to_owned())),
        None => Err(Error::Config(format!("invalid security_opt: {text:?}"))),
        Some(("seccomp", file)) if file != "unconfined" && file != "builtin" => {
            Ok(SecurityOpt::SeccompFile(file.to_owned()))
        }
        Some((key, value)) => Ok(SecurityOpt::Plain(format!("{key}={value}"))),
    }
}
