import { describe, expect, it } from 'vitest';
import type { Claim, PluginRow, VolumeExplain } from '../api/types';
import { arrows, drawing, lines, neighbour } from './drawing';
import { CALM, CLAIMS, DRAWN, home, lanesOf, ordered, picture, volumeNote, type Content } from './picture';

const claim = (AllocID: string, more: Partial<Claim> = {}) =>
  ({ AllocID, JobID: 'w', NodeID: 'n1', Mode: 'write', Phase: 'mounted', WaitsFor: '', LastError: '', Holder: '', FenceUntil: 0, ...more }) as Claim;
const volume = (ID: string, PluginID: string, Claims: Claim[] = [], more = {}) =>
  ({ ID, PluginID, Namespace: 'default', Phase: 'ready', LastError: '', Claims, Usage: {}, ...more }) as unknown as VolumeExplain;
const plugin = (ID: string, more: Partial<PluginRow> = {}) =>
  ({ ID, ControllerRequired: false, ControllersHealthy: 0, ControllersExpected: 0, NodesHealthy: 1, NodesExpected: 1, ...more }) as PluginRow;
const facts = (more = {}) => ({ Failed: 0, Waiting: 0, Fencing: 0, Changing: 0, Rest: 0, Calls: 0, Lanes: [], Sick: [], Homes: {}, OmittedHomes: 0, ...more });
const any = { search: '', plugin: '', phase: '', trouble: false };
const content = (more: Partial<Content>): Content => ({
  plugins: [], volumes: [], facts: {}, hostVolumes: [], holders: {}, statics: [], nodes: { n1: 'berlin', n2: 'oslo' }, ...more,
});
const shape = (of: ReturnType<typeof picture>) => of.things.map((thing) => `${'  '.repeat(thing.column)}${thing.name}: ${thing.word}`);

it('draws plugins, nodes, volumes and claims in columns, trouble first', () => {
  const found = picture(
    content({
      plugins: [plugin('calm'), plugin('sick', { NodesHealthy: 0 }), plugin('idle')],
      volumes: [
        volume('a', 'calm', [claim('1111111111')]),
        volume('b', 'calm', [claim('2222222222', { LastError: 'no space', NodeID: 'n2' })]),
        volume('c', 'sick', []),
      ],
      facts: { calm: facts({ Rest: 1, Failed: 1 }), sick: facts({ Rest: 1, Sick: ['n1'] }) },
    }),
    any,
  );
  expect(shape(found)).toEqual([
    'calm: healthy',
    'Nodes: healthy',
    '  oslo: healthy',
    '    b: ready',
    '      w 22222222: failed',
    '  berlin: healthy',
    '    a: ready',
    '      w 11111111: mounted',
    'sick: unhealthy',
    'Nodes: unhealthy',
    '  on no node: ',
    '    c: ready',
    'idle: healthy',
    'Nodes: healthy',
  ]);
  const rows = found.things.filter((thing) => thing.column === 3).map((thing) => thing.row);
  expect(new Set(rows).size).toBe(rows.length);
  expect(found.things.find((thing) => thing.word === 'failed')?.note).toBe('no space');
});

it('draws an arrow from a claim in the way to the one that waits', () => {
  const waiting = claim('2222222222', { Phase: 'reserved', WaitsFor: 'the release', Holder: '1111111111' });
  const far = claim('3333333333', { Phase: 'reserved', WaitsFor: 'the release', Holder: 'ffffffffff' });
  expect(ordered([claim('4444444444'), claim('1111111111'), waiting]).map((one) => one.AllocID[0])).toEqual(['1', '2', '4']);
  const found = picture(content({ plugins: [plugin('p')], volumes: [volume('v', 'p', [claim('1111111111'), waiting, far])] }), any);
  expect(found.arrows).toEqual([{ from: 'volume/default/v/1111111111/write', to: 'volume/default/v/2222222222/write' }]);
  const drawn = drawing(found, 1000);
  expect(arrows(drawn)).toHaveLength(1);
  expect(found.things.find((thing) => thing.name === 'w 33333333')?.note).toBe('the release, held by ffffffff');
  expect(lines(drawn).match(/M/g)).toHaveLength(found.things.length - 1);
  expect(drawn.height).toBeGreaterThan(150);
  // The columns and the arrows fill the space, and a narrow picture scrolls.
  const last = drawn.columns.at(-1);
  expect((last?.left ?? 0) + (last?.width ?? 0)).toBeLessThan(1000);
  expect(drawing(found, 300).width).toBe(860);
});

