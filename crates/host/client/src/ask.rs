//! More operations of the client handle: exec sessions, checks, node metadata, garbage collection.

use crate::ClientError;
use crate::client::Handle;
use crate::metadata::Metadata;
use crate::services::ChecksSummary;
use caravan_drivers::{ExecRequest, ExecStream, TaskId};
use caravan_types::AllocId;
use caravan_types::service::CheckResult;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio::sync::watch;

impl Handle {
    /// Runs a program in a task with a stream in both directions.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, the task does not run, or the driver refuses.
    pub async fn exec_stream(
        &self,
        alloc: &AllocId,
        task: &str,
        request: ExecRequest,
    ) -> Result<ExecStream, ClientError> {
        let (driver, id) = self.allocs.get(alloc)?.running(task)?;
        Ok(driver.exec_stream(&TaskId(id), request).await?)
    }

    /// Returns the command of an action from the job file, with references replaced.
    ///
    /// # Errors
    /// If the allocation or the task is unknown, or the task has no such action.
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

    /// Returns the latest results of an allocation's checks, by check id.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn checks(&self, alloc: &AllocId) -> Result<BTreeMap<String, CheckResult>, ClientError> {
        Ok(self.allocs.get(alloc)?.services().book.all())
    }

    /// Returns the current and later counts of the checks on which an allocation's health depends. The number counts
    /// these checks once all tasks run.
    ///
    /// # Errors
    /// If the allocation is unknown.
    pub fn checks_summary(
        &self,
        alloc: &AllocId,
    ) -> Result<(watch::Receiver<ChecksSummary>, usize), ClientError> {
        let runner = self.allocs.get(alloc)?;
        Ok((runner.checks_summary(), runner.expected_checks()))
    }

    /// Removes the files of a terminal allocation. Returns whether the allocation was terminal.
    ///
    /// # Errors
    /// If the allocation is unknown or cannot be removed.
    pub async fn collect(&self, alloc: &AllocId) -> Result<bool, ClientError> {
        self.allocs.collect(alloc).await
    }

    /// Removes the files of all terminal allocations.
    ///
    /// # Errors
    /// If an allocation cannot be removed.
    pub async fn collect_all(&self) -> Result<(), ClientError> {
        for id in self.allocs.ids() {
            match self.allocs.collect(&id).await {
                Ok(_) | Err(ClientError::UnknownAlloc(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the parent of all allocation directories.
    pub fn allocs_dir(&self) -> PathBuf {
        self.config.alloc_dir.clone()
    }

    /// Returns the node metadata.
    pub fn metadata(&self) -> Metadata {
        self.meta.get()
    }

    /// Changes node metadata; `None` removes a key. The change is durable when this returns.
    ///
    /// # Errors
    /// If a key is invalid, or the change cannot be stored.
    pub async fn change_metadata(
        &self,
        changes: BTreeMap<String, Option<String>>,
    ) -> Result<Metadata, ClientError> {
        self.meta.change(changes).await
    }
}
