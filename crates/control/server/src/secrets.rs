//! Secrets of volumes for one call of their plugin: opened, with references resolved.

use crate::core::Core;
use crate::keyring::KeyringFault;
use caravan_state::Root;
use caravan_types::sealed::{SealedSecrets, Unopened};
use caravan_types::ser::Secrets;
use caravan_types::variable::{VariableKey, parse_reference};
use caravan_types::volume::{Claim, Volume};
use caravan_types::{Namespace, VolumeKey};
use caravan_volumes::wait::MissingSecret;
use std::collections::BTreeMap;

/// Returns the owner to which the sealed secrets of a volume are bound.
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
    /// Seals a volume's secrets. Returns `kept` unchanged if it contains the same secrets.
    pub(crate) fn seal_volume(
        &self,
        key: &VolumeKey,
        secrets: &Secrets,
        kept: Option<&SealedSecrets>,
    ) -> Result<SealedSecrets, KeyringFault> {
        let owner = owner(key);
        if let Some(kept) = kept
            && self.keyring.open(&owner, kept).is_ok_and(|open| open == *secrets)
        {
            return Ok(kept.clone());
        }
        self.keyring.seal(&owner, secrets)
    }

    /// Returns the literal secrets of a volume, without references.
    pub(crate) fn inline_secrets(&self, volume: &Volume) -> Result<Secrets, Unopened> {
        self.keyring.open(&owner(&volume.key()), &volume.secrets)
    }

    /// Returns the secrets of a volume for one call.
    pub(crate) fn secrets_of(&self, root: &Root, volume: &Volume) -> Result<Secrets, MissingSecret> {
        self.resolved(root, &volume.key(), &volume.secrets, &volume.secrets_from)
    }

    /// Returns the secrets for a call about a claim, whose volume's row may no longer exist.
    pub(crate) fn secrets_for(
        &self,
        root: &Root,
        claim: &Claim,
        volume: Option<&Volume>,
    ) -> Result<Secrets, MissingSecret> {
        match volume.filter(|_| !claim.forsaken) {
            Some(volume) => self.secrets_of(root, volume),
            None => self.resolved(root, &claim.id.volume, &claim.kept_secrets, &claim.kept_secrets_from),
        }
    }

    /// Resolves references, and adds the literal values.
    pub(crate) fn resolved(
        &self,
        root: &Root,
        key: &VolumeKey,
        sealed: &SealedSecrets,
        references: &BTreeMap<String, String>,
    ) -> Result<Secrets, MissingSecret> {
        let inline = self.keyring.open(&owner(key), sealed)?;
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
    ) -> Result<String, MissingSecret> {
        let secret = || name.to_owned();
        let (path, item) = parse_reference(reference)
            .map_err(|cause| MissingSecret::BadReference { secret: secret(), cause })?;
        let row = root.variable(&VariableKey::new(namespace.clone(), path)).ok_or_else(|| {
            MissingSecret::NoVariable {
                path: path.to_owned(),
                namespace: namespace.clone(),
                secret: secret(),
            }
        })?;
        let items = self.open_variable(row)?.items;
        items.expose().get(item).cloned().ok_or_else(|| MissingSecret::NoItem {
            item: item.to_owned(),
            path: path.to_owned(),
            namespace: namespace.clone(),
            secret: secret(),
        })
    }
}
