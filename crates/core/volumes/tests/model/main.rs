//! The model of volumes: two nodes, two allocations, one or two volumes, and all faults between them, explored with
//! stateright.
//!
//! The servers' decisions are the real ones (`reconcile::next`, `claim::step`, `claim::reserve`, `modes::admit`,
//! `lease`); the rules are stated in `caravan_volumes::invariants`. The client's side applies the rules of its ledger
//! without I/O. Each use of a volume is explored with a few faults at a time. `CARAVAN_MODEL_FAULTS=2` allows each
//! fault twice, which takes long.

mod client;
mod model;
mod runs;
mod servers;
mod state;
mod terms;
