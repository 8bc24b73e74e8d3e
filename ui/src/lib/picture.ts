// The storage map as a picture: plugins, nodes, volumes and claims in columns. Positions come from the tree, so the work is
// that of one pass over the volumes.

import type { HostVolumeHolder, HostVolumeStub, PluginFacts, StaticVolume } from '../api/generated';
import type { Claim, PluginRow, VolumeExplain } from '../api/types';
import { to } from './route';
import { claimRank, fits, held, rank, type Filters, type MapVolume } from './storage';
import { count, millis, short, size } from './words';

/** The most things that a picture draws at once. */
export const DRAWN = 300;
/** The most volumes without trouble that one node shows until the user opens it. */
export const CALM = 8;
/** The most claims that one volume shows until the user opens it. */
export const CLAIMS = 4;

export type Kind = 'plugin' | 'node' | 'volume' | 'host' | 'claim' | 'more';

/** A thing of the picture. */
export interface Thing {
  /** Different for each thing, and the same after a change of the data. */
  key: string;
  kind: Kind;
  column: number;
  /** The position from the top, in rows. */
  row: number;
  name: string;
  /** The address below `/ui/`; empty if the thing has none. */
  path: string;
  /** The state; empty if the thing has none. */
  word: string;
  /** What follows the state. */
  note: string;
  /** When a fence ends, in milliseconds; 0 without a fence. */
  until: number;
  /** The thing in the column before it; empty for plugins. */
  parent: string;
  /** The groups that the user opens, for things that stand for others. */
  opens?: string;
  volume?: VolumeExplain;
  host?: HostVolumeStub;
}

/** A claim that another one waits for. */
export interface Arrow {
  from: string;
  to: string;
}

export interface Picture {
  things: Thing[];
  arrows: Arrow[];
  /** The height, in rows. */
  rows: number;
  /** The number of CSI volumes that are drawn. */
  volumes: number;
}

/** What a picture is made of. */
export interface Content {
  plugins: PluginRow[];
  volumes: MapVolume[];
  facts: Record<string, PluginFacts>;
  hostVolumes: HostVolumeStub[];
  holders: Record<string, HostVolumeHolder[]>;
  statics: StaticVolume[];
  /** The names of nodes by id. */
  nodes: Record<string, string>;
}

/** Returns whether all expected parts of a plugin are healthy. */
export function isHealthy(plugin: PluginRow): boolean {
  const controllers = !plugin.ControllerRequired || plugin.ControllersHealthy >= plugin.ControllersExpected;
  return controllers && plugin.NodesHealthy >= plugin.NodesExpected;
}

/** Returns the claims of a volume, the worst first. A claim in the way of another one stands right before it. */
export function ordered(claims: Claim[]): Claim[] {
  const sorted = claims.toSorted((one, two) => claimRank(two) - claimRank(one));
  const out = new Set<Claim>();
  for (const claim of sorted) {
    const holder = claim.Holder ? sorted.find((other) => other.AllocID === claim.Holder) : undefined;
    if (holder) out.add(holder);
    out.add(claim);
  }
  return [...out];
}

/** A volume that is drawn. */
interface Chosen {
  volume: MapVolume;
  rank: number;
  claims: Claim[];
  /** The number of claims that are left out. */
  more: number;
}

interface OnNode {
  id: string;
  worst: number;
  volumes: Chosen[];
  /** The number of volumes without trouble that are left out. */
  more: number;
}

interface OfPlugin {
  id: string;
  worst: number;
  nodes: Map<string, OnNode>;
}

/** Returns the node below which a volume is drawn: that of its worst claim, or one that reports its usage. */
function home(volume: VolumeExplain, claims: Claim[]): string {
  return claims[0]?.NodeID ?? Object.keys(volume.Usage ?? {})[0] ?? '';
}

