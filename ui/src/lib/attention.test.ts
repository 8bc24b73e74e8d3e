import { expect, it } from 'vitest';
import type { Evaluation, Metric, NodeRow, PluginRow, VolumeExplain } from '../api/types';
import { attention, sentence, whyBlocked } from './attention';

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
  ...more,
});

const evaluation = (more: Partial<Evaluation>) =>
  ({ ID: 'e1', JobID: 'web', Namespace: 'default', Status: 'blocked', CreateTime: 2e15, ...more }) as Evaluation;

it('says why no node was found, the most frequent reason first', () => {
  expect(sentence(metric({ ConstraintFiltered: { a: 1, b: 2 }, DimensionExhausted: { memory: 1 } }))).toBe(
    '2 nodes: b; 1 node: a; 1 node has not enough memory',
  );
  expect(sentence(metric({ NodesEvaluated: 0 }))).toContain('no node is in the datacenters');
});

it('names the group that waits', () => {
  const row = evaluation({ FailedTGAllocs: { api: metric({ DimensionExhausted: { cpu: 2 } }) } });
  expect(whyBlocked(row)).toBe('group api: 2 nodes have not enough cpu');
});

it('shows failures first, then the oldest wait', () => {
  const down = { ID: 'n1', Name: 'one', Status: 'down', StatusDescription: 'no heartbeat' } as NodeRow;
  const plugin = { ID: 'p', ControllerRequired: false, ControllersHealthy: 0, ControllersExpected: 0 } as PluginRow;
  const volume = {
    ID: 'data',
    Namespace: 'default',
    Phase: 'ready',
    LastError: '',
    History: null,
    Claims: [
      { JobID: 'w', Phase: 'attaching', WaitsFor: 'the node', LastError: '', Since: 1e15 },
      { JobID: 'x', Phase: 'mounted', WaitsFor: '', LastError: '', Since: 1e15 },
    ],
  } as unknown as VolumeExplain;
  const items = attention({
    evaluations: [evaluation({}), evaluation({ Status: 'complete' })],
    nodes: [down],
    plugins: [
      { ...plugin, NodesHealthy: 1, NodesExpected: 1 },
      { ...plugin, ID: 'q', NodesHealthy: 1, NodesExpected: 2 },
    ],
    volumes: [volume],
  });
  expect(items.map((item) => `${item.severity} ${item.kind} ${item.name}`)).toEqual([
    'failed Node one',
    'waiting Volume data',
    'waiting Job web',
    'waiting Plugin q',
  ]);
  expect(items[1]?.reason).toBe('the claim of w is attaching: the node');
});
