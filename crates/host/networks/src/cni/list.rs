//! The configurations of networks: files in the directory `cni_config_dir`.

use super::fault::CniFault;
use super::version::SpecVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The endings of the files that are read, the same as in Nomad.
const ENDINGS: [&str; 3] = ["conf", "conflist", "json"];
/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The configuration of one plugin. Only the plugin can interpret the other keys.
#[derive(Clone, PartialEq)]
pub(crate) struct PluginConfig {
    /// The name of the plugin's program.
    pub(crate) kind: String,
    /// The capabilities that the plugin declares.
    pub(crate) capabilities: Vec<String>,
    object: Map<String, Value>,
}

impl fmt::Debug for PluginConfig {
    /// Shows only the name of the plugin: its other keys may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginConfig").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl PluginConfig {
    fn parse(object: Map<String, Value>) -> Result<Self, String> {
        let kind = object.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if kind.is_empty() || kind.contains('/') || kind.starts_with('.') {
            return Err(format!("the type of a plugin must be the name of a program, not {kind:?}"));
        }
        let declared = object.get("capabilities").and_then(Value::as_object).into_iter().flatten();
        let capabilities = declared.filter(|(_, on)| **on == Value::Bool(true)).map(|(name, _)| name.clone());
        Ok(Self { capabilities: capabilities.collect(), kind, object })
    }

    /// Returns the keys of the configuration that the plugin receives. The client adds keys to them.
    pub(crate) fn keys(&self) -> Map<String, Value> {
        let mut keys = self.object.clone();
        keys.remove("capabilities");
        keys
    }
}

/// The configuration of a network: plugins in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NetworkList {
    pub(crate) name: String,
    pub(crate) version: SpecVersion,
    pub(crate) disable_check: bool,
    pub(crate) disable_gc: bool,
    pub(crate) plugins: Vec<PluginConfig>,
    /// Whether plugins may be in separate files, in the directory named as the network.
    is_open: bool,
}

impl NetworkList {
    /// Reads a list, or the configuration of one plugin.
    ///
    /// # Errors
    /// Returns one sentence that names the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut object: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| format!("it is no JSON object: {error}"))?;
        let text_of = |object: &Map<String, Value>, key: &str| match object.get(key) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("{key} must be a text")),
        };
        let name = text_of(&object, "name")?;
        if !is_name(&name) {
            return Err(format!("name {name:?} must consist of letters, digits, '.', '_' and '-'"));
        }
        let version = version(&text_of(&object, "cniVersion")?, object.get("cniVersions"))?;
        let flag = |object: &Map<String, Value>, key: &str| match object.get(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            // libcni also accepts `true` and `false` as strings.
            Some(Value::String(text)) => text.parse().map_err(|_| format!("{key} must be true or false")),
            Some(_) => Err(format!("{key} must be true or false")),
        };
        let (disable_check, disable_gc) = (flag(&object, "disableCheck")?, flag(&object, "disableGC")?);
        let is_closed = flag(&object, "loadOnlyInlinedPlugins")?;
        let (plugins, is_open) = match object.remove("plugins") {
            Some(Value::Array(all)) => {
                let mut plugins = Vec::new();
                for plugin in all {
                    let Value::Object(plugin) = plugin else {
                        return Err("a plugin must be an object".into());
                    };
                    plugins.push(PluginConfig::parse(plugin)?);
                }
                (plugins, !is_closed)
            }
            Some(_) => return Err("plugins must be a list".into()),
            None => (vec![PluginConfig::parse(object)?], false),
        };
        Ok(Self { name, version, disable_check, disable_gc, plugins, is_open })
    }

    /// Returns the name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the version of the specification that the plugins of the network use.
    pub fn version(&self) -> SpecVersion {
        self.version
    }

    /// Returns whether a plugin maps ports of the node.
    pub fn maps_ports(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.capabilities.iter().any(|name| name == "portMappings"))
    }
}