/** Chooses what is drawn: the worst first, until the budget is used. Returns the groups, and the rest of the budget. */
function choose(volumes: MapVolume[], sick: Set<string>, open: Set<string>, budget: number): { groups: Map<string, OfPlugin>; left: number } {
  const ranks = volumes.map((volume) => ({ volume, rank: Math.max(rank(volume), sick.has(volume.PluginID) ? 1 : 0) }));
  ranks.sort((one, two) => two.rank - one.rank || compare(one.volume.ID, two.volume.ID));
  const groups = new Map<string, OfPlugin>();
  let left = budget;
  for (const { volume, rank: own } of ranks) {
    const all = ordered(held(volume));
    const node = home(volume, all);
    const key = `volume/${volume.Namespace}/${volume.ID}`;
    const most = open.has(key) ? all.length : CLAIMS;
    const claims = all.slice(0, most);
    const plugin = groups.get(volume.PluginID);
    const on = plugin?.nodes.get(node);
    const calm = own <= 1 && on && !open.has(`node/${volume.PluginID}/${node}`) && on.volumes.filter((row) => row.rank <= 1).length >= CALM;
    if (calm) {
      on.more += 1;
      continue;
    }
    const more = all.length - claims.length;
    const cost = 1 + claims.length + Math.min(volume.Blocked?.length ?? 0, CLAIMS) + Math.min(more, 1) + (plugin ? 0 : 1) + (on ? 0 : 2);
    // A smaller one of less importance does not overtake.
    if (cost > left) break;
    left -= cost;
    const group = plugin ?? { id: volume.PluginID, worst: own, nodes: new Map<string, OnNode>() };
    groups.set(volume.PluginID, group);
    const place = on ?? { id: node, worst: own, volumes: [], more: 0 };
    group.nodes.set(node, place);
    place.volumes.push({ volume, rank: own, claims, more });
  }
  return { groups, left };
}

/** Compares without the rules of a language, which are slow for many names. */
function compare(one: string, two: string): number {
  return one < two ? -1 : one > two ? 1 : 0;
}

/** Returns the capacity of a volume in words, how full it is, and its modes. */
export function volumeNote(volume: VolumeExplain): string {
  const { actual = 0, accepted = 0, wanted_min = 0 } = volume.Capacity ?? {};
  const wanted = accepted || wanted_min;
  const fill = Math.max(0, ...Object.values(volume.Usage ?? {}).map((usage) => (usage.TotalBytes > 0 ? usage.UsedBytes / usage.TotalBytes : 0)));
  const modes = [...new Set(held(volume).map((claim) => claim.Mode))].toSorted();
  const capacity = actual > 0 && wanted > actual ? `${size(actual)} of ${size(wanted)}` : actual || wanted ? size(actual || wanted) : '';
  return [capacity, fill > 0 && `${Math.round(fill * 100)} % full`, modes.join(' and ')].filter((part) => part).join(', ');
}

function claimNote(claim: Claim, node: string, names: Record<string, string>, isDrawn: boolean): string {
  const parts = [claim.LastError || claim.WaitsFor || claim.Mode];
  if (claim.Holder && !isDrawn) parts.push(`held by ${short(claim.Holder)}`);
  if (claim.NodeID !== node) parts.push(`on ${names[claim.NodeID] ?? short(claim.NodeID)}`);
  return parts.join(', ');
}

/** Returns what a group leaves out, in words. */
function omitted(number: number, facts: PluginFacts | undefined, drawn: Chosen[]): string {
  const words = count(number, 'more volume');
  if (!facts) return words;
  const seen = (of: number) => drawn.filter((row) => row.rank === of).length;
  const kinds = [
    ['failed', facts.Failed - seen(5)],
    ['waiting', facts.Waiting - seen(4)],
    ['fencing', facts.Fencing - seen(3)],
    ['changing', facts.Changing - seen(2)],
  ] as const;
  const parts = kinds.filter(([, left]) => left > 0).map(([word, left]) => `${left.toLocaleString('en')} ${word}`);
  return parts.length ? `${words}: ${parts.join(', ')}` : words;
}

