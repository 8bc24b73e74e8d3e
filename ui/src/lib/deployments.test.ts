import { expect, it } from 'vitest';
import type { Deployment } from '../api/types';
import { deploymentVerbs } from './deployments';

const row = (Status: string, TaskGroups: object = {}) => ({ Status, TaskGroups }) as Deployment;
const canary = (Promoted: boolean) => ({ g: { DesiredCanaries: 1, Promoted } });

it('offers what fits the state of a deployment', () => {
  expect(deploymentVerbs(row('running', canary(false)))).toEqual(['promote', 'pause', 'fail']);
  expect(deploymentVerbs(row('running', canary(true)))).toEqual(['pause', 'fail']);
  expect(deploymentVerbs(row('paused', canary(false)))).toEqual(['promote', 'resume', 'fail']);
  expect(deploymentVerbs(row('blocked'))).toEqual(['unblock', 'fail']);
  expect(deploymentVerbs(row('successful', canary(false)))).toEqual([]);
});
