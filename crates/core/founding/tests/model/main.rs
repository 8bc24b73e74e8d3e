//! The model of founding: four servers that learn of each other in any order, with lost, late and repeated messages and
//! crashes between any two steps, explored with stateright.
//!
//! The servers' decisions are the real ones (`next`, `reply`, `stands`, `accepts_log`, `accepts_admission`).

mod runs;
mod servers;