/**
 * Lays out the picture. `open` has the keys of groups that the user opened. `isWhole`: the numbers of the facts are those of the
 * selected volumes.
 */
export function picture(content: Content, filters: Filters, open: Set<string> = new Set(), isWhole = true, budget = DRAWN): Picture {
  const { plugins, facts, nodes: names } = content;
  const known = new Map(plugins.map((plugin) => [plugin.ID, plugin]));
  const sick = new Set(plugins.filter((plugin) => !isHealthy(plugin)).map((plugin) => plugin.ID));
  const narrowed = Boolean(filters.search || filters.phase || filters.trouble || filters.node || filters.failed || filters.waits);
  const selected = content.volumes.filter((volume) => fits(volume, filters, names));
  // A line about what is left out may follow each plugin, and the host volumes have a root.
  const reserve = Math.min(plugins.length, 20) + 1;
  const { groups, left } = choose(selected, sick, open, budget - reserve);
  let budgetLeft = left + reserve - groups.size;
  const numbers = new Map<string, number>();
  for (const volume of selected) numbers.set(volume.PluginID, (numbers.get(volume.PluginID) ?? 0) + 1);
  if (!narrowed) {
    for (const plugin of plugins) {
      const isChosen = !filters.plugin || filters.plugin === plugin.ID;
      if (!isChosen || groups.has(plugin.ID) || budgetLeft < 3) continue;
      groups.set(plugin.ID, { id: plugin.ID, worst: sick.has(plugin.ID) ? 1 : 0, nodes: new Map() });
      budgetLeft -= 2;
    }
  }

  const things: Thing[] = [];
  const arrows: Arrow[] = [];
  let row = 0;
  let volumes = 0;
  const add = (thing: Partial<Thing> & Pick<Thing, 'key' | 'kind' | 'column' | 'name'>) =>
    things.push({ row, path: '', word: '', note: '', until: 0, parent: '', ...thing });
  const nodeName = (id: string) => (id ? (names[id] ?? short(id)) : 'on no node');

  for (const group of [...groups.values()].toSorted((one, two) => two.worst - one.worst || compare(one.id, two.id))) {
    const plugin = known.get(group.id);
    const fact = facts[group.id];
    const root = `plugin/${group.id}`;
    const parts = plugin
      ? [
          plugin.ControllerRequired && `${plugin.ControllersHealthy} of ${count(plugin.ControllersExpected, 'controller')}`,
          `${plugin.NodesHealthy} of ${count(plugin.NodesExpected, 'node')}`,
          fact && fact.Calls > 0 && count(fact.Calls, 'call'),
        ]
      : ['not registered'];
    const word = !plugin ? 'unavailable' : isHealthy(plugin) ? 'healthy' : 'unhealthy';
    add({ key: root, kind: 'plugin', column: 0, name: group.id, path: to.plugin(group.id), word, note: parts.filter((part) => part).join(', ') });
    const begun = row;
    const drawn: Chosen[] = [];
    let calm = 0;
    const sorted = [...group.nodes.values()].toSorted(
      (one, two) => two.worst - one.worst || Number(one.id === '') - Number(two.id === '') || compare(nodeName(one.id), nodeName(two.id)),
    );
    for (const node of sorted) {
      const key = `node/${group.id}/${node.id}`;
      const isSick = Boolean(node.id && fact?.Sick.includes(node.id));
      const all = node.volumes.length + node.more;
      add({
        key, kind: 'node', column: 1, name: nodeName(node.id), parent: root, path: node.id && to.node(node.id),
        word: node.id && plugin ? (isSick ? 'unhealthy' : 'healthy') : '', note: count(all, 'volume'),
      });
      for (const chosen of node.volumes) {
        const { volume, claims, more } = chosen;
        drawn.push(chosen);
        const own = `volume/${volume.Namespace}/${volume.ID}`;
        add({
          key: own, kind: 'volume', column: 2, name: volume.ID, parent: key, path: to.volume(volume.ID, volume.Namespace),
          word: volume.LastError ? 'failed' : volume.Phase, note: volume.LastError || volumeNote(volume), volume,
        });
        const begunAt = row;
        for (const claim of claims) {
          const name = `${own}/${claim.AllocID}/${claim.Mode}`;
          const holder = claim.Holder ? claims.find((other) => other.AllocID === claim.Holder) : undefined;
          if (holder) arrows.push({ from: `${own}/${holder.AllocID}/${holder.Mode}`, to: name });
          add({
            key: name, kind: 'claim', column: 3, name: `${claim.JobID} ${short(claim.AllocID)}`, parent: own, path: to.alloc(claim.AllocID),
            word: claim.LastError ? 'failed' : claim.Phase, note: claimNote(claim, node.id, names, holder !== undefined),
            until: claim.Phase === 'fencing' ? millis(claim.FenceUntil) : 0,
          });
          row += 1;
        }
        // A job without an allocation has no claim yet: the claims that hold the volume are in its way.
        for (const job of (volume.Blocked ?? []).slice(0, open.has(own) ? undefined : CLAIMS)) {
          const name = `${own}/${job.EvalID}`;
          const [holder] = claims;
          if (holder) arrows.push({ from: `${own}/${holder.AllocID}/${holder.Mode}`, to: name });
          add({
            key: name, kind: 'claim', column: 3, name: job.JobID, parent: own, path: to.job(job.JobID, job.Namespace), word: 'blocked',
            note: 'waits for a claim',
          });
          row += 1;
        }
        if (more > 0) {
          add({ key: `${own}/more`, kind: 'more', column: 3, name: count(more, 'more claim'), parent: own, opens: own });
          row += 1;
        }
        if (row === begunAt) row += 1;
      }
      if (node.more > 0) {
        add({ key: `${key}/more`, kind: 'more', column: 2, name: `${count(node.more, 'more volume')} without trouble`, parent: key, opens: key });
        row += 1;
      }
      calm += node.more;
    }
    volumes += drawn.length;
    const total = isWhole && fact ? fact.Failed + fact.Waiting + fact.Fencing + fact.Changing + fact.Rest : (numbers.get(group.id) ?? 0);
    const rest = total - drawn.length - calm;
    if (rest > 0) {
      add({
        key: `${root}/more`, kind: 'more', column: 1, name: omitted(rest, isWhole ? fact : undefined, drawn), parent: root,
        path: filters.plugin === group.id ? `storage?view=table&plugin=${encodeURIComponent(group.id)}` : `storage?plugin=${encodeURIComponent(group.id)}`,
      });
      row += 1;
    }
    if (row === begun) row += 1;
    row += 0.3;
  }
  row = hosts(content, filters, narrowed, open, Math.max(0, budget - things.length), row, things);
  return { things, arrows, rows: Math.max(0, row), volumes };
}

