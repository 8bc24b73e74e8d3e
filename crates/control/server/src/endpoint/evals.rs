//! Deletion of evaluations by operators, mainly when far too many are pending.

use super::fault::EvalFault;
use crate::core::Core;
use crate::error::ServerError;
use caravan_types::EvalId;
use caravan_types::command::Change;

/// Maximum number of ids in one command, to bound its size.
const BATCH: usize = 2_048;

/// Refuses unless scheduling is paused: only then may evaluations be deleted.
fn check_paused(core: &Core) -> Result<(), EvalFault> {
    if core.snapshot().scheduler_config().pause_eval_broker {
        return Ok(());
    }
    Err(EvalFault::NotPaused)
}

/// Deletes evaluations by id, all of them or none.
async fn delete_named(core: &Core, ids: Vec<EvalId>) -> Result<(usize, u64), ServerError> {
    check_paused(core)?;
    let root = core.snapshot();
    for id in &ids {
        let eval = root.eval(id).ok_or(EvalFault::NothingToDelete)?;
        if !root.is_needless(eval) {
            return Err(EvalFault::Needed(id.clone()).into());
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

/// The requests about evaluations.
#[derive(Clone, Debug)]
pub struct Evals(pub(crate) Core);

impl Evals {
    /// Explains why the allocations of an evaluation are not placed now, and which changes would permit their
    /// placement.
    ///
    /// # Errors
    /// If the evaluation does not exist.
    pub fn explain(self, id: &EvalId) -> Result<Vec<String>, ServerError> {
        Ok(super::explain::evaluation(&self.0, id)?)
    }

    /// Deletes evaluations by id. Returns their number, and the index.
    ///
    /// # Errors
    /// If scheduling is not paused, if an evaluation does not exist, or if an object depends on it.
    pub async fn delete(self, ids: Vec<EvalId>) -> Result<(usize, u64), ServerError> {
        delete_named(&self.0, ids).await
    }

    /// Deletes the selected evaluations on which no object depends. `choose` is called only while scheduling is
    /// paused.
    ///
    /// # Errors
    /// If scheduling is not paused, or if `choose` fails.
    pub async fn delete_needless<E: From<ServerError>>(
        self,
        choose: impl FnOnce(&caravan_state::Root) -> Result<Vec<EvalId>, E>,
    ) -> Result<(usize, u64), E> {
        check_paused(&self.0).map_err(ServerError::from)?;
        let root = self.0.snapshot();
        let mut ids = choose(&root)?;
        ids.retain(|id| root.eval(id).is_some_and(|eval| root.is_needless(eval)));
        Ok(delete(&self.0, ids).await?)
    }
}
