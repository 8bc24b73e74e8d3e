//! The plain task from which tests of drivers derive their tasks.

use crate::task::{LogConfig, Processors, Resources, TaskConfig, TaskDirs, TaskId};
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// Returns a task of an allocation. The allocation's directory is `<base>/<alloc>`, the driver's `<base>/state/<name>`.
pub fn sample(base: &Path, alloc: &str, name: &str, driver_config: Value) -> TaskConfig {
    let shared_alloc_dir = base.join(alloc).join("alloc");
    TaskConfig {
        id: TaskId(format!("{alloc}/{name}/1")),
        alloc_id: alloc.into(),
        task_name: name.into(),
        job_id: "job".into(),
        job_name: "the job".into(),
        parent_job_id: String::new(),
        group_name: "group".into(),
        namespace: "default".into(),
        node_id: "node-1".into(),
        node_name: "node".into(),
        driver_config,
        env: [("PATH".into(), "/usr/bin:/bin".into()), ("GREETING".into(), "hello".into())].into(),
        resources: Resources { cpu_mhz: 100, memory_mb: 64, memory_max_mb: None, node_cpu_mhz: 0 },
        processors: Processors::Any,
        ports: Vec::new(),
        mounts: Vec::new(),
        devices: Vec::new(),
        device_env: Default::default(),
        user: None,
        logs: Some(LogConfig {
            dir: shared_alloc_dir.join("logs"),
            stdout: format!("{name}.stdout"),
            stderr: format!("{name}.stderr"),
            max_files: 3,
            max_file_size_mb: 1,
        }),
        dirs: TaskDirs {
            state_dir: base.join("state").join(name),
            task_dir: base.join(alloc).join(name),
            shared_alloc_dir,
        },
        network: None,
        dns: None,
        cgroup_parent: PathBuf::from("caravan-test"),
        lease: None,
        privileged_mounts: false,
    }
}

/// Returns the task of [`sample`] with the directories that the client creates before a start.
///
/// # Errors
/// If a directory cannot be created.
pub fn sample_with_dirs(base: &Path, alloc: &str, name: &str, config: Value) -> io::Result<TaskConfig> {
    let task = sample(base, alloc, name, config);
    let TaskDirs { shared_alloc_dir, task_dir, .. } = &task.dirs;
    for dir in [shared_alloc_dir.join("logs"), task_dir.join("local"), task_dir.join("secrets")] {
        std::fs::create_dir_all(dir)?;
    }
    Ok(task)
}
