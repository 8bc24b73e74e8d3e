//! The command line of `caravan agent`. Each flag overrides a setting of the configuration files. Pure.

mod table;

use crate::error::AgentError;
use caravan_hcl::config::AgentConfig;
use caravan_types::duration;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use table::{Effect, Flag, TABLE, Takes, all};

/// Flags that start an agent in development mode.
const DEV: [&str; 4] = ["dev", "dev-connect", "dev-consul", "dev-vault"];

/// The flags of a command line.
#[derive(Clone, Default, PartialEq)]
pub struct Flags {
    /// `-dev`, or one of the flags that imply it.
    pub dev: bool,
    /// `-config`, in order.
    pub config: Vec<String>,
    /// All other flags of the command line, as values of their settings.
    set: BTreeMap<&'static str, Value>,
}

/// Shows names only, because values may be secrets.
impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flags")
            .field("dev", &self.dev)
            .field("config", &self.config)
            .field("given", &self.set.keys())
            .finish()
    }
}

/// A mistake on the command line, or a request for help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// A request for help; the value is the help text.
    #[error("{0}")]
    Help(String),
    /// The flag does not exist.
    #[error("unknown flag -{flag}{}: see `caravan agent -help`", suggest(flag))]
    Unknown {
        /// The flag's name without a dash.
        flag: String,
    },
    /// The flag needs a value.
    #[error("flag -{flag} needs a value")]
    NoValue {
        /// The flag's name without a dash.
        flag: String,
    },
    /// The value is invalid.
    #[error("flag -{flag}: {reason}")]
    BadValue {
        /// The flag's name without a dash.
        flag: &'static str,
        /// The reason that the value is invalid.
        reason: String,
    },
    /// An argument that is not a flag.
    #[error("unexpected argument {0:?}: the agent takes flags only")]
    Argument(String),
}

fn suggest(flag: &str) -> String {
    match caravan_hcl::diag::nearest(flag, all().map(|known| known.name)) {
        Some(near) => format!(" (did you mean -{near}?)"),
        None => String::new(),
    }
}

/// Builds clap's description of the flags.
fn command() -> Command {
    let mut command = Command::new("caravan agent")
        .about(
            "Run an agent: a server, a client, or both. With -dev it is both, keeps everything in memory, and needs \
             no further settings.",
        )
        .override_usage("caravan agent [flags]")
        .after_help(
            "Long flags may have one dash or two: -dev, --dev. A flag wins over configuration files; lists of servers \
             are put together.",
        )
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .max_term_width(100);
    for (heading, flags) in TABLE {
        for flag in *flags {
            command = command.arg(argument(flag).help_heading(*heading));
        }
    }
    command
}

fn argument(flag: &'static Flag) -> Arg {
    let help = match flag.effect {
        Effect::Carried => flag.help.to_owned(),
        Effect::None(reason) => format!("{} (without effect: {reason})", flag.help),
    };
    let arg = Arg::new(flag.name).long(flag.name).help(help);
    if flag.takes == Takes::Switch {
        return arg.action(ArgAction::SetTrue).overrides_with(flag.name);
    }
    let arg = arg.value_parser(value_parser!(String));
    let valued = |arg: Arg, name: &'static str| arg.value_name(name).num_args(1).overrides_with(flag.name);
    match flag.takes {
        Takes::Switch => arg,
        Takes::Truth => {
            let arg = arg.value_name("BOOL").num_args(0..=1).require_equals(true);
            arg.default_missing_value("true").overrides_with(flag.name)
        }
        Takes::Text(name) | Takes::Secret(name) | Takes::Span(name) => valued(arg, name),
        Takes::Number(name) => valued(arg, name).allow_negative_numbers(true),
        Takes::Many(name) | Takes::List(name) => arg.value_name(name).action(ArgAction::Append),
        Takes::Pairs => arg.value_name("KEY=VALUE").action(ArgAction::Append),
    }
}

/// Parses the arguments after `caravan agent`.
///
/// # Errors
/// Fails at the first mistake.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Flags, FlagError> {
    let mut command = command();
    command.build();
    let args = std::iter::once("caravan agent".to_owned()).chain(args).map(OsString::from).collect();
    let args = caravan_args::normalise(&command, args);
    let matches = command.try_get_matches_from(args).map_err(|error| mistake(&error))?;
    let mut flags = Flags::default();
    for flag in all() {
        let Some(value) = set(flag, &matches)? else { continue };
        match (flag.name, &value) {
            (name, _) if DEV.contains(&name) => flags.dev = true,
            ("config", Value::Array(paths)) => {
                flags.config = paths.iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
            }
            _ => {}
        }
        flags.set.insert(flag.name, value);
    }
    Ok(flags)
}

