//! Failures of the keyring.

use crate::error::Kind;
use crate::runtime::JoinError;
use caravan_types::sealed::Unopened;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The failure of an operation with root keys. No text contains a key or a secret.
#[derive(Clone, Debug, thiserror::Error)]
pub enum KeyringFault {
    #[error("the keyring cannot be used: {0}")]
    Random(#[source] Arc<rand::rand_core::OsError>),
    #[error("the keyring cannot be used: {0}")]
    Files(#[source] Arc<caravan_sys::Error>),
    #[error("the keyring cannot be used: {}: {error}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: Arc<io::Error>,
    },
    #[error("the keyring cannot be used: {} is damaged", .0.display())]
    Damaged(PathBuf),
    #[error(
        "the key of the cluster (cluster.key in the keyring) is missing; copy the file from another server of the cluster"
    )]
    NoClusterKey,
    #[error(
        "the keyring has the key of another cluster; move the server's data directory away to join this cluster"
    )]
    OtherClusterKey,
    #[error("root key {key} is sealed with the key of another cluster")]
    ForeignMaterial { key: String },
    #[error("the keyring cannot be used: root keys cannot be encoded: {0}")]
    Material(#[source] Arc<rmp_serde::encode::Error>),
    #[error("the keyring cannot be used: secrets cannot be encoded: {0}")]
    Encode(#[source] Arc<serde_json::Error>),
    #[error("the keyring cannot be used: {0}")]
    Sign(#[source] Arc<jsonwebtoken::errors::Error>),
    #[error("the keyring cannot be used: {0}")]
    KeyPair(#[source] Arc<rsa::Error>),
    #[error("the keyring cannot be used: {0}")]
    EncodeKeyPair(#[source] Arc<rsa::pkcs1::Error>),
    #[error("the keyring cannot be used: {0}")]
    Task(#[source] Arc<JoinError>),
    #[error("the keyring cannot be used: it has no key")]
    NoKey,
    #[error("the keyring cannot be used: the secrets of {owner} cannot be sealed")]
    Seal { owner: String },
    #[error(transparent)]
    Unopened(#[from] Unopened),
}

impl KeyringFault {
    pub(crate) fn kind(&self) -> Kind {
        Kind::Internal
    }

    pub(super) fn material(error: rmp_serde::encode::Error) -> Self {
        Self::Material(Arc::new(error))
    }

    /// Returns the fault of a file or directory.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::File { path, error: Arc::new(error) }
    }

    pub(crate) fn files(error: caravan_sys::Error) -> Self {
        Self::Files(Arc::new(error))
    }
}
