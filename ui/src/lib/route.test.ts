import { describe, expect, it } from 'vitest';
import { parse, splitId, to, type Page } from './route';

describe('addresses', () => {
  const rows: [string, Page, string, string, string][] = [
    ['', 'overview', '', '', ''],
    ['jobs', 'jobs', '', '', ''],
    ['jobs/run', 'run', '', '', ''],
    ['jobs/web', 'job', 'web', 'default', ''],
    ['jobs/web@team', 'job', 'web', 'team', ''],
    ['jobs/a%2Fperiodic-1@team/versions', 'job', 'a/periodic-1', 'team', 'versions'],
    ['jobs/a@b@team/definition', 'job', 'a@b', 'team', 'definition'],
    ['jobs/web/api', 'group', 'web', 'default', 'api'],
    ['allocations/1234', 'allocation', '1234', '', ''],
    ['allocations/1234/web/logs', 'allocation', '1234', '', 'web'],
    ['allocations/1234/fs/alloc/logs', 'allocation', '1234', '', 'fs'],
    ['clients', 'nodes', '', '', ''],
    ['clients/5678', 'node', '5678', '', ''],
    ['clients/5678/monitor', 'node', '5678', '', 'monitor'],
    ['servers', 'servers', '', '', ''],
    ['servers/one.global/monitor', 'server', 'one.global', '', 'monitor'],
    ['topology', 'topology', '', '', ''],
    ['storage', 'storage', '', '', ''],
    ['storage/volumes', 'storage', '', '', ''],
    ['storage/volumes/csi/data@team', 'volume', 'data', 'team', ''],
    ['storage/volumes/dynamic/77@default', 'host-volume', '77', 'default', ''],
    ['storage/plugins', 'storage', '', '', ''],
    ['storage/plugins/hostpath', 'plugin', 'hostpath', '', ''],
    ['storage/plugins/hostpath/allocations', 'plugin', 'hostpath', '', 'allocations'],
    ['csi', 'storage', '', '', ''],
    ['csi/volumes', 'storage', '', '', ''],
    ['csi/volumes/data', 'volume', 'data', 'default', ''],
    ['csi/plugins/hostpath', 'plugin', 'hostpath', '', ''],
    ['evaluations', 'evaluations', '', '', ''],
    ['variables', 'variables', '', '', ''],
    ['variables/path/a/b', 'variables', 'a/b', '', ''],
    ['variables/var/a/b@team', 'variable', 'a/b', 'team', ''],
    ['variables/var/a/b@team/edit', 'variable', 'a/b', 'team', 'edit'],
    ['variables/new', 'variable', '', '', 'new'],
    ['administration/policies/ops', 'administration', 'ops', '', 'policies'],
    ['exec/web@team/g', 'exec', 'web', 'team', 'g'],
    ['settings/tokens', 'sign-in', '', '', ''],
    ['settings/user-settings', 'settings', '', '', ''],
    ['optimize/x', 'missing', 'optimize/x', '', ''],
  ];
  it.each(rows)('%s leads to %s', (path, page, id, ns, tab) => {
    expect(parse(path)).toMatchObject({ page, id, ns, tab });
  });

  it('reads what it writes', () => {
    for (const id of ['web', 'a/b', 'a@b', 'ä %', '100%']) {
      expect(parse(to.job(id, 'team', 'versions'))).toMatchObject({ page: 'job', id, ns: 'team', tab: 'versions' });
      expect(parse(to.volume(id, 'team'))).toMatchObject({ page: 'volume', id, ns: 'team' });
    }
    expect(parse(to.variable('a/b c', 'team'))).toMatchObject({ page: 'variable', id: 'a/b c', ns: 'team' });
  });

  it('takes the last @ as the separator', () => {
    expect(splitId('a@b@c')).toEqual({ id: 'a@b', ns: 'c' });
    expect(splitId('@c')).toEqual({ id: '@c', ns: 'default' });
    expect(splitId('%')).toEqual({ id: '%', ns: 'default' });
  });
});