/// Converts the value of a flag to its setting; returns `None` if the flag is absent.
fn set(flag: &'static Flag, matches: &ArgMatches) -> Result<Option<Value>, FlagError> {
    if flag.takes == Takes::Switch {
        return Ok(matches.get_flag(flag.name).then(|| json!(true)));
    }
    let Some(texts) = matches.get_many::<String>(flag.name) else { return Ok(None) };
    let texts: Vec<&str> = texts.map(String::as_str).collect();
    let last = texts.last().copied().unwrap_or_default();
    let bad = |reason: String| FlagError::BadValue { flag: flag.name, reason };
    Ok(Some(match flag.takes {
        Takes::Switch | Takes::Text(_) | Takes::Secret(_) => json!(last),
        Takes::Truth => {
            json!(caravan_args::truth(last).ok_or_else(|| bad(format!("{last:?} is not true or false")))?)
        }
        Takes::Number(_) => {
            json!(last.parse::<i64>().map_err(|_| bad(format!("{last:?} is not a whole number")))?)
        }
        Takes::Span(_) => {
            json!(duration::parse(last).ok_or_else(|| bad(duration::invalid(last).clone()))?)
        }
        Takes::Many(_) => json!(texts),
        Takes::List(_) => {
            json!(texts.iter().flat_map(|text| text.split(',')).map(str::trim).collect::<Vec<_>>())
        }
        Takes::Pairs => {
            let mut pairs = Map::new();
            for text in texts {
                let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
                let (key, value) = pair.ok_or_else(|| bad(format!("{text:?} is not KEY=VALUE")))?;
                pairs.insert(key.to_owned(), json!(value));
            }
            Value::Object(pairs)
        }
    }))
}

/// Converts an error of clap to the error of a flag.
fn mistake(error: &clap::Error) -> FlagError {
    let named = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let flag = || {
        let name = named.trim_start_matches('-');
        name.split(['=', ' ', '[']).next().unwrap_or_default().to_owned()
    };
    match error.kind() {
        ErrorKind::DisplayHelp => FlagError::Help(error.to_string().trim_end().to_owned()),
        ErrorKind::UnknownArgument if named.starts_with('-') => FlagError::Unknown { flag: flag() },
        ErrorKind::UnknownArgument => FlagError::Argument(named),
        _ => FlagError::NoValue { flag: flag() },
    }
}

impl Flags {
    /// Returns flags that only name configuration files.
    pub(crate) fn of_files(paths: &[String]) -> Self {
        Self { config: paths.to_vec(), ..Self::default() }
    }

    /// Returns warnings about flags without effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let reported = |flag: &Flag| match flag.effect {
            Effect::None(reason) if self.set.contains_key(flag.name) => {
                Some(format!("flag -{} has no effect: {reason}", flag.name))
            }
            _ => None,
        };
        all().filter_map(reported).collect()
    }

    /// Overrides the settings of the configuration files by the flags.
    pub(crate) fn over(&self, file: AgentConfig) -> Result<AgentConfig, AgentError> {
        if self.set.is_empty() {
            return Ok(file);
        }
        let mut tree = serde_json::to_value(file).unwrap_or_default();
        for flag in all().filter(|flag| !flag.setting.is_empty()) {
            if let Some(value) = self.set.get(flag.name) {
                let path: Vec<&str> = flag.setting.split('.').collect();
                lay(&mut tree, &path, value);
            }
        }
        // The table names fields of the configuration and their types. A test applies all of
        // them.
        serde_json::from_value(tree).map_err(|_| {
            super::settings::bad("command line", "its flags do not fit the configuration; this is a defect")
        })
    }
}

