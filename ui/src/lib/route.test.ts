import { describe, expect, it } from 'vitest';
import { link, parse, splitId, to, type Page } from './route';

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
    ['deployments', 'jobs', '', '', ''],
    ['deployments/1234', 'deployment', '1234', '', ''],
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

  it.each([
    ['storage/volumes/csi/data', 'team', 'data', 'team'],
    ['storage/volumes/csi/data@default', 'team', 'data', 'default'],
    ['jobs/web/versions', '*', 'web', 'default'],
    ['jobs/web/versions', 'team', 'web', 'team'],
  ])('%s with namespace=%s names the namespace', (path, namespace, id, ns) => {
    expect(parse(path, namespace)).toMatchObject({ id, ns });
  });

  it('knows every address of Nomad', () => {
    // Section 2 of the reference: what a path leads to, never nothing.
    for (const path of [
      'jobs/run/templates', 'jobs/run/templates/new', 'jobs/run/templates/manage', 'jobs/run/templates/basic', 'jobs/a@n/definition',
      'jobs/a@n/versions', 'jobs/a@n/deployments', 'jobs/a@n/dispatch', 'jobs/a@n/evaluations', 'jobs/a@n/allocations', 'jobs/a@n/clients',
      'jobs/a@n/services', 'jobs/a@n/services/web', 'jobs/a@n/variables', 'jobs/a@n/group', 'allocations/1/fs', 'allocations/1/fs/a/b',
      'allocations/1/task', 'allocations/1/task/logs', 'allocations/1/task/fs/a', 'clients/1', 'clients/1/monitor', 'servers/s/monitor',
      'storage/plugins', 'csi/plugins', 'evaluations', 'variables/var/a/b@n/edit', 'exec/a/g/t', 'settings/tokens', 'settings/user-settings',
      'administration', 'administration/policies/new', 'administration/roles/1', 'administration/tokens', 'administration/namespaces/n',
      'administration/sentinel-policies', 'administration/sentinel-policies/x',
    ]) expect(parse(path).page, path).not.toBe('missing');
  });

  it('reads what it writes', () => {
    for (const id of ['web', 'a/b', 'a@b', 'ä %', '100%']) {
      expect(parse(to.job(id, 'team', 'versions'))).toMatchObject({ page: 'job', id, ns: 'team', tab: 'versions' });
      expect(parse(to.volume(id, 'team'))).toMatchObject({ page: 'volume', id, ns: 'team' });
    }
    expect(parse(to.groupLog('a/b', 'team'))).toMatchObject({ page: 'job', id: 'a/b', ns: 'team', tab: 'allocations', rest: ['logs'] });
    expect(parse(to.deployment('12-34', 'a/b', 'team'))).toMatchObject({ page: 'job', id: 'a/b', ns: 'team', tab: 'deployments', rest: ['12-34'] });
    expect(to.groupLog('web', 'team', 'logs')).toBe('jobs/web@team/allocations/logs?taskGroup=logs');
    expect(parse('jobs/web@team/logs')).toMatchObject({ page: 'group', tab: 'logs' });
    expect(parse(to.variable('a/b c', 'team'))).toMatchObject({ page: 'variable', id: 'a/b c', ns: 'team' });
  });

  it('takes the last @ as the separator', () => {
    expect(splitId('a@b@c')).toEqual({ id: 'a@b', ns: 'c' });
    expect(splitId('@c')).toEqual({ id: '@c', ns: 'default' });
    expect(splitId('%')).toEqual({ id: '%', ns: 'default' });
  });
});

describe('links', () => {
  const root = new URL('https://proxy.test/some/prefix/ui/');
  it.each([
    ['jobs/a%2Fb@team', [], '/some/prefix/ui/jobs/a%2Fb@team'],
    ['', [], '/some/prefix/ui/'],
    ['evaluations?currentEval=1', [], '/some/prefix/ui/evaluations?currentEval=1'],
    ['jobs', [['namespace', 'a b'], ['region', 'eu']], '/some/prefix/ui/jobs?namespace=a+b&region=eu'],
    ['jobs?namespace=own', [['namespace', 'team']], '/some/prefix/ui/jobs?namespace=own'],
    ['jobs#part', [], '/some/prefix/ui/jobs'],
  ] as [string, [string, string][], string][])('%s with %j', (path, kept, expected) => {
    expect(link(root, path, kept)).toBe(expected);
  });
});