interface HostRow {
  name: string;
  node: string;
  word: string;
  note: string;
  row: HostVolumeStub | undefined;
  holders: HostVolumeHolder[];
}

/** Adds the host volumes below their nodes. Returns the next row. */
function hosts(content: Content, filters: Filters, narrowed: boolean, open: Set<string>, budget: number, begin: number, things: Thing[]): number {
  const { nodes: names } = content;
  if (filters.phase || filters.failed || filters.waits) return begin;
  const dynamic = content.hostVolumes
    .filter((row) => !filters.plugin || row.PluginID === filters.plugin)
    .filter((row) => !filters.trouble || row.State !== 'ready')
    .map((row): HostRow => ({
      name: row.Name, node: row.NodeID, word: row.State, row, holders: content.holders[row.ID] ?? [],
      note: [row.CapacityBytes > 0 && size(row.CapacityBytes), row.PluginID].filter((part) => part).join(', '),
    }));
  const fixed = filters.trouble || filters.plugin
    ? []
    : content.statics.map((row): HostRow => ({
        name: row.Name, node: row.NodeID, word: 'ready', row: undefined, holders: [], note: `configured${row.ReadOnly ? ', read only' : ''}`,
      }));
  const search = filters.search.toLowerCase();
  const node = (filters.node ?? '').toLowerCase();
  const fit = (one: HostRow) =>
    (!search || [one.name, one.row?.Namespace ?? '', ...one.holders.map((holder) => holder.JobID)].some((word) => word.toLowerCase().includes(search))) &&
    (!node || one.node.startsWith(node) || (names[one.node] ?? '').toLowerCase().includes(node));
  const rows = [...dynamic, ...fixed].filter((one) => !narrowed || fit(one));
  if (rows.length === 0 || budget < 4) return begin;
  const trouble = (one: HostRow) => Number(one.word === 'ready');
  rows.sort((one, two) => trouble(one) - trouble(two) || Number(!one.row) - Number(!two.row) || compare(one.node, two.node) || compare(one.name, two.name));
  const perNode = new Map<string, HostRow[]>();
  const hidden = new Map<string, number>();
  let left = budget - 2;
  let rest = 0;
  for (const one of rows) {
    const before = perNode.get(one.node);
    if (one.word === 'ready' && (before?.length ?? 0) >= CALM && !open.has(`host/${one.node}`)) {
      hidden.set(one.node, (hidden.get(one.node) ?? 0) + 1);
      continue;
    }
    const cost = 1 + Math.min(one.holders.length, CLAIMS) + (before ? 0 : 2);
    if (cost > left) {
      rest += 1;
      continue;
    }
    left -= cost;
    perNode.set(one.node, [...(before ?? []), one]);
  }
  let row = begin;
  const add = (thing: Partial<Thing> & Pick<Thing, 'key' | 'kind' | 'column' | 'name'>) =>
    things.push({ row, path: '', word: '', note: '', until: 0, parent: '', ...thing });
  add({ key: 'hosts', kind: 'plugin', column: 0, name: 'Host volumes', note: count(rows.length, 'volume') });
  const ids = [...perNode.keys()].toSorted((one, two) => compare(names[one] ?? one, names[two] ?? two));
  for (const id of ids) {
    const key = `host/${id}`;
    const own = perNode.get(id) ?? [];
    add({ key, kind: 'node', column: 1, name: names[id] ?? short(id), path: id && to.node(id), parent: 'hosts', note: count(own.length + (hidden.get(id) ?? 0), 'volume') });
    for (const one of own) {
      const name = one.row ? `host/${id}/${one.row.ID}` : `static/${id}/${one.name}`;
      add({
        key: name, kind: 'host', column: 2, name: one.name, parent: key, word: one.word, note: one.note,
        path: one.row ? to.hostVolume(one.row.ID, one.row.Namespace) : '', ...(one.row ? { host: one.row } : {}),
      });
      for (const holder of one.holders.slice(0, CLAIMS)) {
        add({
          key: `${name}/${holder.AllocID}/${holder.JobID}/${holder.TaskGroup}`, kind: 'claim', column: 3, parent: name,
          name: `${holder.JobID}${holder.AllocID && ` ${short(holder.AllocID)}`}`,
          path: holder.AllocID ? to.alloc(holder.AllocID) : to.job(holder.JobID, one.row?.Namespace ?? 'default'),
          word: holder.AllocID ? 'in use' : 'kept', note: `group ${holder.TaskGroup}`,
        });
        row += 1;
      }
      if (one.holders.length === 0) row += 1;
    }
    const more = hidden.get(id) ?? 0;
    if (more > 0) {
      add({ key: `${key}/more`, kind: 'more', column: 2, name: `${count(more, 'more volume')} without trouble`, parent: key, opens: key });
      row += 1;
    }
  }
  if (rest > 0) {
    add({ key: 'hosts/more', kind: 'more', column: 1, name: count(rest, 'more host volume'), path: 'storage?view=table', parent: 'hosts' });
    row += 1;
  }
  return row;
}
