//! Commands about variables.

use super::Done;
use crate::tx::Tx;
use caravan_types::command::Refusal;
use caravan_types::variable::{Variable, VariableKey};

impl Tx {
    fn check_variable(&self, key: &VariableKey, expected: Option<u64>) -> Done {
        let actual = self.root.variable(key).map_or(0, |row| row.modify_index);
        match expected {
            Some(expected) if expected != actual => {
                Err(Refusal::VariableConflict { key: key.to_string(), expected, actual })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn variable_write(&mut self, row: &Variable, expected: Option<u64>) -> Done {
        self.check_variable(&row.key, expected)?;
        self.put_variable(row.clone());
        Ok(())
    }

    pub(super) fn variable_delete(&mut self, key: &VariableKey, expected: Option<u64>) -> Done {
        if self.root.variable(key).is_some() {
            self.check_variable(key, expected)?;
            self.remove_variable(key);
        }
        Ok(())
    }
}
