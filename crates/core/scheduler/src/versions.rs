//! The earlier versions of a job that a plan still needs.

use crate::reconcile::Place;
use caravan_types::job::{Job, TaskGroup};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The earlier versions of the job that placements run, by version number.
pub(crate) struct Versions(BTreeMap<u64, Arc<Job>>);

impl Versions {
    pub fn new(job: &Job, places: &[Place]) -> Self {
        let earlier = places.iter().filter_map(|place| place.version.as_ref());
        let earlier =
            earlier.filter(|old| old.version != job.version || old.create_index != job.create_index);
        Self(earlier.map(|old| (old.version, Arc::clone(old))).collect())
    }

    /// Returns the version that a placement runs if it is not the newest, and the group in that version.
    pub fn find<'a>(&'a self, place: &Place, group: &str) -> Option<(&'a Job, &'a TaskGroup)> {
        let job = self.0.get(&place.version.as_ref()?.version)?;
        Some((job, job.group(group)?))
    }
}
