//! What whole-system tests share: agents as real processes, waiting with deadlines, mount and claim checks.
