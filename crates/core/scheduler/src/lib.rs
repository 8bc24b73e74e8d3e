//! The scheduler: a pure function from a snapshot of the cluster and an evaluation to a plan.
//!
//! [`schedule`] compares the desired state of a job with its existing allocations (`reconcile`, `system`) and finds
//! nodes for the missing ones. `feasible` checks the properties of a node that do not depend on other allocations.
//! `csi`, `host`, `ports`, `cores` and `device` check the others. `rank` and `spread` score the nodes, `prepared`
//! keeps the scores current and `place` chooses a node. [`explain`] states why an allocation could not be placed. The
//! scheduler reads through [`View`] only; time and randomness are parameters.

mod caps;
mod context;
mod cores;
mod csi;
mod decision;
mod device;
mod diff;
mod disconnect;
mod exclusive;
mod explain;
mod feasible;
mod field;
mod fits;
mod host;
mod metric;
mod notes;
mod overlay;
mod place;
mod ports;
mod preempt;
mod prepared;
mod rank;
mod reconcile;
mod resources;
mod rng;
mod rules;
mod schedule;
mod spread;
mod system;
mod timed;
mod versions;
mod view;
mod whatif;

pub use diff::{Update, update};
pub use disconnect::{Clock, Passed, absent_since, kept_for};
pub use explain::{describe, explain, explain_decision};
pub use feasible::meets;
pub use field::Memory;
pub use fits::Room;
pub use overlay::Overlay;
pub use ports::parse_ranges;
pub use reconcile::reschedule::can_reschedule;
pub use rules::{Algorithm, Preemption, Rules};
pub use schedule::{Params, schedule, schedule_with};
pub use view::View;
pub use whatif::{Bounds, Consequences, Happening, Imagined, Move, what_if};
