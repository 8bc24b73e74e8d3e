//! Removal of secrets from JSON that users read, pass on or attach to a report.

use serde_json::Value;

/// The text that replaces a secret.
pub const REDACTED: &str = "<redacted>";

/// The names of members that hold secrets, in lower case and without separators.
const SECRET: [&str; 21] = [
    "authtoken",
    "clientsecret",
    "consultoken",
    "encryptkey",
    "items",
    "jwt",
    "keptsecrets",
    "oidcclientassertion",
    "oidcclientsecret",
    "onetimesecretid",
    "password",
    "privatekey",
    "rootkey",
    "secret",
    "secretid",
    "secrets",
    "token",
    "variableflags",
    "variables",
    "vaulttoken",
    "wrappedkey",
];

/// Replaces every secret by [`REDACTED`]: a value with text, sealed or plain, under a name of a secret. Values
/// without
/// text (an empty text, an empty object, a number) stay.
///
/// ```
/// let mut token = serde_json::json!({"AccessorID": "a", "SecretID": "s", "Secrets": {}});
/// caravan_types::redact::redact(&mut token);
/// assert_eq!(token, serde_json::json!({"AccessorID": "a", "SecretID": "<redacted>", "Secrets": {}}));
/// ```
pub fn redact(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if is_secret(name) && holds_text(value) {
                    *value = Value::String(REDACTED.to_owned());
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET.binary_search(&plain.as_str()).is_ok()
}

/// Returns whether a value contains any text that is not empty.
fn holds_text(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(holds_text),
        Value::Object(map) => map.values().any(holds_text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_names_are_in_order() {
        assert!(SECRET.is_sorted());
    }

    #[test]
    fn secrets_go_wherever_they_are() {
        let mut value = json!([{
            "token": {"SecretID": "x", "AccessorID": "a"},
            "one_time_secret_id": "x",
            "Config": {"OIDCClientSecret": "x", "JWTSupportedAlgs": ["RS256"]},
            "items": {"key": "k", "text": "x"},
            "secrets": {"key": "", "text": ""},
            "SecretID": "",
            "SecretsMB": 1,
        }]);
        redact(&mut value);
        assert_eq!(
            value,
            json!([{
                "token": REDACTED,
                "one_time_secret_id": REDACTED,
                "Config": {"OIDCClientSecret": REDACTED, "JWTSupportedAlgs": ["RS256"]},
                "items": REDACTED,
                "secrets": {"key": "", "text": ""},
                "SecretID": "",
                "SecretsMB": 1,
            }])
        );
    }

    proptest! {
        #[test]
        fn no_depth_hides_a_secret(path in prop::collection::vec("[a-z]{1,5}", 0..6), list in any::<bool>()) {
            let mut value = json!({"secret_id": "hunter2"});
            for name in path {
                value = if list { json!({ name: [value] }) } else { json!({ name: value }) };
            }
            redact(&mut value);
            prop_assert!(!value.to_string().contains("hunter2"));
        }
    }
}
