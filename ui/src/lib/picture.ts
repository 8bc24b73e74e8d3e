// The storage map as a picture: plugins, nodes, volumes and claims in columns. Positions come from the tree, so the work is
// that of one pass over the volumes.

import type { HostVolumeStub, Needs, PluginFacts } from '../api/generated';
import type { Claim, PluginRow, VolumeExplain } from '../api/types';
import { hostRows, hostTree, isNarrow, type HostContent, type HostRow } from './hosts';
import { to } from './route';
import { claimRank, fits, held, rank, type Filters, type MapVolume } from './storage';
import { count, millis, short, size } from './words';

/** The most things that a picture draws at once. */
export const DRAWN = 300;
/** The most volumes without trouble that one node shows until the user opens it. */
export const CALM = 8;
/** The most claims that one volume shows until the user opens it. */
export const CLAIMS = 4;
/** The most claims of a volume that the user opened. Its page has all of them. */
const OPEN_CLAIMS = 60;
/** The most plugins whose lanes are drawn although the plugin has no trouble and no calls. */
const QUIET_LANES = 12;
/** The most names of unhealthy nodes in a lane. */
const SICK_NAMES = 3;

export type Kind = 'plugin' | 'lane' | 'node' | 'volume' | 'host' | 'claim' | 'more';

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
  /** The parameters of the map that show what the thing stands for; empty values are removed. */
  query?: Record<string, string>;
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
export interface Content extends HostContent {
  plugins: PluginRow[];
  volumes: MapVolume[];
  facts: Record<string, PluginFacts>;
  /** The places of the volumes in the servers' ranked list; absent if the list is in another order. */
  places?: string[];
  /** The number of volumes in the ranked list before these, and on all pages. */
  before?: number;
  listed?: number;
  /** The number of host volumes that the servers leave out. */
  omittedHosts?: number;
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

/** Returns the node below which a volume is drawn: that of the mounted claim with the lowest allocation id, or of any claim. The
 * servers count volumes by the same node. */
export function home(volume: VolumeExplain): string {
  const all = held(volume).toSorted((one, two) => Number(two.Phase === 'mounted') - Number(one.Phase === 'mounted') || compare(one.AllocID, two.AllocID));
  return all[0]?.NodeID ?? '';
}

/** What is drawn, and what remains. */
interface Choice {
  groups: Map<string, OfPlugin>;
  /** The rest of the budget. */
  left: number;
  /** The first volume that does not fit; `undefined` if all do. */
  cut: MapVolume | undefined;
  /** The number of volumes of the list that are drawn, or stand for others of their node. */
  taken: number;
}

/** Chooses what is drawn: the worst first, until the budget is used. */
function choose(volumes: MapVolume[], sick: Set<string>, open: Set<string>, isRanked: boolean, isHome: boolean, budget: number): Choice {
  const ranks = volumes.map((volume) => ({ volume, rank: Math.max(rank(volume), sick.has(volume.PluginID) ? 1 : 0) }));
  // The order of the servers stays within a rank.
  ranks.sort((one, two) => two.rank - one.rank || (isRanked ? 0 : compare(one.volume.ID, two.volume.ID)));
  const groups = new Map<string, OfPlugin>();
  let left = budget;
  let taken = 0;
  let cut: MapVolume | undefined;
  for (const { volume, rank: own } of ranks) {
    const all = ordered(held(volume));
    const node = home(volume);
    const key = `volume/${volume.Namespace}/${volume.ID}`;
    const most = open.has(key) ? OPEN_CLAIMS : CLAIMS;
    const claims = all.slice(0, most);
    const plugin = groups.get(volume.PluginID);
    const on = plugin?.nodes.get(node);
    const isOpen = isHome || open.has(`node/${volume.PluginID}/${node}`);
    if (own <= 1 && on && !isOpen && on.volumes.filter((row) => row.rank <= 1).length >= CALM) {
      on.more += 1;
      taken += 1;
      continue;
    }
    const more = all.length - claims.length;
    const cost = 1 + claims.length + Math.min(volume.Blocked?.length ?? 0, most) + Math.min(more, 1) + (plugin ? 0 : 1) + (on ? 0 : 2);
    // A smaller one of less importance does not overtake.
    if (cost > left) {
      cut = volume;
      break;
    }
    left -= cost;
    taken += 1;
    const group = plugin ?? { id: volume.PluginID, worst: own, nodes: new Map<string, OnNode>() };
    groups.set(volume.PluginID, group);
    const place = on ?? { id: node, worst: own, volumes: [], more: 0 };
    group.nodes.set(node, place);
    place.volumes.push({ volume, rank: own, claims, more });
  }
  return { groups, left, cut, taken };
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
function omitted(number: number, needs: Needs | undefined, drawn: Chosen[]): string {
  const words = count(number, 'more volume');
  if (!needs) return words;
  const seen = (of: number) => drawn.filter((row) => row.rank === of).length;
  const kinds = [
    ['failed', needs.Failed - seen(5)],
    ['waiting', needs.Waiting - seen(4)],
    ['fencing', needs.Fencing - seen(3)],
    ['changing', needs.Changing - seen(2)],
  ] as const;
  const parts = kinds.filter(([, left]) => left > 0).map(([word, left]) => `${left.toLocaleString('en')} ${word}`);
  return parts.length ? `${words}: ${parts.join(', ')}` : words;
}

const total = (needs: Needs | undefined) => (needs ? needs.Failed + needs.Waiting + needs.Fencing + needs.Changing + needs.Rest : 0);

/** A lane of a plugin. */
export interface LaneRow {
  name: string;
  word: string;
  note: string;
}

/** Returns the lanes of a plugin: the health of its controllers and of its parts on nodes, and the calls of the servers to it. */
export function lanesOf(plugin: PluginRow, facts: PluginFacts | undefined, names: Record<string, string>): LaneRow[] {
  const part = (name: string, healthy: number, expected: number, rest = ''): LaneRow => ({
    name, word: healthy >= expected ? 'healthy' : 'unhealthy', note: `${healthy} of ${expected}${rest}`,
  });
  const sick = (facts?.Sick ?? []).map((id) => names[id] ?? short(id));
  const more = sick.length > SICK_NAMES ? ` and ${sick.length - SICK_NAMES} more` : '';
  const silent = sick.length ? `, not on ${sick.slice(0, SICK_NAMES).join(', ')}${more}` : '';
  return [
    ...(plugin.ControllerRequired ? [part('Controllers', plugin.ControllersHealthy, plugin.ControllersExpected)] : []),
    part('Nodes', plugin.NodesHealthy, plugin.NodesExpected, silent),
    ...(facts?.Lanes ?? []).map((lane) => ({
      name: `Calls: ${lane.Lane}`,
      word: lane.Waiting > 0 ? 'waits' : 'running',
      note: `${lane.Running} of ${lane.Limit}${lane.Waiting > 0 ? `, ${count(lane.Waiting, 'call')} behind` : ''}`,
    })),
  ];
}

/**
 * Lays out the picture. `open` has the keys of groups that the user opened. `isWhole`: the numbers of the facts are those of the
 * selected volumes.
 */
export function picture(content: Content, filters: Filters, open: Set<string> = new Set(), isWhole = true, budget = DRAWN): Picture {
  const { plugins, facts, nodes: names, before = 0 } = content;
  const known = new Map(plugins.map((plugin) => [plugin.ID, plugin]));
  const sick = new Set(plugins.filter((plugin) => !isHealthy(plugin)).map((plugin) => plugin.ID));
  const narrowed = isNarrow(filters) || before > 0;
  const selected = content.volumes.filter((volume) => fits(volume, filters, names));
  const isChosen = (id: string) => !filters.plugin || filters.plugin === id;
  // Lanes of plugins with trouble or calls come first, those of the others while there is space.
  const lanes = new Map<string, LaneRow[]>();
  for (const plugin of plugins) {
    const isLoud = sick.has(plugin.ID) || (facts[plugin.ID]?.Lanes ?? []).length > 0;
    if (isChosen(plugin.ID) && (isLoud || plugins.length <= QUIET_LANES)) lanes.set(plugin.ID, lanesOf(plugin, facts[plugin.ID], names));
  }
  const most = Math.floor(budget / 6);
  // A line about what is left out may follow each plugin, and the host volumes and the rest of the plugins have one.
  const reserve = Math.min(plugins.length, 20) + 2;
  const laneBudget = Math.min(most, [...lanes.values()].reduce((sum, own) => sum + own.length, 0));
  const { groups, left, cut, taken } = choose(selected, sick, open, content.places !== undefined, Boolean(filters.home), budget - reserve - laneBudget);
  const cutAt = cut && content.places ? (content.places[content.volumes.indexOf(cut)] ?? '') : '';
  let budgetLeft = left + reserve - groups.size;
  let lanesLeft = laneBudget;
  const numbers = new Map<string, number>();
  for (const volume of selected) numbers.set(volume.PluginID, (numbers.get(volume.PluginID) ?? 0) + 1);
  let missing = 0;
  for (const plugin of plugins) {
    if (!isChosen(plugin.ID) || groups.has(plugin.ID)) continue;
    const has = numbers.has(plugin.ID) || (isWhole && total(facts[plugin.ID]) > 0);
    if (!narrowed && budgetLeft >= 3) {
      groups.set(plugin.ID, { id: plugin.ID, worst: sick.has(plugin.ID) ? 1 : 0, nodes: new Map() });
      budgetLeft -= 2;
    } else if (!narrowed || (has && before === 0)) missing += 1;
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
    const own = (lanes.get(group.id) ?? []).slice(0, lanesLeft);
    lanesLeft -= own.length;
    own.forEach((lane, at) =>
      add({
        key: `${root}/lane/${lane.name}`, kind: 'lane', column: 0, row: begun + 1 + at, name: lane.name, word: lane.word, note: lane.note, parent: root,
        path: to.plugin(group.id),
      }),
    );
    const drawn: Chosen[] = [];
    /** The volumes of the nodes that are drawn. */
    let onNodes = 0;
    const sorted = [...group.nodes.values()].toSorted(
      (one, two) => two.worst - one.worst || Number(one.id === '') - Number(two.id === '') || compare(nodeName(one.id), nodeName(two.id)),
    );
    for (const node of sorted) {
      const key = `node/${group.id}/${node.id}`;
      const isSick = Boolean(node.id && fact?.Sick.includes(node.id));
      const needs = isWhole ? fact?.Homes?.[node.id] : undefined;
      // Without the servers' numbers, those of the volumes at hand count.
      const all = Math.max(total(needs), node.volumes.length + node.more);
      onNodes += all;
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
        for (const job of (volume.Blocked ?? []).slice(0, open.has(own) ? OPEN_CLAIMS : CLAIMS)) {
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
          const opening = open.has(own) ? { path: to.volume(volume.ID, volume.Namespace) } : { opens: own };
          add({ key: `${own}/more`, kind: 'more', column: 3, name: count(more, 'more claim'), parent: own, ...opening });
          row += 1;
        }
        if (row === begunAt) row += 1;
      }
      // The list of one node goes on after the last volume that fits.
      const rest = filters.home ? 0 : all - node.volumes.length;
      if (rest > 0) {
        const text = omitted(rest, needs, node.volumes);
        const opening = open.has(key) ? { query: { plugin: group.id, home: node.id || 'none', from: '', open: '' } } : { opens: key };
        add({ key: `${key}/more`, kind: 'more', column: 2, name: text.includes(':') ? text : `${text} without trouble`, parent: key, ...opening });
        row += 1;
      }
    }
    volumes += drawn.length;
    // A later page of the list, or the list of one node, counts what follows.
    const isPage = before > 0 || Boolean(filters.home);
    const rest = isPage
      ? filters.plugin === group.id ? (content.listed ?? 0) - before - taken : 0
      : (isWhole && fact ? total(fact) : (numbers.get(group.id) ?? 0)) - onNodes;
    if (rest > 0) {
      const query: Record<string, string> = filters.plugin === group.id && cutAt ? { from: cutAt, open: '' } : { plugin: group.id };
      add({
        key: `${root}/more`, kind: 'more', column: 1, parent: root, query,
        name: isPage || !isWhole ? count(rest, 'more volume') : omitted(rest, fact && without(fact, group, isWhole), []),
      });
      row += 1;
    }
    row = Math.max(row, begun + 1 + own.length) + 0.3;
  }
  if (missing > 0 || (cutAt && !filters.plugin && before > 0)) {
    const name = missing > 0 ? count(missing, 'more plugin') : 'More volumes';
    add({ key: 'plugins/more', kind: 'more', column: 0, name, query: cutAt ? { from: cutAt, open: '' } : { view: 'tree' } });
    row += 1.3;
  }
  row = hosts(content, filters, open, Math.max(0, budget - things.length), row, things);
  return { things, arrows, rows: Math.max(0, row), volumes };
}

/** Returns the needs of a plugin's volumes on nodes that are not drawn. */
function without(fact: PluginFacts, group: OfPlugin, isWhole: boolean): Needs {
  const out = { Failed: fact.Failed, Waiting: fact.Waiting, Fencing: fact.Fencing, Changing: fact.Changing, Rest: fact.Rest };
  for (const node of group.nodes.values()) {
    const needs = isWhole ? fact.Homes?.[node.id] : undefined;
    if (needs) for (const key of Object.keys(out) as (keyof Needs)[]) out[key] -= needs[key];
    else for (const row of node.volumes) if (row.rank >= 2) out[(['Changing', 'Fencing', 'Waiting', 'Failed'] as const)[row.rank - 2] ?? 'Rest'] -= 1;
  }
  return out;
}

/** Adds the host volumes below their nodes. Returns the next row. */
function hosts(content: Content, filters: Filters, open: Set<string>, budget: number, begin: number, things: Thing[]): number {
  const { nodes: names } = content;
  const rows = hostRows(content, filters);
  if (rows.length === 0 || budget < 4) return begin;
  const shown: HostRow[] = [];
  const numbers = new Map<string, number>();
  const hidden = new Map<string, number>();
  let left = budget - 2;
  let rest = content.omittedHosts ?? 0;
  for (const one of rows) {
    const before = numbers.get(one.node) ?? 0;
    if (one.word === 'ready' && before >= CALM && !open.has(`host/${one.node}`)) {
      hidden.set(one.node, (hidden.get(one.node) ?? 0) + 1);
      continue;
    }
    const cost = 1 + Math.min(one.holders.length, CLAIMS) + (before ? 0 : 2);
    if (cost > left) {
      rest += 1;
      continue;
    }
    left -= cost;
    numbers.set(one.node, before + 1);
    shown.push(one);
  }
  let row = begin;
  const add = (thing: Partial<Thing> & Pick<Thing, 'key' | 'kind' | 'column' | 'name'>) =>
    things.push({ row, path: '', word: '', note: '', until: 0, parent: '', ...thing });
  add({ key: 'hosts', kind: 'plugin', column: 0, name: 'Host volumes', note: count(rows.length + (content.omittedHosts ?? 0), 'volume') });
  for (const { node: id, rows: own } of hostTree(shown, names)) {
    const key = `host/${id}`;
    const more = hidden.get(id) ?? 0;
    add({ key, kind: 'node', column: 1, name: names[id] ?? short(id), path: id && to.node(id), parent: 'hosts', note: count(own.length + more, 'volume') });
    for (const one of own) {
      add({
        key: one.key, kind: 'host', column: 2, name: one.name, parent: key, word: one.word, note: one.note,
        path: one.row ? to.hostVolume(one.row.ID, one.row.Namespace) : '', ...(one.row ? { host: one.row } : {}),
      });
      for (const holder of one.holders.slice(0, CLAIMS)) {
        add({
          key: `${one.key}/${holder.AllocID}/${holder.JobID}/${holder.TaskGroup}`, kind: 'claim', column: 3, parent: one.key,
          name: `${holder.JobID}${holder.AllocID && ` ${short(holder.AllocID)}`}`,
          path: holder.AllocID ? to.alloc(holder.AllocID) : to.job(holder.JobID, one.ns || 'default'),
          word: holder.AllocID ? 'in use' : 'kept', note: `group ${holder.TaskGroup}`,
        });
        row += 1;
      }
      if (one.holders.length === 0) row += 1;
    }
    if (more > 0) {
      add({ key: `${key}/more`, kind: 'more', column: 2, name: `${count(more, 'more volume')} without trouble`, parent: key, opens: key });
      row += 1;
    }
  }
  if (rest > 0) {
    add({ key: 'hosts/more', kind: 'more', column: 1, name: count(rest, 'more host volume'), query: { view: 'table' }, parent: 'hosts' });
    row += 1;
  }
  return row;
}
