import { expect, it } from 'vitest';
import { about, beginning, isBeginning, lookup, whole } from './beginning';
import { parse } from './route';

const UUID = '1a2b3c4d-0000-1111-2222-333344445555';
const read = (path: string, search = '') => beginning(parse(path), new URLSearchParams(search));

it('tells the beginning of an id from a whole one and from other words', () => {
  for (const text of ['1a2b', '1a2b3c4d', '1A2B3C4D-00', UUID.slice(0, 35)]) expect(isBeginning(text), text).toBe(true);
  for (const text of ['', '1a2', 'node-1', '1a2b3x', '-1a2b', UUID]) expect(isBeginning(text), text).toBe(false);
});

it('finds it in the addresses of objects', () => {
  expect(read('allocations/1a2b3c4d/web/logs')).toEqual({ kind: 'allocation', text: '1a2b3c4d' });
  expect(read('clients/1a2b')).toEqual({ kind: 'node', text: '1a2b' });
  expect(read('evaluations', 'currentEval=1a2b3c4d')).toEqual({ kind: 'evaluation', text: '1a2b3c4d' });
  expect(read('evaluations/1a2b3c4d')).toEqual({ kind: 'evaluation', text: '1a2b3c4d' });
  expect(read('jobs/web@team/deployments/1a2b3c4d')).toEqual({ kind: 'deployment', text: '1a2b3c4d' });
  expect(read(`deployments/${UUID}`)).toEqual({ kind: 'deployment', text: UUID });
  for (const path of [`allocations/${UUID}`, `clients/${UUID}/monitor`, 'evaluations', 'jobs/cafe@team', 'jobs/web/deployments']) expect(read(path), path).toBeUndefined();
});

it('asks for whole bytes, and checks an odd digit by a filter', () => {
  const query = (text: string) => Object.fromEntries(new URL(lookup({ kind: 'allocation', text }), 'http://agent/v1/').searchParams);
  expect(query('1A2B')).toEqual({ prefix: '1a2b', per_page: '20', namespace: '*' });
  expect(query('1a2b3')).toMatchObject({ prefix: '1a2b', filter: 'ID matches "^1a2b3"' });
  expect(query('1a2b3c4d-0')).toMatchObject({ prefix: '1a2b3c4d-', filter: 'ID matches "^1a2b3c4d-0"' });
  expect(query('1a2b3c4d-')).toEqual({ prefix: '1a2b3c4d-', per_page: '20', namespace: '*' });
  expect(lookup({ kind: 'node', text: '1a2b' })).toBe('nodes?prefix=1a2b&per_page=20');
});

it('leads to the whole id, and keeps the rest of the address', () => {
  expect(whole({ kind: 'allocation', text: '1a2b' }, { ID: UUID }, 'allocations/1a2b/web/logs', '?wrap=1')).toBe(`allocations/${UUID}/web/logs?wrap=1`);
  expect(whole({ kind: 'node', text: '1a2b' }, { ID: UUID }, 'clients/1a2b', '')).toBe(`clients/${UUID}`);
  expect(whole({ kind: 'evaluation', text: '1a2b' }, { ID: UUID }, 'evaluations', '?status=blocked&currentEval=1a2b')).toBe(`evaluations?status=blocked&currentEval=${UUID}`);
  const found = { ID: UUID, JobID: 'a/b', Namespace: 'team' };
  expect(whole({ kind: 'deployment', text: '1a2b' }, found, 'deployments/1a2b', '')).toBe(`jobs/a%2Fb@team/deployments/${UUID}`);
});

it('says what a candidate is', () => {
  expect(about({ ID: UUID, Name: 'web.api[0]', JobID: 'web', ClientStatus: 'running' })).toBe('web.api[0], running');
  expect(about({ ID: UUID, JobID: 'web', Status: 'blocked' })).toBe('web, blocked');
});
