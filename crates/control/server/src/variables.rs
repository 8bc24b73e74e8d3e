//! Variables: sealed when written, opened for authorized readers.

use crate::admission::joined;
use crate::core::Core;
use crate::error::{Kind, ServerError};
use caravan_types::command::{Change, Refusal};
use caravan_types::sealed::{SealedSecrets, Unopened};
use caravan_types::ser::Secrets;
use caravan_types::variable::{
    LockUse, MAX_ITEMS_BYTES, Variable, VariableDecrypted, VariableKey, VariableLock, check_path,
};

/// The result of writing a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableWritten {
    /// The write succeeded. `variable` is `None` if it was removed.
    Done {
        /// The variable after the write.
        variable: Option<VariableDecrypted>,
        /// The index of the change.
        index: u64,
    },
    /// Another write came first.
    Conflict {
        /// The current variable; without items and indexes if it does not exist.
        variable: VariableDecrypted,
        /// The index of the state.
        index: u64,
    },
    /// Another caller holds the variable's lock.
    Locked,
}

/// The number of attempts to seal the secrets of one command while root keys are being deleted.
pub(crate) const SEAL_TRIES: usize = 3;

pub(crate) fn owner(key: &VariableKey) -> String {
    format!("variable {key}")
}

/// The failure of a request about variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableFault {
    #[error("can not target wildcard (\"*\")namespace")]
    WildcardNamespace,
    /// The sentence of the path's check.
    #[error("{reason}")]
    Path { reason: String },
    #[error("variable missing required Items object")]
    NoItems,
    #[error("an item of a variable needs a name")]
    NoItemName,
    #[error("variables are limited to 64KiB in total size")]
    Large,
    #[error("{}", joined(.0))]
    Lock(Vec<String>),
    #[error("variable doesn't exist")]
    NothingToRenew,
    #[error("variable doesn't hold a lock")]
    NotLocked,
}

impl VariableFault {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::NothingToRenew => Kind::NotFound,
            Self::NotLocked => Kind::Refused,
            Self::WildcardNamespace
            | Self::Path { .. }
            | Self::NoItems
            | Self::NoItemName
            | Self::Large
            | Self::Lock(_) => Kind::BadRequest,
        }
    }
}

/// Checks the path of a variable; it must be within one namespace.
fn check_key(key: &VariableKey) -> Result<(), VariableFault> {
    if key.namespace.as_str() == "*" {
        return Err(VariableFault::WildcardNamespace);
    }
    check_path(key.path.as_str()).map_err(|reason| VariableFault::Path { reason })
}

impl Core {
    /// Returns a variable with its opened items.
    pub(crate) fn open_variable(&self, row: &Variable) -> Result<VariableDecrypted, Unopened> {
        let items = self.keyring.open(&owner(&row.key), &row.items)?;
        Ok(VariableDecrypted { metadata: row.metadata(), items })
    }

    /// Writes a variable. With `check_index`, writes it only if the variable was last changed at that index (0: only
    /// if it is new). `lock` is the lock that the writer holds; its times are written, or their defaults.
    pub(crate) async fn write_variable(
        &self,
        key: VariableKey,
        items: &Secrets,
        check_index: Option<u64>,
        lock: Option<VariableLock>,
    ) -> Result<VariableWritten, ServerError> {
        check_key(&key)?;
        if items.is_empty() {
            return Err(VariableFault::NoItems.into());
        }
        let lock = lock.map(VariableLock::or_default);
        if let Some(Err(errors)) = lock.as_ref().map(VariableLock::check) {
            return Err(VariableFault::Lock(errors).into());
        }
        self.sealed_change(&key, items, |items| {
            let lock_use = lock.as_ref().map_or(LockUse::None, |lock| LockUse::Held(lock.id.clone()));
            let row = Variable { items, key: key.clone(), lock: lock.clone(), ..Variable::default() };
            Change::VariableWrite { variable: Box::new(row), check_index, lock: lock_use }
        })
        .await
    }

    /// Commits a change with sealed items. If their root key is deleted meanwhile, they are sealed again.
    async fn sealed_change(
        &self,
        key: &VariableKey,
        items: &Secrets,
        change: impl Fn(SealedSecrets) -> Change,
    ) -> Result<VariableWritten, ServerError> {
        self.keyring.wait_active().await;
        for _ in 1..SEAL_TRIES {
            match self.change_variable(key, change(self.sealed(key, items)?)).await {
                Err(error) if error.kind() == Kind::Retry => {}
                done => return done,
            }
        }
        self.change_variable(key, change(self.sealed(key, items)?)).await
    }

    fn sealed(&self, key: &VariableKey, items: &Secrets) -> Result<SealedSecrets, ServerError> {
        if items.expose().keys().any(String::is_empty) {
            return Err(VariableFault::NoItemName.into());
        }
        let size: usize = items.expose().iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > MAX_ITEMS_BYTES {
            return Err(VariableFault::Large.into());
        }
        Ok(self.keyring.seal(&owner(key), items)?)
    }

    /// Acquires the lock of a variable, and creates the variable if it does not exist. Without new items, the
    /// existing items stay.
    pub(crate) async fn acquire_lock(
        &self,
        key: VariableKey,
        items: &Secrets,
        lock: VariableLock,
    ) -> Result<VariableWritten, ServerError> {
        check_key(&key)?;
        let mut lock = lock.or_default();
        if let Err(errors) = lock.check() {
            return Err(VariableFault::Lock(errors).into());
        }
        if lock.id.is_empty() {
            lock.id = crate::core::new_id();
        }
        if items.is_empty() && self.snapshot().variable(&key).is_none() {
            return Err(VariableFault::NoItems.into());
        }
        self.sealed_change(&key, items, |items| {
            let lock = Some(lock.clone());
            let row = Variable { items, key: key.clone(), lock, ..Variable::default() };
            Change::VariableWrite { variable: Box::new(row), check_index: None, lock: LockUse::Acquire }
        })
        .await
    }

    /// Releases the lock of a variable.
    pub(crate) async fn release_lock(
        &self,
        key: VariableKey,
        id: String,
    ) -> Result<VariableWritten, ServerError> {
        let row = Variable { key: key.clone(), ..Variable::default() };
        let lock = LockUse::Release(id);
        let change = Change::VariableWrite { variable: Box::new(row), check_index: None, lock };
        self.change_variable(&key, change).await
    }

    /// Removes a variable; succeeds if the variable does not exist.
    pub(crate) async fn delete_variable(
        &self,
        key: VariableKey,
        check_index: Option<u64>,
    ) -> Result<VariableWritten, ServerError> {
        check_key(&key)?;
        self.change_variable(&key, Change::VariableDelete { key: key.clone(), check_index }).await
    }

    async fn change_variable(
        &self,
        key: &VariableKey,
        change: Change,
    ) -> Result<VariableWritten, ServerError> {
        let outcome = self.propose(change).await?;
        let root = self.snapshot();
        let variable = root.variable(key).map(|row| self.open_variable(row)).transpose()?;
        match outcome.refused {
            None => Ok(VariableWritten::Done { variable, index: outcome.index }),
            Some(Refusal::VariableConflict { .. }) => {
                let variable = variable.unwrap_or_else(|| {
                    let row = Variable { key: key.clone(), ..Variable::default() };
                    VariableDecrypted { metadata: row.metadata(), items: Secrets::default() }
                });
                Ok(VariableWritten::Conflict { variable, index: root.index() })
            }
            Some(Refusal::VariableLocked { .. }) => Ok(VariableWritten::Locked),
            Some(refusal) => Err(refusal.into()),
        }
    }
}
