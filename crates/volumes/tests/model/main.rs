//! The model of volumes: two nodes, two allocations, one or two volumes, and everything that can go wrong
//! between them, explored with stateright.
//!
//! The servers' decisions are the real ones (`reconcile::next`, `claim::step`, `claim::reserve`,
//! `modes::admit`, `lease`); what must hold is stated in `caravan_volumes::invariants`. The client's side is
//! the rules of its ledger without its I/O. Each way of using a volume is explored with a few faults at a
//! time; `CARAVAN_MODEL_FAULTS=2` allows each of them twice, which takes long.

mod client;
mod model;
mod runs;
mod servers;
mod state;
