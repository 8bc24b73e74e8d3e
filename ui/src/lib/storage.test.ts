import { expect, it } from 'vitest';
import type { Claim, PluginRow, VolumeExplain } from '../api/types';
import { advice, again, mapFilter, rank, tree, withBlocked } from './storage';

const claim = (more: Partial<Claim>) => ({ JobID: 'w', NodeID: 'n', AllocID: 'a', Phase: 'mounted', WaitsFor: '', LastError: '', ...more }) as Claim;
const volume = (ID: string, PluginID: string, claims: Claim[] = [], more = {}) =>
  ({ ID, PluginID, Namespace: 'default', Phase: 'ready', LastError: '', Claims: claims, ...more }) as VolumeExplain;
const plugins = [{ ID: 'a' }, { ID: 'b' }, { ID: 'idle' }] as PluginRow[];
const any = { search: '', plugin: '', phase: '', trouble: false };

it('ranks trouble', () => {
  const ranks = [
    volume('x', 'a'),
    volume('x', 'a', [claim({ Phase: 'attaching' })]),
    volume('x', 'a', [claim({ Phase: 'fencing', WaitsFor: 'the fence' })]),
    volume('x', 'a', [claim({ WaitsFor: 'node' })]),
    volume('x', 'a', [claim({}), claim({ LastError: 'no' })]),
  ].map(rank);
  expect(ranks).toEqual([0, 2, 3, 4, 5]);
});

it('puts trouble first and counts what it leaves out', () => {
  const rows = [volume('1', 'a'), volume('2', 'a'), volume('3', 'b', [claim({ LastError: 'no' })]), volume('4', 'lost')];
  const branches = tree(plugins, rows, any, 1);
  expect(branches.map((branch) => [branch.id, branch.volumes.length, branch.hidden])).toEqual([
    ['b', 1, 0],
    ['a', 1, 1],
    ['idle', 0, 0],
    ['lost', 1, 0],
  ]);
  expect(branches.at(-1)?.plugin).toBeUndefined();
});

it('narrows by filters', () => {
  const rows = [volume('1', 'a', [claim({ JobID: 'writer' })]), volume('2', 'b', [claim({ Phase: 'fencing' })])];
  const ids = (more: object) => tree(plugins, rows, { ...any, ...more }).flatMap((branch) => branch.volumes.map((row) => row.ID));
  expect(ids({ search: 'WRIT' })).toEqual(['1']);
  expect(ids({ phase: 'fencing' })).toEqual(['2']);
  expect(ids({ trouble: true })).toEqual(['2']);
  expect(ids({ plugin: 'a' })).toEqual(['1']);
});

it('selects what failed, and what is on a node', () => {
  const rows = [
    volume('1', 'a', [claim({ NodeID: 'n1' })]),
    volume('2', 'a', [claim({ NodeID: 'n2', LastError: 'no' })]),
    volume('3', 'b', [], { LastError: 'full' }),
  ];
  const ids = (filters: object) => tree(plugins, rows, { ...any, ...filters }, 60, { n2: 'Berlin' }).flatMap((branch) => branch.volumes.map((row) => row.ID));
  expect(ids({ failed: true }).toSorted()).toEqual(['2', '3']);
  expect(ids({ waits: true })).toEqual([]);
  expect(ids({ node: 'n1' })).toEqual(['1']);
  expect(ids({ node: 'berl' })).toEqual(['2']);
});

it('filters all pages of the map', () => {
  expect(mapFilter('', '', undefined)).toBe('');
  expect(mapFilter('', 'mounted', ['n1'])).toBe(
    '(Phase == "mounted" or (Claims is not nil and any Claims as c { c.Phase == "mounted" })) and (Claims is not nil and any Claims as c { c.NodeID == "n1" })',
  );
  expect(mapFilter('', '', [])).toBe('ID == ""');
});

it('ranks a volume for which a job waits, and finds the job', () => {
  const job = { VolumeID: '1', Namespace: 'default', JobID: 'reader', EvalID: 'e', Since: 1 };
  const rows = withBlocked([volume('1', 'a', [claim({})]), volume('2', 'a')], [job, { ...job, VolumeID: 'other' }]);
  expect(rows.map(rank)).toEqual([4, 0]);
  const ids = (filters: object) => tree(plugins, rows, { ...any, ...filters }).flatMap((branch) => branch.volumes.map((row) => row.ID));
  expect(ids({ waits: true })).toEqual(['1']);
  expect(ids({ search: 'READER' })).toEqual(['1']);
});

it('names what ends a wait', () => {
  expect(advice(claim({ WaitsFor: 'the holder', Holder: 'a' }))).toEqual(['holder']);
  expect(advice(claim({ LastError: 'no', Phase: 'fencing' }))).toEqual(['plugin', 'node']);
  expect(advice(claim({ Phase: 'attaching' }))).toEqual(['step']);
});

it('asks again only while the servers count a time', () => {
  const ready = (more: object) => [{ ID: 'v', Claims: [], Calls: [], ...more } as unknown as VolumeExplain];
  expect(again(ready({ LastError: 'no', Claims: [claim({ WaitsFor: 'the holder' })] }))).toBeUndefined();
  expect(again(ready({ Calls: [{ Call: 'CreateVolume' }] }))).toBeGreaterThan(0);
  expect(again(ready({ Claims: [claim({ FenceLeft: 1 })] }))).toBeGreaterThan(0);
  expect(again([], true)).toBeGreaterThan(0);
});
