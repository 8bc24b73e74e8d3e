//! Secrets of volumes for one call of their plugin: opened, with references resolved.

use crate::core::Core;
use crate::error::ServerError;
use caravan_state::Root;
use caravan_types::sealed::SealedSecrets;
use caravan_types::ser::Secrets;
use caravan_types::variable::{VariableKey, parse_reference};
use caravan_types::volume::{Claim, Volume};
use caravan_types::{Namespace, VolumeKey};
use std::collections::BTreeMap;

/// Why a call must wait for its secrets, as one sentence without any secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unresolved(pub(crate) String);

/// Returns the owner name to which the sealed secrets of a volume are bound.
pub(crate) fn owner(key: &VolumeKey) -> String {
    format!("volume {key}")
}

/// Returns the variables that references name; other values name none.
pub(crate) fn variables<'a>(
    namespace: &'a Namespace,
    references: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = VariableKey> + use<'a> {
    references
        .values()
        .filter_map(|text| parse_reference(text).ok())
        .map(|(path, _)| VariableKey::new(namespace.clone(), path))
}

impl Core {
    /// Seals a volume's secrets; returns `kept` unchanged if it holds the same ones.
    pub(crate) fn seal_volume(
        &self,
        key: &VolumeKey,
        secrets: &Secrets,
        kept: Option<&SealedSecrets>,
    ) -> Result<SealedSecrets, ServerError> {
        let owner = owner(key);
        if let Some(kept) = kept
            && self.keyring.open(&owner, kept).is_ok_and(|open| open == *secrets)
        {
            return Ok(kept.clone());
        }
        self.keyring.seal(&owner, secrets)
    }

    /// Returns the secrets that were given with a volume, without references.
    pub(crate) fn inline_secrets(&self, volume: &Volume) -> Result<Secrets, ServerError> {
        self.keyring.open(&owner(&volume.key()), &volume.secrets)
    }

    /// Returns the secrets of a volume for one call.
    pub(crate) fn secrets_of(&self, root: &Root, volume: &Volume) -> Result<Secrets, Unresolved> {
        self.resolved(root, &volume.key(), &volume.secrets, &volume.secrets_from)
    }

    /// Returns the secrets for a call about a claim, whose volume's row may no longer exist.
    pub(crate) fn secrets_for(
        &self,
        root: &Root,
        claim: &Claim,
        volume: Option<&Volume>,
    ) -> Result<Secrets, Unresolved> {
        match volume.filter(|_| !claim.forsaken) {
            Some(volume) => self.secrets_of(root, volume),
            None => self.resolved(root, &claim.id.volume, &claim.kept_secrets, &claim.kept_secrets_from),
        }
    }

    /// Resolves references, and adds the values that were given literally.
    pub(crate) fn resolved(
        &self,
        root: &Root,
        key: &VolumeKey,
        sealed: &SealedSecrets,
        references: &BTreeMap<String, String>,
    ) -> Result<Secrets, Unresolved> {
        let inline = self.keyring.open(&owner(key), sealed).map_err(|e| Unresolved(e.message))?;
        let mut found = BTreeMap::new();
        for (name, reference) in references {
            found.insert(name.clone(), self.look_up(root, &key.namespace, name, reference)?);
        }
        Ok(Secrets::new(found).overlaid(&inline))
    }

    fn look_up(
        &self,
        root: &Root,
        namespace: &Namespace,
        name: &str,
        reference: &str,
    ) -> Result<String, Unresolved> {
        let (path, item) =
            parse_reference(reference).map_err(|why| Unresolved(format!("secret \"{name}\": {why}")))?;
        let row = root.variable(&VariableKey::new(namespace.clone(), path)).ok_or_else(|| {
            Unresolved(format!(
                "waits for variable \"{path}\" in namespace \"{namespace}\", which has secret \"{name}\""
            ))
        })?;
        let items = self.open_variable(row).map_err(|e| Unresolved(e.message))?.items;
        items.expose().get(item).cloned().ok_or_else(|| {
            Unresolved(format!(
                "waits for item \"{item}\" of variable \"{path}\" in namespace \"{namespace}\", which is secret \"{name}\""
            ))
        })
    }
}
