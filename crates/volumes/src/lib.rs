//! The heart: modes, claim state machine, reconcile, lease, topology, capabilities, paths.
