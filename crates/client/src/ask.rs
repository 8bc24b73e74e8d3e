//! More that others ask of a client: programs in tasks, checks, free pairs, space.

use crate::ClientError;
use crate::client::Handle;
use crate::metadata::{Metadata, changed, in_force};
use crate::services::ChecksSummary;
use caravan_drivers::{ExecRequest, ExecStream, TaskId};
use caravan_types::AllocId;
use caravan_types::service::CheckResult;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use tokio::sync::watch;

impl Handle {
    /// Runs a program in a task and talks to it while it runs.
    ///
    /// # Errors
    /// When the allocation or the task is not here, the task does not run, or the driver refuses.
    pub async fn exec_stream(
        &self,
        alloc: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<ExecStream, ClientError> {
        let (driver, id) = self.allocs.get(alloc)?.running(task)?;
        Ok(driver.exec_stream(&TaskId(id), request).await?)
    }

    /// The command of an action that the job file gives a task, references replaced.
    ///
    /// # Errors
    /// When the allocation or the task is not here, or the task has no such action.
    pub fn action(&self, alloc: &AllocId, task: &str, name: &str) -> Result<Vec<String>, ClientError> {
        let runner = self.allocs.get(alloc)?;
        let row = runner.alloc();
        let spec = row.group().and_then(|group| group.task(task));
        let spec = spec.ok_or_else(|| ClientError::UnknownTask(task.to_owned()))?;
        let found = spec.actions.iter().find(|action| action.name == name);
        let action = found
            .ok_or_else(|| ClientError::UnknownAction { action: name.to_owned(), task: task.to_owned() })?;
        let args = action.args.iter().flatten();
        let command: Vec<String> = std::iter::once(&action.command).chain(args).cloned().collect();
        Ok(runner.in_task_words(task, &command))
    }

    /// What the checks of an allocation's services said last, by id.
    ///
    /// # Errors
    /// When it is not here.
    pub fn checks(&self, alloc: &AllocId) -> Result<BTreeMap<String, CheckResult>, ClientError> {
        Ok(self.allocs.get(alloc)?.services().book.all())
    }

    /// How the checks stand that the health of an allocation depends on, now and later, and how many there will be
    /// once all of it runs.
    ///
    /// # Errors
    /// When it is not here.
    pub fn checks_summary(
        &self,
        alloc: &AllocId,
    ) -> Result<(watch::Receiver<ChecksSummary>, usize), ClientError> {
        let runner = self.allocs.get(alloc)?;
        Ok((runner.checks_summary(), runner.expected_checks()))
    }

    /// Removes a finished allocation's files. Answers whether it was finished.
    ///
    /// # Errors
    /// When it is not here or cannot be removed.
    pub async fn collect(&self, alloc: &AllocId) -> Result<bool, ClientError> {
        self.allocs.collect(alloc).await
    }

    /// The same for all that are finished.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub async fn collect_all(&self) -> Result<(), ClientError> {
        for id in self.allocs.ids() {
            match self.allocs.collect(&id).await {
                Ok(_) | Err(ClientError::UnknownAlloc(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Where the directories of allocations lie.
    pub fn allocs_dir(&self) -> PathBuf {
        self.context.config.alloc_dir.clone()
    }

    /// The node's free pairs.
    pub fn metadata(&self) -> Metadata {
        let dynamic = self.context.meta.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fixed = self.context.config.meta.clone();
        Metadata { meta: in_force(&fixed, &dynamic), dynamic, fixed }
    }

    /// Changes the node's free pairs; none takes one away. Durable when it returns.
    ///
    /// # Errors
    /// When a key is none, or the change cannot be stored.
    pub async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError> {
        let fixed = &self.context.config.meta;
        let written = {
            let mut dynamic = self.context.meta.lock().unwrap_or_else(PoisonError::into_inner);
            let next = changed(fixed, dynamic.clone(), changes).map_err(ClientError::Metadata)?;
            *dynamic = next;
            self.context.node.put_meta(in_force(fixed, &dynamic));
            self.context.store.put_node_meta(&dynamic)
        };
        written.done().await?;
        Ok(self.metadata())
    }
}
