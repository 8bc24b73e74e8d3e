//! The scheduler: a pure function from a picture of the cluster and an evaluation to a plan.
//!
//! [`schedule`] compares what a job wants with what exists (`reconcile`, `system`), finds nodes for
//! what is missing (`feasible` for what never changes, `csi`, `host`, `ports`, `cores` and `device` for what
//! does, `rank` and `spread` for the choice, which `prepared` keeps up to date and `place` makes), and says of everything that it could not place what was in the way
//! ([`explain`]). It reads through [`View`] only; time and randomness are parameters.

mod caps;
mod context;
mod cores;
mod csi;
mod device;
mod diff;
mod disconnect;
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
