//! Evaluations that operators take away, most of all when far too many are waiting.

use crate::core::Core;
use crate::error::ServerError;
use caravan_types::EvalId;
use caravan_types::command::Change;

/// Ids in one command: it must not grow without limit.
const BATCH: usize = 2_048;

/// Whether evaluations may be taken away at the moment.
fn check_paused(core: &Core) -> Result<(), ServerError> {
    if core.snapshot().scheduler_config().pause_eval_broker {
        return Ok(());
    }
    Err(ServerError::refused("eval broker is enabled; eval broker must be paused to delete evals"))
}

/// Removes evaluations by id, all of them or none.
async fn delete_named(core: &Core, ids: Vec<EvalId>) -> Result<(usize, u64), ServerError> {
    check_paused(core)?;
    let root = core.snapshot();
    for id in &ids {
        let eval = root.eval(id).ok_or_else(|| ServerError::refused("eval not found"))?;
        if !root.is_needless(eval) {
            return Err(ServerError::refused(format!(
                "evaluation {id} cannot be deleted: its job has allocations that depend on it"
            )));
        }
    }
    delete(core, ids).await
}

async fn delete(core: &Core, ids: Vec<EvalId>) -> Result<(usize, u64), ServerError> {
    let mut index = core.snapshot().index();
    for part in ids.chunks(BATCH) {
        index = core.commit(Change::EvalsDelete { evals: part.to_vec() }).await?;
    }
    Ok((ids.len(), index))
}

impl crate::Handle {
    /// Removes evaluations by id. Answers how many, and the index.
    ///
    /// # Errors
    /// Unless scheduling is paused, and if one of them is not there or something depends on it.
    pub async fn delete_evals(&self, ids: Vec<EvalId>) -> Result<(usize, u64), ServerError> {
        delete_named(&self.core, ids).await
    }

    /// Removes those of some evaluations that nothing depends on. `choose` is asked once scheduling is known to be
    /// paused.
    ///
    /// # Errors
    /// Unless scheduling is paused, and what `choose` answers.
    pub async fn delete_needless_evals<E: From<ServerError>>(
        &self,
        choose: impl FnOnce(&caravan_state::Root) -> Result<Vec<EvalId>, E>,
    ) -> Result<(usize, u64), E> {
        check_paused(&self.core)?;
        let root = self.core.snapshot();
        let mut ids = choose(&root)?;
        ids.retain(|id| root.eval(id).is_some_and(|eval| root.is_needless(eval)));
        Ok(delete(&self.core, ids).await?)
    }
}
