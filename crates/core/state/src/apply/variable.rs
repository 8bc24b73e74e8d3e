//! Commands about variables.

use super::Done;
use crate::tx::Tx;
use caravan_types::command::Refusal;
use caravan_types::sealed::SealedSecrets;
use caravan_types::variable::{LockUse, Variable, VariableKey};

impl Tx {
    /// Refuses secrets that are sealed with a removed root key. The writer sealed them before the removal, and seals
    /// them again. Stored secrets are accepted. Without any root key, nothing is refused.
    pub(super) fn can_be_opened(&self, sealed: &SealedSecrets, stored: Option<&SealedSecrets>) -> Done {
        let is_known = sealed.is_empty()
            || stored == Some(sealed)
            || self.root.root_key(&sealed.key).is_some()
            || self.root.root_keys().next().is_none();
        match is_known {
            true => Ok(()),
            false => Err(Refusal::UnknownKey { key: sealed.key.clone() }),
        }
    }

    fn check_variable(&self, key: &VariableKey, expected: Option<u64>) -> Done {
        let actual = self.root.variable(key).map_or(0, |row| row.modify_index);
        match expected {
            Some(expected) if expected != actual => {
                Err(Refusal::VariableConflict { key: key.to_string(), expected, actual })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn variable_write(&mut self, row: &Variable, expected: Option<u64>, lock: &LockUse) -> Done {
        let locked = || Refusal::VariableLocked { key: row.key.to_string() };
        let old = self.root.variable(&row.key).cloned();
        let holder = old.as_ref().and_then(|old| old.lock.as_ref());
        self.can_be_opened(&row.items, old.as_ref().map(|old| &old.items))?;
        let mut row = row.clone();
        match (lock, holder) {
            (LockUse::None, None) => row.lock = None,
            (LockUse::None, Some(_)) => return Err(locked()),
            (LockUse::Acquire, Some(held)) if row.lock.as_ref().is_none_or(|mine| mine.id != held.id) => {
                return Err(locked());
            }
            (LockUse::Acquire, _) => {
                // A lock request without items keeps the existing items.
                if let Some(old) = old.as_ref().filter(|_| row.items.is_empty()) {
                    row.items = old.items.clone();
                }
            }
            (LockUse::Held(_) | LockUse::Release(_), None) => {
                return Err(Refusal::Invalid("variable doesn't hold a lock".to_owned()));
            }
            (LockUse::Held(id) | LockUse::Release(id), Some(held)) if *id != held.id => return Err(locked()),
            // Commands of earlier versions have no lock.
            (LockUse::Held(_), Some(held)) => drop(row.lock.get_or_insert_with(|| held.clone())),
            (LockUse::Release(_), Some(_)) => {
                row.lock = None;
                if let Some(old) = old.as_ref().filter(|_| row.items.is_empty()) {
                    row.items = old.items.clone();
                }
            }
        }
        self.check_variable(&row.key, expected)?;
        self.put_variable(row);
        Ok(())
    }

    pub(super) fn variable_delete(&mut self, key: &VariableKey, expected: Option<u64>) -> Done {
        if let Some(row) = self.root.variable(key) {
            if row.lock.is_some() {
                return Err(Refusal::VariableLocked { key: key.to_string() });
            }
            self.check_variable(key, expected)?;
            self.remove_variable(key);
        }
        Ok(())
    }
}