it('draws a job without a claim as waiting for the one that holds the volume', () => {
  const blocked = { ...volume('v', 'p', [claim('1111111111')]), Blocked: [{ VolumeID: 'v', Namespace: 'default', JobID: 'reader', EvalID: 'e', Since: 1 }] };
  const found = picture(content({ plugins: [plugin('p')], volumes: [volume('u', 'p'), blocked] }), any);
  expect(shape(found).slice(3, 6)).toEqual(['    v: ready', '      w 11111111: mounted', '      reader: blocked']);
  expect(found.arrows).toEqual([{ from: 'volume/default/v/1111111111/write', to: 'volume/default/v/e' }]);
});

it('leaves out calm volumes of a node and claims of a volume until they are opened', () => {
  const many = Array.from({ length: CALM + 5 }, (_, at) => volume(`v${10 + at}`, 'p', [claim(`${at}`)]));
  const crowded = volume('crowd', 'p', Array.from({ length: CLAIMS + 3 }, (_, at) => claim(`c${at}`, { NodeID: 'n2' })));
  const all = content({ plugins: [plugin('p')], volumes: [...many, crowded], facts: { p: facts({ Rest: CALM + 6 }) } });
  const closed = picture(all, any);
  const groups = closed.things.filter((thing) => thing.kind === 'more');
  expect(groups.map((thing) => [thing.name, thing.opens])).toEqual([
    ['5 more volumes without trouble', 'node/p/n1'],
    ['3 more claims', 'volume/default/crowd'],
  ]);
  const opened = picture(all, any, new Set(groups.map((thing) => thing.opens ?? '')));
  expect(opened.things.filter((thing) => thing.kind === 'more')).toEqual([]);
  expect(opened.volumes).toBe(CALM + 6);
});

it('holds the budget with 10,000 volumes, the worst first, and says what it leaves out', () => {
  const volumes = Array.from({ length: 10_000 }, (_, at) =>
    volume(`v${at}`, `p${at % 7}`, [
      claim(`a${at}`, { NodeID: `n${at % 500}`, ...(at % 100 === 0 ? { WaitsFor: 'a node' } : {}), ...(at % 1000 === 7 ? { LastError: 'no' } : {}) }),
    ]),
  );
  const seven = Array.from({ length: 7 }, (_, at) => `p${at}`);
  const numbers = Object.fromEntries(
    seven.map((id) => {
      const own = volumes.filter((row) => row.PluginID === id);
      const Failed = own.filter((row) => row.Claims?.[0]?.LastError).length;
      const Waiting = own.filter((row) => row.Claims?.[0]?.WaitsFor).length;
      return [id, facts({ Failed, Waiting, Rest: own.length - Failed - Waiting })];
    }),
  );
  const found = picture(content({ plugins: seven.map((id) => plugin(id)), volumes, facts: numbers }), any);
  expect(found.things.length).toBeLessThanOrEqual(DRAWN);
  expect(found.things.length).toBeGreaterThan(DRAWN / 2);
  const drawn = found.things.flatMap((thing) => (thing.volume ? [thing.volume] : []));
  expect(drawn.filter((row) => row.Claims?.[0]?.LastError)).toHaveLength(10);
  expect(drawn.every((row) => row.Claims?.[0]?.LastError || row.Claims?.[0]?.WaitsFor)).toBe(true);
  const left = found.things.filter((thing) => thing.kind === 'more').map((thing) => Number(thing.name.split(' ')[0]?.replace(',', '')));
  expect(left.reduce((sum, number) => sum + number, 0) + drawn.length).toBe(10_000);
  expect(new Set(found.things.map((thing) => thing.key)).size).toBe(found.things.length);
  expect(found.things.some((thing) => /more volumes: \d+ waiting/.test(thing.name))).toBe(true);
});

