//! The users' requests about variables and their locks.

use crate::error::ServerError;
use crate::server::Parts;
use crate::variables::VariableWritten;
use caravan_types::ser::Secrets;
use caravan_types::variable::{Variable, VariableDecrypted, VariableKey, VariableLock, VariableMetadata};
use std::sync::Arc;

/// The requests about variables and their locks that a server answers.
#[derive(Clone, Debug)]
pub struct VariableRequests(pub(crate) Arc<Parts>);

impl VariableRequests {
    /// Returns a variable with its opened items.
    ///
    /// # Errors
    /// If the items cannot be opened.
    pub fn open(self, row: &Variable) -> Result<VariableDecrypted, ServerError> {
        Ok(self.0.core.open_variable(row)?)
    }

    /// Writes a variable. With `check_index`, writes only if the variable was last changed at that index (0: only if
    /// the variable is new). `lock` is the lock that the writer holds, which the write renews.
    ///
    /// # Errors
    /// If path, items or lock are invalid, or the change cannot be made durable.
    pub async fn write(
        self,
        key: VariableKey,
        items: &Secrets,
        check_index: Option<u64>,
        lock: Option<VariableLock>,
    ) -> Result<VariableWritten, ServerError> {
        let is_holder = lock.is_some();
        let done = self.0.core.write_variable(key.clone(), items, check_index, lock).await?;
        if is_holder {
            self.renew(&key, &done);
        }
        Ok(done)
    }

    /// Records a renewal of the lock that a write of its holder returned.
    fn renew(&self, key: &VariableKey, done: &VariableWritten) {
        if let VariableWritten::Done { variable: Some(variable), .. } = done
            && let Some(lock) = &variable.metadata.lock
        {
            self.0.locks.renew(key, lock);
        }
    }

    /// Acquires the lock of a variable, and creates the variable if it does not exist. Without new items, the
    /// existing items stay.
    ///
    /// # Errors
    /// If path, items or lock are invalid, or the change cannot be made durable.
    pub async fn acquire_lock(
        self,
        key: VariableKey,
        items: &Secrets,
        lock: VariableLock,
    ) -> Result<VariableWritten, ServerError> {
        let done = self.0.core.acquire_lock(key.clone(), items, lock).await?;
        self.renew(&key, &done);
        Ok(done)
    }

    /// Releases the lock of a variable.
    ///
    /// # Errors
    /// If the lock is not held, or the change cannot be made durable.
    pub async fn release_lock(self, key: VariableKey, id: String) -> Result<VariableWritten, ServerError> {
        self.0.core.release_lock(key, id).await
    }

    /// Renews the lock of a variable for its holder. Returns `None` if another holder has the lock.
    ///
    /// # Errors
    /// If the variable does not exist, its lock is not held, or this server does not lead.
    pub async fn renew_lock(
        self,
        key: &VariableKey,
        id: &str,
    ) -> Result<Option<VariableMetadata>, ServerError> {
        self.0.locks.extend(key, id).await
    }

    /// Removes a variable; succeeds if the variable does not exist.
    ///
    /// # Errors
    /// If the change cannot be made durable.
    pub async fn delete(
        self,
        key: VariableKey,
        check_index: Option<u64>,
    ) -> Result<VariableWritten, ServerError> {
        self.0.core.delete_variable(key, check_index).await
    }
}
