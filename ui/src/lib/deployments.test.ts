import { expect, it } from 'vitest';
import type { DeploymentState } from '../api/generated';
import type { Deployment } from '../api/types';
import { canaries, deploymentVerbs, isActive } from './deployments';

const row = (Status: string, TaskGroups: object = {}) => ({ Status, TaskGroups }) as Deployment;
const canary = (Promoted: boolean) => ({ g: { DesiredCanaries: 1, Promoted } });

it('offers what fits the state of a deployment', () => {
  expect(deploymentVerbs(row('running', canary(false)))).toEqual(['promote', 'pause', 'fail']);
  expect(deploymentVerbs(row('running', canary(true)))).toEqual(['pause', 'fail']);
  expect(deploymentVerbs(row('paused', canary(false)))).toEqual(['promote', 'resume', 'fail']);
  expect(deploymentVerbs(row('blocked'))).toEqual(['unblock', 'fail']);
  expect(deploymentVerbs(row('successful', canary(false)))).toEqual([]);
});

it('tells active deployments from ended ones', () => {
  expect(['running', 'paused', 'blocked', 'successful', 'failed', 'cancelled'].map((status) => isActive(row(status)))).toEqual([true, true, true, false, false, false]);
});

it('counts the canaries of a group', () => {
  const group = (more: object) => ({ DesiredCanaries: 2, PlacedCanaries: null, Promoted: false, ...more }) as DeploymentState;
  expect(canaries(group({ DesiredCanaries: 0 }))).toBe('none');
  expect(canaries(group({}))).toBe('0 of 2 placed, not promoted');
  expect(canaries(group({ PlacedCanaries: ['a', 'b'], Promoted: true }))).toBe('2 of 2 placed, promoted');
});