it('hangs host volumes below their nodes with the groups that hold them', () => {
  const host = (ID: string, NodeID: string, State = 'ready') => ({ ID, Name: `name-${ID}`, Namespace: 'default', NodeID, PluginID: 'mkdir', State, CapacityBytes: 1024 });
  const all = content({
    hostVolumes: [host('h1', 'n1'), host('h2', 'n2', 'unavailable')] as never,
    holders: { h1: [{ JobID: 'db', TaskGroup: 'g', AllocID: '12345678' }, { JobID: 'old', TaskGroup: 'g', AllocID: '' }] },
    statics: [{ Name: 'certs', NodeID: 'n1', ReadOnly: true }],
  });
  expect(shape(picture(all, any))).toEqual([
    'Host volumes: ',
    '  berlin: ',
    '    name-h1: ready',
    '      db 12345678: in use',
    '      old: kept',
    '    certs: ready',
    '  oslo: ',
    '    name-h2: unavailable',
  ]);
  expect(shape(picture(all, { ...any, trouble: true }))).toEqual(['Host volumes: ', '  oslo: ', '    name-h2: unavailable']);
  expect(shape(picture(all, { ...any, search: 'OLD' }))).toHaveLength(5);
  expect(picture(all, { ...any, phase: 'fencing' }).things).toEqual([]);
});

it('shows the lanes of a plugin: its health by part, and the calls to it', () => {
  const one = plugin('p', { ControllerRequired: true, ControllersHealthy: 1, ControllersExpected: 2, NodesHealthy: 3, NodesExpected: 8 });
  const fact = facts({
    Sick: ['n1', 'n2', 'n3', 'n4', 'n5'],
    Lanes: [{ Lane: 'attach', Running: 8, Waiting: 3, Limit: 8 }, { Lane: 'manage', Running: 1, Waiting: 0, Limit: 8 }],
  });
  expect(lanesOf(one, fact, { n1: 'berlin', n2: 'oslo', n3: 'rome' })).toEqual([
    { name: 'Controllers', word: 'unhealthy', note: '1 of 2' },
    { name: 'Nodes', word: 'unhealthy', note: '3 of 8, not on berlin, oslo, rome and 2 more' },
    { name: 'Calls: attach', word: 'waits', note: '8 of 8, 3 calls behind' },
    { name: 'Calls: manage', word: 'running', note: '1 of 8' },
  ]);
  const found = picture(content({ plugins: [one], volumes: [volume('v', 'p')], facts: { p: fact } }), any);
  const lanes = found.things.filter((thing) => thing.kind === 'lane');
  expect(lanes.map((lane) => [lane.parent, lane.row])).toEqual([['plugin/p', 1], ['plugin/p', 2], ['plugin/p', 3], ['plugin/p', 4]]);
  expect(found.rows).toBeGreaterThan(5);
  // Lanes of many plugins without trouble are left out, those with trouble stay.
  const many = Array.from({ length: 40 }, (_, at) => plugin(`p${at}`, { NodesHealthy: at === 7 ? 0 : 1 }));
  const drawn = picture(content({ plugins: many }), any).things;
  expect(drawn.filter((thing) => thing.kind === 'lane').map((lane) => lane.parent)).toEqual(['plugin/p7']);
});

it('says how many plugins it leaves out', () => {
  const many = Array.from({ length: 400 }, (_, at) => plugin(`p${at}`));
  const found = picture(content({ plugins: many }), any);
  expect(found.things.length).toBeLessThanOrEqual(DRAWN);
  const plugins = found.things.filter((thing) => thing.kind === 'plugin').length;
  expect(found.things.at(-1)).toMatchObject({ name: `${400 - plugins} more plugins`, query: { view: 'tree' } });
});

