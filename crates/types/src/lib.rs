//! Ids, jobs, allocations, evaluations, plans, nodes, volumes, claims, plugins, the replicated commands, and their JSON as API clients know it.

pub mod api;
