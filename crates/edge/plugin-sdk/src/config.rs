//! Configurations and driver states in MessagePack.

use crate::error::Cause;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The configuration of a plugin or a task that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoConfig {}

/// Reads a configuration. The agent sends every key of the schema, and null for absent ones. These keys are left out,
/// so that `#[serde(default)]` and `Option` both apply.
pub(crate) fn read<C: DeserializeOwned>(bytes: &[u8]) -> Result<C, Cause> {
    let value = if bytes.is_empty() { Value::Null } else { rmp_serde::from_slice(bytes)? };
    let value = match without_nulls(value) {
        Value::Null => Value::Object(Map::new()),
        value => value,
    };
    Ok(serde_json::from_value(value)?)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Encodes the state of a driver's task.
pub(crate) fn write_state<S: Serialize>(state: &S) -> Result<Vec<u8>, Cause> {
    Ok(rmp_serde::to_vec_named(state)?)
}

/// Reads the state of a driver's task.
pub(crate) fn read_state<S: DeserializeOwned>(bytes: &[u8]) -> Result<S, Cause> {
    Ok(rmp_serde::from_slice(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Example {
        command: String,
        #[serde(default)]
        args: Vec<String>,
        user: Option<String>,
        #[serde(default)]
        ratio: f64,
    }

    fn encoded(value: &Value) -> Vec<u8> {
        rmp_serde::to_vec_named(value).unwrap()
    }

    #[test]
    fn absent_keys_have_their_defaults() {
        let sent = encoded(&json!({ "command": "/bin/true", "args": null, "user": null, "ratio": 2 }));
        let read: Example = read(&sent).unwrap();
        let expected = Example { command: "/bin/true".into(), args: Vec::new(), user: None, ratio: 2.0 };
        assert_eq!(read, expected);
    }

    #[test]
    fn no_configuration_is_an_empty_one() {
        for sent in [Vec::new(), encoded(&Value::Null), encoded(&json!({}))] {
            assert_eq!(read::<NoConfig>(&sent).unwrap(), NoConfig {});
        }
        assert!(read::<Example>(&[]).unwrap_err().to_string().contains("command"));
    }

    #[test]
    fn states_come_back() {
        let state = (7_u32, Some("text".to_owned()));
        assert_eq!(read_state::<(u32, Option<String>)>(&write_state(&state).unwrap()).unwrap(), state);
        assert!(read_state::<u32>(b"\xc1").is_err());
    }
}