it('reaches each of a thousand volumes by its groups, and never draws more than its budget', () => {
  // One node has more volumes than a picture draws, and there are more nodes than a picture draws.
  const volumes = Array.from({ length: 1000 }, (_, at) => {
    const node = at % 2 === 0 ? 'crowd' : `far${at % 150}`;
    const claims = at % 13 === 0 ? [] : [claim(`a${at}`, { NodeID: node, ...(at % 50 === 1 ? { WaitsFor: 'a node' } : {}) })];
    return volume(`v${10_000 + at}`, at % 2 === 0 ? 'p0' : `p${at % 3}`, claims);
  });
  const needs = (row: VolumeExplain) => (row.Claims?.[0]?.WaitsFor ? 'Waiting' : 'Rest');
  /** Answers as the servers do. */
  const serve = (query: URLSearchParams): Content => {
    const [chosen, at, start] = [query.get('plugin'), query.get('home'), query.get('from') ?? ''];
    const open = query.getAll('open');
    const rows = volumes.filter((row) => (!chosen || row.PluginID === chosen) && (!at || (home(row) || 'none') === at));
    const place = (row: VolumeExplain) => `${needs(row) === 'Waiting' ? 1 : open.includes(`node/${row.PluginID}/${home(row)}`) ? 4 : 6}.default.${row.ID}`;
    const numbers = new Map<string, number>();
    const sorted = rows.toSorted((one, two) => (place(one) < place(two) ? -1 : 1));
    const listed = sorted.filter((row) => {
      if (needs(row) === 'Waiting' || at || place(row)[0] === '4') return true;
      const key = `${row.PluginID}/${home(row)}`;
      numbers.set(key, (numbers.get(key) ?? 0) + 1);
      return (numbers.get(key) ?? 0) <= CALM;
    });
    const before = start ? listed.findIndex((row) => place(row) >= start) : 0;
    const page = listed.slice(before, before + DRAWN);
    const counted: Record<string, ReturnType<typeof facts>> = {};
    for (const row of rows) {
      const fact = (counted[row.PluginID] ??= facts({ Homes: {} }));
      const homes = fact.Homes as Record<string, Record<string, number>>;
      const own = (homes[home(row)] ??= { Failed: 0, Waiting: 0, Fencing: 0, Changing: 0, Rest: 0 });
      for (const part of [fact, own] as Record<string, number>[]) part[needs(row)] = (part[needs(row)] ?? 0) + 1;
    }
    return content({
      plugins: ['p0', 'p1', 'p2'].map((id) => plugin(id)), volumes: page, facts: counted as Content['facts'], places: page.map(place), before, listed: listed.length,
    });
  };
  const seen = new Set<string>();
  const asked = new Set<string>();
  const queue = [new URLSearchParams()];
  for (let query = queue.pop(); query; query = queue.pop()) {
    if (asked.has(query.toString())) continue;
    asked.add(query.toString());
    const filters = { ...any, plugin: query.get('plugin') ?? '', home: query.get('home') ?? '' };
    const found = picture(serve(query), filters, new Set(query.getAll('open')));
    expect(found.things.length).toBeLessThanOrEqual(DRAWN);
    expect(new Set(found.things.map((thing) => thing.key)).size).toBe(found.things.length);
    for (const thing of found.things) {
      if (thing.volume) seen.add(thing.volume.ID);
      const next = new URLSearchParams(query);
      // One open group at a time: a person opens a group, looks, and goes on.
      if (thing.opens) next.set('open', thing.opens);
      else if (thing.query) for (const [name, value] of Object.entries(thing.query)) value ? next.set(name, value) : next.delete(name);
      else continue;
      queue.push(next);
    }
  }
  expect(seen.size).toBe(volumes.length);
});

it('describes a volume', () => {
  const usage = { n1: { TotalBytes: 100, UsedBytes: 73 } };
  expect(volumeNote(volume('v', 'p', [claim('a')], { Capacity: { actual: 1024, accepted: 2048 }, Usage: usage }))).toBe('1.0 KiB of 2.0 KiB, 73 % full, write');
  expect(volumeNote(volume('v', 'p'))).toBe('');
});

describe('arrow keys', () => {
  const found = picture(content({ plugins: [plugin('p'), plugin('q')], volumes: [volume('v', 'p', [claim('1'), claim('2')])] }), any);
  const way = (key: string, direction: Parameters<typeof neighbour>[2]) => neighbour(found, key, direction)?.key;
  it('lead along the tree and within a column', () => {
    expect(way('plugin/p', 'ArrowRight')).toBe('node/p/n1');
    expect(way('volume/default/v/1/write', 'ArrowDown')).toBe('volume/default/v/2/write');
    expect(way('volume/default/v/2/write', 'ArrowLeft')).toBe('volume/default/v');
    expect(way('plugin/p', 'ArrowDown')).toBe('plugin/p/lane/Nodes');
    expect(way('plugin/p/lane/Nodes', 'ArrowLeft')).toBe('plugin/p');
    expect(way('plugin/p/lane/Nodes', 'ArrowDown')).toBe('plugin/q');
    expect(way('plugin/p', 'ArrowUp')).toBeUndefined();
    expect(way('gone', 'ArrowUp')).toBe('plugin/p');
  });
});
