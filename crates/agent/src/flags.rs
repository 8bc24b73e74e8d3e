//! The command line of `caravan agent`: `-flag value`, `-flag=value`, one dash or two. Pure.

use std::collections::BTreeMap;

/// What was given; everything else comes from files and defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `-dev`.
    pub dev: bool,
    /// `-config`, in order.
    pub config: Vec<String>,
    /// `-server`.
    pub server: bool,
    /// `-client`.
    pub client: bool,
    /// `-log-json`.
    pub log_json: bool,
    /// Flags with one value.
    pub values: BTreeMap<&'static str, String>,
    /// `-servers`, comma separated.
    pub servers: Vec<String>,
    /// `-meta key=value`.
    pub meta: BTreeMap<String, String>,
}

/// A mistake on the command line, or the wish for help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// `-help`.
    #[error("{HELP}")]
    Help,
    /// There is no such flag.
    #[error("unknown flag {flag}{}: see `caravan agent -help`", suggest(flag))]
    Unknown {
        /// As given.
        flag: String,
    },
    /// The flag needs a value.
    #[error("flag {flag} needs a value")]
    NoValue {
        /// As given.
        flag: String,
    },
    /// The value makes no sense.
    #[error("flag {flag}: {reason}")]
    BadValue {
        /// As given.
        flag: String,
        /// Why.
        reason: String,
    },
    /// Something that is no flag.
    #[error("unexpected argument {0:?}: the agent takes flags only")]
    Argument(String),
}

const SWITCHES: [&str; 4] = ["dev", "server", "client", "log-json"];
const VALUES: [&str; 12] = [
    "alloc-dir",
    "bind",
    "bootstrap-expect",
    "data-dir",
    "dc",
    "log-level",
    "network-interface",
    "node",
    "node-class",
    "node-pool",
    "region",
    "state-dir",
];
const LISTS: [&str; 3] = ["config", "servers", "meta"];

/// Text of `caravan agent -help`.
pub const HELP: &str = "Usage: caravan agent [flags]

  Runs an agent: a server, a client, or both. With -dev it is both, keeps everything in memory, and needs
  no further settings.

  -dev                     server and client, nothing kept on disk
  -config PATH             configuration file, or directory of *.hcl and *.json; may be repeated
  -data-dir PATH           where state is kept
  -bind ADDRESS            address to listen on
  -server                  run a server
  -client                  run a client
  -servers HOST:PORT,...   servers for a client to begin with
  -bootstrap-expect N      servers to wait for (1)
  -region, -dc, -node      names of region, datacenter and node
  -node-class, -node-pool  class and pool of the node
  -meta KEY=VALUE          a pair of the node; may be repeated
  -network-interface NAME  interface whose addresses are the node's
  -state-dir, -alloc-dir   directories of the client, where not below the data directory
  -log-level LEVEL         TRACE, DEBUG, INFO, WARN, ERROR or OFF
  -log-json                log in JSON";

fn suggest(flag: &str) -> String {
    let name = flag.trim_start_matches('-');
    let near = SWITCHES
        .iter()
        .chain(&VALUES)
        .chain(&LISTS)
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    near.map(|(_, known)| format!(" (did you mean -{known}?)")).unwrap_or_default()
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = before + usize::from(ca != *cb);
            before = row[j + 1];
            row[j + 1] = replaced.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Reads the arguments after `caravan agent`.
///
/// # Errors
/// At the first mistake.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Flags, FlagError> {
    let mut flags = Flags::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(rest) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            return Err(FlagError::Argument(arg));
        };
        let (name, given) = match rest.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (rest, None),
        };
        if matches!(name, "help" | "h") {
            return Err(FlagError::Help);
        }
        if SWITCHES.contains(&name) {
            let on = match given.as_deref() {
                None | Some("true" | "1") => true,
                Some("false" | "0") => false,
                Some(other) => {
                    return Err(FlagError::BadValue {
                        flag: arg.clone(),
                        reason: format!("{other:?} is not true or false"),
                    });
                }
            };
            match name {
                "dev" => flags.dev = on,
                "server" => flags.server = on,
                "client" => flags.client = on,
                _ => flags.log_json = on,
            }
            continue;
        }
        let known = VALUES.iter().chain(&LISTS).find(|known| **known == name).copied();
        let Some(known) = known else { return Err(FlagError::Unknown { flag: format!("-{name}") }) };
        let value = match given.or_else(|| args.next()) {
            Some(value) => value,
            None => return Err(FlagError::NoValue { flag: arg }),
        };
        match known {
            "config" => flags.config.push(value),
            "servers" => flags.servers.extend(value.split(',').map(|s| s.trim().to_owned())),
            "meta" => {
                let (key, value) = value.split_once('=').ok_or_else(|| FlagError::BadValue {
                    flag: "-meta".into(),
                    reason: format!("{value:?} is not KEY=VALUE"),
                })?;
                flags.meta.insert(key.to_owned(), value.to_owned());
            }
            _ => {
                flags.values.insert(known, value);
            }
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Flags, FlagError> {
        parse(args.iter().map(|a| (*a).to_owned()))
    }

    #[test]
    fn one_dash_or_two_with_and_without_equals() {
        let flags =
            read(&["-dev", "--bind=127.0.0.1", "-config", "a.hcl", "--config=b.hcl", "-meta", "rack=7"])
                .unwrap();
        assert!(flags.dev);
        assert_eq!(flags.values["bind"], "127.0.0.1");
        assert_eq!(flags.config, ["a.hcl", "b.hcl"]);
        assert_eq!(flags.meta["rack"], "7");
    }

    #[test]
    fn mistakes_are_sentences() {
        assert_eq!(
            read(&["-data-dri", "x"]).unwrap_err().to_string(),
            "unknown flag -data-dri (did you mean -data-dir?): see `caravan agent -help`"
        );
        assert_eq!(read(&["-bind"]).unwrap_err().to_string(), "flag -bind needs a value");
        assert_eq!(read(&["file"]).unwrap_err(), FlagError::Argument("file".into()));
        assert_eq!(read(&["-help"]).unwrap_err(), FlagError::Help);
    }
}
