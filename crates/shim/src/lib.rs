//! One small process per task: starts it, owns its pipes, rotates its logs, holds its cgroup, is its watchdog, writes the exit record.