/// Sets a value at a path. Maps are merged, lists of servers begin with the flag's servers, and in repeatable blocks
/// the path means the block named `default`.
fn lay(at: &mut Value, path: &[&str], value: &Value) {
    let Some((key, rest)) = path.split_first() else {
        match (at, value) {
            (Value::Object(map), Value::Object(more)) => map.extend(more.clone()),
            (Value::Array(list), Value::Array(first)) => {
                *list = [first.clone(), std::mem::take(list)].concat()
            }
            (at, value) => *at = value.clone(),
        }
        return;
    };
    if ["consul", "vault"].contains(key) && !rest.is_empty() {
        if !at[*key].is_array() {
            at[*key] = json!([]);
        }
        let Value::Array(blocks) = &mut at[*key] else { return };
        let usual = |block: &Value| matches!(block["name"].as_str(), Option::None | Some("" | "default"));
        // Among blocks of one name, later ones override earlier ones.
        let place = blocks.iter().rposition(usual);
        let place = place.unwrap_or_else(|| {
            blocks.push(json!({}));
            blocks.len() - 1
        });
        return lay(&mut blocks[place], rest, value);
    }
    if !at.is_object() {
        *at = json!({});
    }
    lay(&mut at[*key], rest, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::Nanos;

    fn read(args: &[&str]) -> Result<Flags, FlagError> {
        parse(args.iter().map(|a| (*a).to_owned()))
    }

    fn config(args: &[&str]) -> AgentConfig {
        read(args).unwrap().over(AgentConfig::default()).unwrap()
    }

    #[test]
    fn one_dash_or_two_with_and_without_equals() {
        let args = ["-dev", "--bind=127.0.0.1", "-config", "a.hcl", "--config=b.hcl", "-meta", "rack=${7}"];
        let flags = read(&args).unwrap();
        assert!(flags.dev);
        assert_eq!(flags.config, ["a.hcl", "b.hcl"]);
        let config = flags.over(AgentConfig::default()).unwrap();
        assert_eq!(config.bind_addr.as_deref(), Some("127.0.0.1"));
        assert_eq!(config.client.unwrap().meta.unwrap()["rack"], "${7}");
    }

    #[test]
    fn mistakes_are_sentences() {
        let error = |args: &[&str]| read(args).unwrap_err().to_string();
        assert_eq!(
            error(&["-data-dri", "x"]),
            "unknown flag -data-dri (did you mean -data-dir?): see `caravan agent -help`"
        );
        assert_eq!(error(&["-bind"]), "flag -bind needs a value");
        assert_eq!(read(&["file"]).unwrap_err(), FlagError::Argument("file".into()));
        assert_eq!(error(&["-bootstrap-expect", "x"]), "flag -bootstrap-expect: \"x\" is not a whole number");
        assert_eq!(error(&["-meta", "x"]), "flag -meta: \"x\" is not KEY=VALUE");
        assert_eq!(
            error(&["-vault-enabled=perhaps"]),
            "flag -vault-enabled: \"perhaps\" is not true or false"
        );
        assert!(error(&["-retry-interval", "soon"]).starts_with("flag -retry-interval: "));
    }

    #[test]
    fn the_help_names_every_flag_and_what_it_does() {
        let FlagError::Help(help) = read(&["-help"]).unwrap_err() else { panic!("a help was expected") };
        for flag in all() {
            assert!(help.contains(&format!("--{}", flag.name)), "{} is missing: {help}", flag.name);
        }
        assert!(help.contains("without effect"), "{help}");
    }

    /// Returns a valid argument for a flag.
    fn value_for(flag: &Flag) -> Vec<String> {
        let dashed = format!("-{}", flag.name);
        match flag.takes {
            Takes::Switch | Takes::Truth => vec![dashed],
            Takes::Number(_) => vec![dashed, "1".into()],
            Takes::Span(_) => vec![dashed, "3s".into()],
            Takes::Pairs => vec![dashed, "a=b".into()],
            Takes::Secret(_) => vec![dashed, "hunter2".into()],
            _ => vec![dashed, "text".into()],
        }
    }

    #[test]
    fn every_flag_lands_in_its_setting() {
        let args: Vec<String> = all().flat_map(value_for).collect();
        let flags = parse(args).unwrap();
        let tree = serde_json::to_value(flags.over(AgentConfig::default()).unwrap()).unwrap();
        for flag in all().filter(|flag| !flag.setting.is_empty()) {
            let path = flag.setting.replace("consul.", "consul.0.").replace("vault.", "vault.0.");
            let found = tree.pointer(&format!("/{}", path.replace('.', "/")));
            assert_eq!(found, flags.set.get(flag.name), "{}", flag.name);
        }
        let silent = all().filter(|flag| matches!(flag.effect, Effect::None(_))).count();
        assert_eq!(flags.warnings().len(), silent);
        assert!(!format!("{flags:?}").contains("hunter2"), "{flags:?}");
    }

    #[test]
    fn flags_lie_over_files() {
        let file = caravan_hcl::config::parse(&[caravan_hcl::Source::new(
            "a.hcl",
            "region = \"a\"\nclient {\n servers = [\"f:1\"]\n meta {\n rack = \"1\"\n row = \"2\"\n}\n}\n\
             consul {\n address = \"c\"\n token = \"t\"\n}\nconsul {\n name = \"other\"\n address = \"o\"\n}\n",
        )])
        .unwrap();
        let args = ["-servers", "x:1, y:2", "-meta", "rack=7", "-consul-address", "z", "-region", "b"];
        let config = read(&args).unwrap().over(file).unwrap();
        assert_eq!(config.region.as_deref(), Some("b"));
        let client = config.client.unwrap();
        assert_eq!(client.servers.unwrap(), ["x:1", "y:2", "f:1"]);
        let meta = client.meta.unwrap();
        assert_eq!((meta["rack"].as_str(), meta["row"].as_str()), ("7", "2"));
        let consul = config.consul.unwrap();
        assert_eq!(consul[0].0, json!({"address": "z", "token": "t"}));
        assert_eq!(consul[1].0["address"], "o");
    }

    #[test]
    fn switches_can_be_said_to_be_off() {
        let config =
            config(&["-server=true", "-acl-enabled=false", "-vault-enabled=false", "-retry-interval=2s"]);
        let server = config.server.unwrap();
        assert_eq!(server.enabled, Some(true));
        assert_eq!(server.server_join.unwrap().retry_interval, Some(Nanos::from_secs(2)));
        assert!(config.acl.is_none());
        assert_eq!(config.vault.unwrap()[0].0["enabled"], json!(false));
    }
}
