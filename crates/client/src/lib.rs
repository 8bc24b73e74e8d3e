//! Fingerprints, driver manager, dynamic plugin registry, CSI manager, allocation and task runners, client state.
