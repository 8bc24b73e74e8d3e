//! Request bodies: keys are case-insensitive, unknown keys are ignored, `null` means unset
//! (docs/reference/http-api.md, section 2.3).

use crate::error::ApiError;
use caravan_api::DecodeError;
use caravan_api::decode::{ApiValue, decode, known};
use caravan_types::ser::Secrets;
use caravan_types::variable::VariableLock;
use caravan_types::volume::{AccessMode, AttachmentMode, CsiSnapshot, VolumeRequestBody};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A text field that is type-checked and dropped. The line of the route table finds the request's namespace,
/// which is in [`crate::call::Call`]. A handler with another source could act in a namespace that was not checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Elsewhere;

impl ApiValue for Elsewhere {
    const TYPE: &'static str = String::TYPE;
    fn read(value: &Value, at: &mut caravan_api::decode::Place) -> Result<Self, caravan_api::DecodeError> {
        String::read(value, at).map(|_| Self)
    }
}

/// Returns whether a body may have a field of this size. A field for the request's namespace must be empty, as
/// [`Elsewhere`] is.
pub(crate) const fn is_allowed(wire: &str, key: &str, size: usize) -> bool {
    const fn same(a: &str, b: &str) -> bool {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut at = 0;
        while at < a.len() && at < b.len() && a[at] == b[at] {
            at += 1;
        }
        at == a.len() && at == b.len()
    }
    // A list of names with namespaces only selects among objects that the caller may see.
    size == 0 || !same(key, "Namespace") || same(wire, "NamespacedID")
}

/// Declares request bodies: `Name("Wire") { field: Type = "Key"; }`.
macro_rules! bodies {
    ($($(#[$meta:meta])* $name:ident($wire:literal) { $($field:ident : $ty:ty = $key:literal;)* })*) => {$(
        $(const _: () = assert!(
            $crate::body::is_allowed($wire, $key, size_of::<$ty>()),
            "the namespace of a request is call.namespace"
        );)*

        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $name { $(pub(crate) $field: $ty,)* }

        impl caravan_api::decode::ApiValue for $name {
            const TYPE: &'static str = concat!("api.", $wire);
            fn read(
                value: &serde_json::Value,
                at: &mut caravan_api::decode::Place,
            ) -> Result<Self, caravan_api::DecodeError> {
                use caravan_api::decode::{ApiValue, known};
                let serde_json::Value::Object(map) = value else {
                    return Err(at.mismatch(value, Self::TYPE));
                };
                let mut out = Self::default();
                for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                    match known(&[$($key),*], key) {
                        $(Some($key) => out.$field = at.inside($wire, $key, |at| ApiValue::read(value, at))?,)*
                        _ => {}
                    }
                }
                Ok(out)
            }
        }
    )*};
}
pub(crate) use bodies;

/// Parses a required body.
pub(crate) fn required<T: ApiValue>(body: &[u8]) -> Result<T, ApiError> {
    Ok(decode(body)?)
}

/// Parses a body that may be empty or `null`.
pub(crate) fn optional<T: ApiValue + Default>(body: &[u8]) -> Result<T, ApiError> {
    match decode::<Option<T>>(body) {
        Ok(value) => Ok(value.unwrap_or_default()),
        Err(DecodeError::Empty) => Ok(T::default()),
        Err(error) => Err(error.into()),
    }
}

bodies! {
    /// Volumes to register or create.
    VolumesBody("CSIVolumeRegisterRequest") {
        volumes: Vec<Value> = "Volumes";
        namespace: Elsewhere = "Namespace";
    }
}

/// The keys of a volume and its nested objects.
const VOLUME_KEYS: &[&str] = &[
    "ID",
    "Name",
    "ExternalID",
    "Namespace",
    "RequestedTopologies",
    "Topologies",
    "AccessMode",
    "AttachmentMode",
    "MountOptions",
    "Secrets",
    "SecretsFrom",
    "Parameters",
    "Context",
    "RequestedCapacityMin",
    "RequestedCapacityMax",
    "RequestedCapabilities",
    "CloneID",
    "SnapshotID",
    "PluginID",
    "Required",
    "Preferred",
    "Segments",
    "FSType",
    "MountFlags",
    "CaravanSharedStorage",
];

/// The keys of maps whose own keys users choose.
const VOLUME_MAPS: &[&str] = &["Secrets", "SecretsFrom", "Parameters", "Context", "Segments", "Items"];

