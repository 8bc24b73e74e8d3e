import { expect, it } from 'vitest';
import { hostQuery, hostRows, hostTree, isNarrow, listed, type HostContent } from './hosts';

const host = (ID: string, NodeID: string, more = {}) =>
  ({ ID, Name: `name-${ID}`, Namespace: 'default', NodeID, PluginID: 'mkdir', State: 'ready', CapacityBytes: 1024, ...more }) as HostContent['hostVolumes'][number];
const content: HostContent = {
  hostVolumes: [host('h1', 'n1'), host('h2', 'n2', { State: 'unavailable' }), host('h3', 'n1', { PluginID: 'lvm', Namespace: 'team' })],
  holders: { h1: [{ JobID: 'db', TaskGroup: 'g', AllocID: '12345678' }] },
  statics: [{ Name: 'certs', NodeID: 'n2', ReadOnly: true }],
  nodes: { n1: 'oslo', n2: 'berlin' },
};
const any = { search: '', plugin: '', phase: '', trouble: false };
const names = (more = {}) => hostRows(content, { ...any, ...more }).map((row) => row.name);

it('lists host volumes of users and of configurations, trouble first', () => {
  expect(names()).toEqual(['name-h2', 'name-h1', 'name-h3', 'certs']);
  expect(hostRows(content, any).at(-1)).toMatchObject({ ns: '', note: 'configured, read only', row: undefined });
  expect(hostRows(content, any)[1]).toMatchObject({ note: '1.0 KiB, mkdir', capacity: 1024, holders: [{ JobID: 'db' }] });
});

it('selects by text, node, plugin and trouble', () => {
  expect(names({ search: 'DB' })).toEqual(['name-h1']);
  expect(names({ search: 'team' })).toEqual(['name-h3']);
  expect(names({ node: 'BER' })).toEqual(['name-h2', 'certs']);
  expect(names({ plugin: 'lvm' })).toEqual(['name-h3']);
  expect(names({ trouble: true })).toEqual(['name-h2']);
  expect(names({ phase: 'mounted' })).toEqual([]);
  expect(isNarrow({ ...any, plugin: 'lvm' })).toBe(false);
  expect(isNarrow({ ...any, home: 'n1' })).toBe(true);
});

it('groups by node', () => {
  const found = hostTree(hostRows(content, any), content.nodes);
  expect(found.map((branch) => [branch.node, branch.rows.map((row) => row.name)])).toEqual([
    ['n2', ['name-h2', 'certs']],
    ['n1', ['name-h1', 'name-h3']],
  ]);
});

it('asks the servers for the same selection', () => {
  expect(hostQuery({ ...any, plugin: 'lvm', node: 'ber' })).toMatchObject({ plugin_id: 'lvm', node: 'ber', trouble: false, filter: '' });
  expect(hostQuery({ ...any, search: 'a.b' }, 'x')?.filter).toBe(
    '((Name matches "(?i)a\\\\.b" or Namespace matches "(?i)a\\\\.b") or any Holders as h { (h.JobID matches "(?i)a\\\\.b") }) and (Name matches "(?i)x")',
  );
  expect(hostQuery({ ...any, phase: 'mounted' })).toBeUndefined();
});

it('reads rows of the list', () => {
  const row = { ...host('h1', 'n1'), NodeName: 'oslo', Configured: false, ReadOnly: false, Holders: [], NodePool: '', CreateIndex: 1, CreateTime: 1, ModifyIndex: 1, ModifyTime: 1 };
  expect(listed(row)).toMatchObject({ key: 'host/n1/h1', note: '1.0 KiB, mkdir', word: 'ready', row: { ID: 'h1' } });
  expect(listed({ ...row, ID: '', Configured: true, ReadOnly: true })).toMatchObject({ key: 'static/n1/name-h1', note: 'configured, read only', row: undefined });
});