impl From<NetworkList> for String {
    fn from(list: NetworkList) -> Self {
        let plugins: Vec<Value> =
            list.plugins.into_iter().map(|plugin| Value::Object(plugin.object)).collect();
        json!({
            "name": list.name,
            "cniVersion": list.version.as_str(),
            "disableCheck": list.disable_check,
            "disableGC": list.disable_gc,
            "loadOnlyInlinedPlugins": !list.is_open,
            "plugins": plugins,
        })
        .to_string()
    }
}

impl TryFrom<String> for NetworkList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

/// Returns the newest version of a list that the client supports.
fn version(single: &str, several: Option<&Value>) -> Result<SpecVersion, String> {
    let several = several.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let known = several.filter_map(|text| text.parse::<SpecVersion>().ok()).max();
    match (single.parse::<SpecVersion>().ok(), known) {
        (Some(single), Some(other)) => Ok(single.max(other)),
        (Some(single), None) => Ok(single),
        (None, Some(other)) => Ok(other),
        (None, None) => Err(format!("cniVersion {single:?} is unknown: the newest known one is 1.1.0")),
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The networks that a directory configures.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The networks by their name.
    pub lists: BTreeMap<String, NetworkList>,
    /// The files that cannot be used.
    pub faults: Vec<CniFault>,
}

impl Catalog {
    /// Reads a directory. A directory that does not exist has no networks. Of several files with one name, the first
    /// one in the order of file names counts.
    pub fn read(dir: &Path) -> Self {
        let mut catalog = Self::default();
        let paths = match files(dir, &ENDINGS) {
            Ok(paths) => paths,
            Err(fault) => {
                catalog.faults.push(fault);
                return catalog;
            }
        };
        for path in paths {
            match read_list(dir, &path) {
                Ok(list) if catalog.lists.contains_key(&list.name) => {
                    let reason = format!("another file has the network {:?} already", list.name);
                    catalog.faults.push(CniFault::List { path, reason });
                }
                Ok(list) => drop(catalog.lists.insert(list.name.clone(), list)),
                Err(fault) => catalog.faults.push(fault),
            }
        }
        catalog
    }

    /// Reads the configuration of one network.
    ///
    /// # Errors
    /// If no file has the name. If a file cannot be used, the error is about that file, because it may have the name.
    pub fn find(dir: &Path, name: &str) -> Result<NetworkList, CniFault> {
        let mut catalog = Self::read(dir);
        let absent = || CniFault::NotFound { name: name.to_owned(), dir: dir.to_owned() };
        catalog.lists.remove(name).ok_or_else(|| CniFault::combine(catalog.faults).unwrap_or_else(absent))
    }
}

/// Returns the files of a directory with one of some endings, in the order of their names.
fn files(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, CniFault> {
    let failed = |error: std::io::Error| CniFault::List { path: dir.to_owned(), reason: error.to_string() };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| endings.contains(&ending)) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn read_file(path: &Path) -> Result<String, CniFault> {
    let refused = |reason: String| CniFault::List { path: path.to_owned(), reason };
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > MAX_FILE {
        return Err(refused(format!("it has more than {MAX_FILE} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))
}

fn read_list(dir: &Path, path: &Path) -> Result<NetworkList, CniFault> {
    let refused = |path: &Path, reason: String| CniFault::List { path: path.to_owned(), reason };
    let mut list = NetworkList::parse(&read_file(path)?).map_err(|reason| refused(path, reason))?;
    if list.is_open {
        for path in files(&dir.join(&list.name), &["conf"])? {
            let plugin = serde_json::from_str::<Map<String, Value>>(&read_file(&path)?)
                .map_err(|error| format!("it is no JSON object: {error}"))
                .and_then(PluginConfig::parse);
            list.plugins.push(plugin.map_err(|reason| refused(&path, reason))?);
        }
        // The plugins are read now; the stored list needs no directory.
        list.is_open = false;
    }
    if list.plugins.is_empty() {
        return Err(refused(path, "it has no plugins".into()));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_and_single_plugins_are_read() {
        let list = NetworkList::parse(
            r#"{"cniVersion":"0.4.0","cniVersions":["1.0.0","9.9.9","1.1.0"],"name":"MyNet","disableCheck":true,
                "plugins":[{"type":"bridge","ipam":{"type":"host-local"}},
                           {"type":"portmap","capabilities":{"portMappings":true,"mac":false}}]}"#,
        )
        .unwrap();
        assert_eq!((list.name(), list.version(), list.disable_check), ("MyNet", SpecVersion::V1_1_0, true));
        assert!(list.maps_ports());
        assert!(!list.plugins[1].keys().contains_key("capabilities"));
        assert_eq!(list.plugins[0].keys()["ipam"]["type"], "host-local");
        let again = NetworkList::try_from(String::from(list.clone())).unwrap();
        assert_eq!(again, list);
        let one = NetworkList::parse(r#"{"name":"one","type":"macvlan","master":"eth0"}"#).unwrap();
        assert_eq!((one.plugins.len(), one.version()), (1, SpecVersion::V0_1_0));
        assert!(!one.maps_ports());
    }

    #[test]
    fn a_bad_list_names_its_key() {
        for (text, needle) in [
            ("[]", "no JSON object"),
            (r#"{"plugins":[]}"#, "name \"\""),
            (r#"{"name":"a b","plugins":[]}"#, "name \"a b\""),
            (r#"{"name":"a","cniVersion":"2.0.0","plugins":[]}"#, "cniVersion \"2.0.0\" is unknown"),
            (r#"{"name":"a","cniVersion":1,"plugins":[]}"#, "cniVersion must be a text"),
            (r#"{"name":"a","plugins":{}}"#, "plugins must be a list"),
            (r#"{"name":"a","plugins":[{"type":"../x"}]}"#, "not \"../x\""),
            (r#"{"name":"a"}"#, "type of a plugin"),
            (r#"{"name":"a","disableGC":3,"plugins":[]}"#, "disableGC must be true or false"),
        ] {
            let error = NetworkList::parse(text).unwrap_err();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn a_bad_file_leaves_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put("10-a.conflist", r#"{"name":"a","cniVersion":"1.0.0","plugins":[{"type":"x"}]}"#);
        put("20-b.conf", r#"{"name":"b","type":"y"}"#);
        put("30-again.json", r#"{"name":"a","type":"z"}"#);
        put("40-bad.conflist", "{");
        put("50-empty.conflist", r#"{"name":"e","plugins":[]}"#);
        put("readme.txt", "{");
        std::fs::create_dir(dir.path().join("a")).unwrap();
        put("a/more.conf", r#"{"type":"w"}"#);
        let catalog = Catalog::read(dir.path());
        assert_eq!(catalog.lists.keys().collect::<Vec<_>>(), ["a", "b"]);
        let kinds: Vec<_> = catalog.lists["a"].plugins.iter().map(|plugin| plugin.kind.as_str()).collect();
        assert_eq!(kinds, ["x", "w"], "plugins of the network's own directory follow");
        let faults: Vec<String> = catalog.faults.iter().map(ToString::to_string).collect();
        assert!(faults[0].contains("30-again.json") && faults[0].contains("has the network \"a\" already"));
        assert!(
            faults[1].contains("40-bad.conflist") && faults[2].contains("it has no plugins"),
            "{faults:?}"
        );
        assert_eq!(Catalog::find(dir.path(), "b").unwrap().name(), "b");
        let absent = Catalog::find(&dir.path().join("none"), "A").unwrap_err().to_string();
        assert!(absent.starts_with("CNI network config not found for name \"A\""), "{absent}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = NetworkList::parse(&text);
        }
    }
}