/// Parses the volumes of a request. `create` means that they will be created. Errors never repeat a value,
/// because any value may be a secret.
pub(crate) fn volumes(body: &[u8], create: bool) -> Result<Vec<VolumeRequestBody>, ApiError> {
    let body: VolumesBody = required(body)?;
    let read = |value: &Value| {
        let value = spelled(value, VOLUME_KEYS, VOLUME_MAPS);
        check_maps(&value)?;
        modes(&value).map_err(|why| unknown_mode(&why, create))?;
        serde_json::from_value(value).map_err(|error| ApiError::bad_request(format!("json: {error}")))
    };
    body.volumes.iter().filter(|v| !v.is_null()).map(read).collect()
}

/// Refuses unknown access and attachment modes.
fn modes(volume: &Value) -> Result<(), String> {
    for capability in volume["RequestedCapabilities"].as_array().into_iter().flatten() {
        let text = |key: &str| capability[key].as_str().unwrap_or_default();
        text("AttachmentMode").parse::<AttachmentMode>()?;
        text("AccessMode").parse::<AccessMode>()?;
    }
    Ok(())
}

/// Returns the error for an unknown mode, in the wording of the component that Nomad reports it from.
fn unknown_mode(why: &str, create: bool) -> ApiError {
    ApiError::internal(match create {
        true => {
            caravan_server::joined(&[format!("controller create volume: CSI.ControllerCreateVolume: {why}")])
        }
        false => format!("controller validate volume: CSI.ControllerValidateVolume: {why}"),
    })
}

bodies! {
    /// Snapshots to create.
    SnapshotsBody("CSISnapshotCreateRequest") {
        snapshots: Vec<Value> = "Snapshots";
        namespace: Elsewhere = "Namespace";
    }
    /// A variable to write. Its items are parsed separately, so that no error repeats them.
    VariableBody("VariableDecrypted") {
        namespace: Elsewhere = "Namespace";
        path: String = "Path";
        items: Value = "Items";
        lock: Value = "Lock";
    }
}

/// The keys of a snapshot.
const SNAPSHOT_KEYS: &[&str] = &["SourceVolumeID", "PluginID", "Name", "Secrets", "Parameters"];

/// Parses the snapshots of a request; `None` stands for `null`. Errors never repeat a value.
pub(crate) fn snapshots(body: &[u8]) -> Result<Vec<Option<CsiSnapshot>>, ApiError> {
    let body: SnapshotsBody = required(body)?;
    let read = |value: &Value| {
        if value.is_null() {
            return Ok(None);
        }
        let Value::Object(map) = value else {
            return Err(ApiError::bad_request(
                "json: cannot unmarshal the value of Go struct field CSISnapshotCreateRequest.Snapshots: it must be a list of objects",
            ));
        };
        let mut out = Map::new();
        for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
            if let Some(key) = known(SNAPSHOT_KEYS, key) {
                out.insert(key.to_owned(), value.clone());
            }
        }
        let value = Value::Object(out);
        check_maps(&value)?;
        let read = serde_json::from_value(value);
        read.map(Some).map_err(|error| ApiError::bad_request(format!("json: {error}")))
    };
    body.snapshots.iter().map(read).collect()
}

/// A variable as a request describes it.
#[derive(Debug, Default)]
pub(crate) struct VariableInput {
    /// The path in the body.
    pub(crate) path: String,
    /// The items; empty if absent.
    pub(crate) items: Secrets,
    /// The lock in the body, if there is one.
    pub(crate) lock: Option<VariableLock>,
}

/// Parses a variable.
pub(crate) fn variable(body: &[u8]) -> Result<VariableInput, ApiError> {
    let body: VariableBody = required(body)?;
    let lock = match &body.lock {
        Value::Null => None,
        lock => Some(crate::typed::of_value(lock)?),
    };
    let items = match body.items {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => return Err(wrong_items(&other, "structs.VariableItems")),
    };
    let text = |(name, value): (String, Value)| match value {
        Value::String(text) => Ok((name, text)),
        other => Err(wrong_items(&other, "string")),
    };
    let items = items.into_iter().map(text).collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(VariableInput { path: body.path, items: Secrets::new(items), lock })
}

