//! The scheduler: a pure function from a picture of the cluster and an evaluation to a plan.
//!
//! [`schedule`] compares what a job wants with what exists (`reconcile`, `system`), finds nodes for
//! what is missing (`feasible` for what never changes, `csi`, `host`, `ports` and `place` for what does,
//! `rank` for the choice), and says of everything that it could not place what was in the way
//! ([`explain`]). It reads through [`View`] only; time and randomness are parameters.

mod context;
mod csi;
mod diff;
mod disconnect;
mod explain;
mod feasible;
mod fits;
mod host;
mod place;
mod ports;
mod rank;
mod reconcile;
mod rng;
mod schedule;
mod system;
mod view;

pub use diff::{Update, update};
pub use disconnect::kept_until;
pub use explain::explain;
pub use feasible::meets;
pub use fits::fits;
pub use ports::parse_ranges;
pub use reconcile::reschedule::can_reschedule;
pub use schedule::{Params, schedule};
pub use view::View;
