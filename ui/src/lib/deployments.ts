// What can be done with a deployment.

import type { DeploymentState } from '../api/generated';
import type { Deployment } from '../api/types';

export type DeploymentVerb = 'promote' | 'pause' | 'resume' | 'unblock' | 'fail';

interface Words {
  word: string;
  /** The route below `deployment/`, and what its body has besides the id. */
  route: string;
  body: object;
  /** The capability that allows the verb; `submit-job` allows all of them. */
  right: string;
  /** What follows from the verb. */
  follows: (version: number) => string;
}

/** The verbs by the word of the command. */
export const VERBS: Record<DeploymentVerb, Words> = {
  promote: {
    word: 'Promote',
    route: 'promote',
    body: { All: true },
    right: 'promote-deployment',
    follows: (version) => `Version ${version} replaces the remaining allocations of older versions.`,
  },
  pause: {
    word: 'Pause',
    route: 'pause',
    body: { Pause: true },
    right: 'pause-deployment',
    follows: () => 'No more allocations are replaced until the deployment resumes. Those of both versions stay.',
  },
  resume: {
    word: 'Resume',
    route: 'pause',
    body: { Pause: false },
    right: 'pause-deployment',
    follows: (version) => `The remaining allocations are replaced by those of version ${version}.`,
  },
  unblock: {
    word: 'Unblock',
    route: 'unblock',
    body: {},
    right: 'unblock-deployment',
    follows: () => 'The deployment does not wait for the other regions any more.',
  },
  fail: {
    word: 'Fail',
    route: 'fail',
    body: {},
    right: 'fail-deployment',
    follows: () => 'No more allocations are replaced. With auto_revert, the last stable version returns.',
  },
};

const ACTIVE = ['running', 'paused', 'pending', 'blocked', 'unblocking', 'initializing'];

/** Returns whether a deployment has not ended. */
export function isActive(row: Deployment): boolean {
  return ACTIVE.includes(row.Status);
}

/** Returns the canaries of a group in words. */
export function canaries(group: DeploymentState): string {
  if (group.DesiredCanaries === 0) return 'none';
  const placed = `${group.PlacedCanaries?.length ?? 0} of ${group.DesiredCanaries} placed`;
  return `${placed}, ${group.Promoted ? 'promoted' : 'not promoted'}`;
}

/** Returns what can be done with a deployment in its state. */
export function deploymentVerbs(row: Deployment): DeploymentVerb[] {
  if (!isActive(row)) return [];
  const canPromote = Object.values(row.TaskGroups ?? {}).some((group) => group.DesiredCanaries > 0 && !group.Promoted);
  const out: DeploymentVerb[] = canPromote ? ['promote'] : [];
  if (row.Status === 'paused') out.push('resume');
  else if (row.Status === 'running') out.push('pause');
  else if (row.Status === 'blocked') out.push('unblock');
  return [...out, 'fail'];
}