/// Returns the error for items of a wrong type. The error names the type of the value, not the value.
fn wrong_items(value: &Value, desired: &str) -> ApiError {
    let kind = match value {
        Value::Null | Value::Object(_) => "object",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    ApiError::bad_request(format!(
        "json: cannot unmarshal {kind} into Go struct field VariableDecrypted.Items of type {desired}"
    ))
}

/// Returns the value with its keys in their declared spelling and without unset fields. Below `maps`, the keys are
/// kept.
pub(crate) fn spelled(value: &Value, keys: &'static [&'static str], maps: &[&str]) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| spelled(item, keys, maps)).collect(),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                let key = known(keys, key).unwrap_or(key);
                let value = if maps.contains(&key) { value.clone() } else { spelled(value, keys, maps) };
                out.insert(key.to_owned(), value);
            }
            Value::Object(out)
        }
        other => other.clone(),
    }
}

fn check_maps(volume: &Value) -> Result<(), ApiError> {
    for key in ["Secrets", "SecretsFrom", "Parameters", "Context"] {
        let strings = match volume.get(key) {
            None => true,
            Some(Value::Object(map)) => map.values().all(Value::is_string),
            Some(_) => false,
        };
        if !strings {
            return Err(ApiError::bad_request(format!(
                "json: cannot unmarshal the value of Go struct field CSI.{key}: it must be an object of strings"
            )));
        }
    }
    let flags = volume.pointer("/MountOptions/MountFlags").and_then(Value::as_array);
    if flags.is_some_and(|flags| !flags.iter().all(Value::is_string)) {
        return Err(ApiError::bad_request(
            "json: cannot unmarshal the value of Go struct field CSIMountOptions.MountFlags: it must be a list of strings",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read_in_any_spelling() {
        let body = br#"{"volumes":[{"id":"data","PLUGINID":"p","secrets":{"Id":"x"},"name":null,
            "RequestedCapabilities":[{"accessmode":"single-node-writer","AttachmentMode":"file-system"}],
            "RequestedTopologies":{"required":[{"segments":{"Rack":"r1"}}]},"unknown":1}]}"#;
        let volumes = volumes(body, true).unwrap();
        assert_eq!(volumes.len(), 1);
        assert_eq!((volumes[0].id.as_str(), volumes[0].plugin_id.as_str()), ("data", "p"));
        assert_eq!(volumes[0].secrets.expose()["Id"], "x");
        assert_eq!(volumes[0].requested_capabilities[0].access_mode.as_str(), "single-node-writer");
        let topologies = volumes[0].requested_topologies.as_ref().unwrap();
        assert_eq!(topologies.required[0].segments["Rack"], "r1");
    }

    #[test]
    fn modes_that_there_are_not_are_refused_like_by_a_plugin() {
        let body =
            br#"{"Volumes":[{"ID":"a","requestedCapabilities":[{"accessMode":"x","AttachmentMode":"y"}]}]}"#;
        let reported = |create: bool| volumes(body, create).unwrap_err();
        assert_eq!(reported(true).status, 500);
        let text = reported(true).message;
        assert!(text.starts_with("1 error occurred:\n\t* controller create volume: CSI.ControllerCreateVolume: unknown volume attachment mode: y"), "{text}");
        let text = reported(false).message;
        assert!(
            text.starts_with("controller validate volume: CSI.ControllerValidateVolume: unknown"),
            "{text}"
        );
    }

    #[test]
    fn errors_tell_no_secrets() {
        for body in [
            r#"{"Volumes":[{"ID":"a","Secrets":{"k":{"hunter2":1}}}]}"#,
            r#"{"Volumes":[{"ID":"a","Secrets":"hunter2"}]}"#,
            r#"{"Volumes":[{"ID":"a","MountOptions":{"MountFlags":[{"hunter2":1}]}}]}"#,
        ] {
            let error = volumes(body.as_bytes(), true).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(!error.message.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_absent_body_is_told_from_an_optional_one() {
        assert_eq!(required::<VolumesBody>(b" ").unwrap_err().message, "Request body is empty");
        assert!(optional::<VolumesBody>(b"").unwrap().volumes.is_empty());
        assert!(optional::<VolumesBody>(b"null").unwrap().volumes.is_empty());
        assert_eq!(
            required::<VolumesBody>(b"[1,2]").unwrap_err().message,
            "json: cannot unmarshal array into Go value of type api.CSIVolumeRegisterRequest"
        );
    }
}
