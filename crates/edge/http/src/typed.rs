//! Request bodies that are rows: keys are case-insensitive, `null` means unset (docs/reference/http-api.md, section
//! 2.3).

use crate::error::ApiError;
use caravan_api::decode::decode;
use caravan_server::ServerError;
use http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The keys of the rows that operators write, and of their nested objects.
const KEYS: &[&str] = &[
    "ID",
    "Name",
    "Description",
    "Quota",
    "Capabilities",
    "EnabledTaskDrivers",
    "DisabledTaskDrivers",
    "EnabledNetworkModes",
    "DisabledNetworkModes",
    "NodePoolConfiguration",
    "VaultConfiguration",
    "ConsulConfiguration",
    "Default",
    "Allowed",
    "Denied",
    "Meta",
    "RequiredExtraClaims",
    "OptionalExtraClaims",
    "NodeIdentityTTL",
    "SchedulerConfiguration",
    "SchedulerAlgorithm",
    "MemoryOversubscriptionEnabled",
    "PreemptionConfig",
    "SystemSchedulerEnabled",
    "SysBatchSchedulerEnabled",
    "BatchSchedulerEnabled",
    "ServiceSchedulerEnabled",
    "RejectJobRegistration",
    "PauseEvalBroker",
    "NodeLimitForFeasibilityChecks",
    "CleanupDeadServers",
    "LastContactThreshold",
    "MaxTrailingLogs",
    "MinQuorum",
    "ServerStabilizationTime",
    "EnableRedundancyZones",
    "DisableUpgradeMigration",
    "EnableCustomUpgrades",
    "Rules",
    "JobACL",
    "Namespace",
    "JobID",
    "Group",
    "Task",
    "AccessorID",
    "SecretID",
    "Type",
    "Policies",
    "Roles",
    "Global",
    "ExpirationTTL",
    "ExpirationTime",
    "OneTimeSecretID",
    "BootstrapSecret",
    "TokenLocality",
    "TokenNameFormat",
    "MaxTokenTTL",
    "Config",
    "JWTValidationPubKeys",
    "JWKSURL",
    "JWKSCACert",
    "OIDCDiscoveryURL",
    "OIDCClientID",
    "OIDCClientSecret",
    "OIDCClientAssertion",
    "OIDCEnablePKCE",
    "OIDCDisableUserInfo",
    "OIDCScopes",
    "BoundAudiences",
    "BoundIssuer",
    "AllowedRedirectURIs",
    "DiscoveryCaPem",
    "SigningAlgs",
    "ExpirationLeeway",
    "NotBeforeLeeway",
    "ClockSkewLeeway",
    "ClaimMappings",
    "ListClaimMappings",
    "VerboseLogging",
    "AuthMethod",
    "Selector",
    "BindType",
    "BindName",
    "AuthMethodName",
    "LoginToken",
    "ClientNonce",
    "RedirectURI",
    "State",
    "Code",
    "TTL",
    "LockDelay",
    "NodeName",
    "NodePool",
];

/// The keys of maps whose own keys users choose.
const MAPS: &[&str] = &[
    "Meta",
    "RequiredExtraClaims",
    "OptionalExtraClaims",
    "ClaimMappings",
    "ListClaimMappings",
    "OIDCClientAssertion",
];

/// Parses a row from a required body.
pub(crate) fn row<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let value = decode::<Value>(body)?;
    // The parser takes an array for an object whose first fields it lists.
    let kind = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Object(_) | Value::Null => return of_value(&value),
    };
    Err(ApiError::bad_request(format!("json: cannot unmarshal {kind} into Go value of an object")))
}

/// Parses a row from a value.
pub(crate) fn of_value<T: DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    serde_json::from_value(spelled(value)).map_err(|error| ApiError::bad_request(words(&error.to_string())))
}

/// Converts the parser's errors to the wording that clients expect.
fn words(text: &str) -> String {
    match text.strip_prefix("time: invalid duration \"").and_then(|rest| rest.split_once('"')) {
        Some((duration, _)) => format!("time: invalid duration \"{duration}\""),
        None => format!("json: {text}"),
    }
}

fn spelled(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(spelled).collect(),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                let known = KEYS.iter().find(|k| *k == key);
                let known = known.or_else(|| KEYS.iter().find(|k| k.eq_ignore_ascii_case(key)));
                let key = known.map_or(key.as_str(), |k| *k);
                let value = if MAPS.contains(&key) { value.clone() } else { spelled(value) };
                out.insert(key.to_owned(), value);
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

/// Converts a refusal, with the status of its kind.
pub(crate) fn coded(error: &ServerError) -> ApiError {
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    ApiError::new(status, error.to_string())
}

/// Converts a refusal by the state: 500, as in Nomad, and 400 for an invalid request.
pub(crate) fn refused(error: &ServerError) -> ApiError {
    match error.kind() {
        caravan_server::Kind::NotFound => ApiError::internal(error.to_string()),
        _ => coded(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caravan_types::acl::{AuthMethod, Token};

    #[test]
    fn rows_are_read_in_any_spelling() {
        let token: Token =
            row(br#"{"name":"x","TYPE":"client","policies":["a"],"roles":null,"Unknown":{}}"#).unwrap();
        assert_eq!((token.name.as_str(), token.policy_names()), ("x", &["a".to_owned()][..]));
        let method: AuthMethod =
            row(br#"{"Name":"m","config":{"claimmappings":{"Sub":"Name"},"jwksurl":"http://x"}}"#).unwrap();
        let config = method.config.unwrap();
        assert_eq!((config.jwks_url.as_str(), config.claim_mappings["Sub"].as_str()), ("http://x", "Name"));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for (body, kind) in [("[]", "array"), ("\"x\"", "string"), ("7", "number"), ("true", "bool")] {
            let error = row::<Token>(body.as_bytes()).unwrap_err();
            assert_eq!(error.message, format!("json: cannot unmarshal {kind} into Go value of an object"));
        }
    }

    #[test]
    fn wrong_durations_are_told_in_the_recorded_words() {
        let error = row::<Token>(br#"{"ExpirationTTL":"abc"}"#).unwrap_err();
        assert_eq!((error.status.as_u16(), error.message.as_str()), (400, "time: invalid duration \"abc\""));
        assert!(row::<Token>(br#"{"Name":1}"#).unwrap_err().message.starts_with("json: "));
    }
}
