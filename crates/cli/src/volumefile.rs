//! Volume files (`storage` section 10).

use crate::error::CliError;
use crate::jobfile;
use caravan_types::volume::VolumeRequestBody;

/// Reads a volume file.
pub(crate) fn load(path: &str) -> Result<VolumeRequestBody, CliError> {
    let text = jobfile::read(path)?;
    serde_json::from_str(&text)
        .map_err(|error| CliError::failed(format!("Error decoding the volume definition {path:?}: {error}")))
}
