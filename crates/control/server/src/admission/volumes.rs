//! The restrictions that existing volumes impose on a job.

use caravan_admission::{Problem, ProblemCode, Problems};
use caravan_api::JobPath;
use caravan_state::Root;
use caravan_types::VolumeKey;
use caravan_types::job::Job;
use caravan_types::volume::ClaimMode;
use caravan_volumes::modes;

/// Returns the permanent conflicts with the registered volumes: only another registration of a volume or another job
/// resolves them. A job waits for a volume that does not exist or is in use.
pub(crate) fn against(root: &Root, job: &Job) -> Problems {
    let mut errors = Problems::default();
    for (at, group) in job.task_groups.iter().enumerate().filter(|(_, group)| group.count > 0) {
        for (alias, request) in group.csi_volumes() {
            let mode = if request.read_only { ClaimMode::Read } else { ClaimMode::Write };
            let names = if request.per_alloc { group.count } else { 1 };
            let refused = (0..names).find_map(|index| {
                let source = request.source_for(&format!("[{index}]"));
                let volume = root.volume(&VolumeKey::new(job.namespace.clone(), source))?;
                let usable = volume.phase.is_usable();
                usable.then(|| {
                    modes::capable(volume, mode, request.access_mode, request.attachment_mode).err()
                })?
            });
            if let Some(error) = refused {
                let lead = format!(
                    "Task group {} validation failed: Task group volume validation for {alias} failed: ",
                    group.name
                );
                let text = format!(
                    "{error}: ask for a mode that it has, or register the volume again with this one"
                );
                let path = JobPath::group(at).field("Volumes").key(alias).field("AccessMode");
                errors.push_after(lead, Problem::new(ProblemCode::VolumeLacksMode, path, text));
            }
        }
    }
    errors
}
