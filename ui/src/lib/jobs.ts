// What can be done with a job.

import type { Job, Submission } from '../api/types';

/** Returns whether a job has ended: the user stopped it, or nothing of it is left to run. */
export function isOver(job: Job): boolean {
  return job.Stop || job.Status === 'dead';
}

/** Returns the registration that starts a job again. A job that changed since it was read is refused; the file of the version
 * stays the file of the new one. */
export function restart(job: Job, submission: Submission | undefined): object {
  return {
    Job: { ...job, Stop: false },
    EnforceIndex: true,
    JobModifyIndex: job.JobModifyIndex,
    ...(submission ? { Submission: submission } : {}),
  };
}
