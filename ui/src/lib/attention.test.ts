import { expect, it } from 'vitest';
import type { Evaluation, Item, Metric } from '../api/types';
import { place, sentence, whyBlocked } from './attention';
import { parse } from './route';

const metric = (more: Partial<Metric>): Metric => ({
  NodesEvaluated: 3,
  NodesFiltered: 0,
  NodesExhausted: 0,
  NodesAvailable: null,
  ConstraintFiltered: null,
  DimensionExhausted: null,
  ClassFiltered: null,
  QuotaExhausted: null,
  CoalescedFailures: 0,
  ScoreMetaData: null,
  NodesInPool: 3,
  NodePool: 'default',
  ClassExhausted: null,
  ResourcesExhausted: null,
  Scores: null,
  AllocationTime: 0,
  ...more,
});

it('says why no node was found, the most frequent reason first', () => {
  expect(sentence(metric({ ConstraintFiltered: { a: 1, b: 2 }, DimensionExhausted: { memory: 1 } }))).toBe(
    '2 nodes: b; 1 node: a; 1 node has not enough memory',
  );
  expect(sentence(metric({ NodesEvaluated: 0 }))).toContain('no node is in the datacenters');
});

it('names the group that waits', () => {
  const row = { FailedTGAllocs: { api: metric({ DimensionExhausted: { cpu: 2 } }) } } as unknown as Evaluation;
  expect(whyBlocked(row)).toBe('group api: 2 nodes have not enough cpu');
});

it('leads from each item to its object', () => {
  const item = (Kind: Item['Kind']) => ({ Kind, ID: 'a/b', Namespace: 'team', DetailID: 'd' }) as Item;
  const page = (kind: Item['Kind']) => parse(place(item(kind)).href);
  expect(page('Job')).toMatchObject({ page: 'job', id: 'a/b', ns: 'team' });
  expect(page('Deployment')).toMatchObject({ page: 'job', id: 'a/b', tab: 'deployments', rest: ['d'] });
  expect(page('Volume')).toMatchObject({ page: 'volume', id: 'a/b', ns: 'team' });
  expect(page('Plugin')).toMatchObject({ page: 'plugin', id: 'a/b' });
  expect(page('Node')).toMatchObject({ page: 'node', id: 'a/b' });
  expect(place(item('Volume')).command).toBe('caravan volume status -namespace team a/b');
});
