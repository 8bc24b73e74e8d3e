// Host volumes: those that users created and those of the nodes' configurations, with the groups that hold them.

import type { HostVolumeHolder, HostVolumeRow, HostVolumeStub, StaticVolume } from '../api/generated';
import { finds, all } from './list';
import type { Filters } from './storage';
import { size } from './words';

/** Host volumes as the storage map has them. */
export interface HostContent {
  hostVolumes: HostVolumeStub[];
  holders: Record<string, HostVolumeHolder[]>;
  statics: StaticVolume[];
  /** The names of nodes by id. */
  nodes: Record<string, string>;
}

/** A host volume. */
export interface HostRow {
  /** Different for each volume. */
  key: string;
  name: string;
  /** Empty for a volume of a node's configuration. */
  ns: string;
  plugin: string;
  node: string;
  word: string;
  note: string;
  capacity: number;
  /** The volume that users created; absent for one of a node's configuration. */
  row: HostVolumeStub | undefined;
  holders: HostVolumeHolder[];
}

/** A node with its host volumes. */
export interface HostBranch {
  node: string;
  rows: HostRow[];
}

/** Compares without the rules of a language, which are slow for many names. */
function compare(one: string, two: string): number {
  return one < two ? -1 : one > two ? 1 : 0;
}

/** Returns whether filters select some volumes only. */
export function isNarrow(filters: Filters): boolean {
  return Boolean(filters.search || filters.phase || filters.trouble || filters.node || filters.failed || filters.waits || filters.home);
}

/** Returns the host volumes that the filters select, those in trouble first. */
export function hostRows(content: HostContent, filters: Filters): HostRow[] {
  // Host volumes have no claims, and no phases of these.
  if (filters.phase || filters.failed || filters.waits || filters.home) return [];
  const { nodes: names } = content;
  const dynamic = content.hostVolumes
    .filter((row) => !filters.plugin || row.PluginID === filters.plugin)
    .filter((row) => !filters.trouble || row.State !== 'ready')
    .map((row): HostRow => ({
      key: `host/${row.NodeID}/${row.ID}`, name: row.Name, ns: row.Namespace, plugin: row.PluginID, node: row.NodeID, word: row.State, row,
      capacity: row.CapacityBytes, holders: content.holders[row.ID] ?? [],
      note: [row.CapacityBytes > 0 && size(row.CapacityBytes), row.PluginID].filter((part) => part).join(', '),
    }));
  const fixed = filters.trouble || filters.plugin
    ? []
    : content.statics.map((row): HostRow => ({
        key: `static/${row.NodeID}/${row.Name}`, name: row.Name, ns: '', plugin: '', node: row.NodeID, word: 'ready', row: undefined, capacity: 0,
        holders: [], note: `configured${row.ReadOnly ? ', read only' : ''}`,
      }));
  const search = filters.search.toLowerCase();
  const node = (filters.node ?? '').toLowerCase();
  const fit = (one: HostRow) =>
    (!search || [one.name, one.ns, ...one.holders.map((holder) => holder.JobID)].some((word) => word.toLowerCase().includes(search))) &&
    (!node || one.node.startsWith(node) || (names[one.node] ?? '').toLowerCase().includes(node));
  const trouble = (one: HostRow) => Number(one.word === 'ready');
  return [...dynamic, ...fixed]
    .filter(fit)
    .toSorted((one, two) => trouble(one) - trouble(two) || Number(!one.row) - Number(!two.row) || compare(one.node, two.node) || compare(one.name, two.name));
}

/** The keys by which the servers sort host volumes, and the order without a choice. */
export const HOST_KEYS = ['name', 'namespace', 'node', 'plugin', 'state', 'capacity'];
export const HOST_ORDER = 'trouble,configured,node,name';

/** Returns a row of the servers' list. */
export function listed(row: HostVolumeRow): HostRow {
  const own = row.Configured ? undefined : row;
  const note = own
    ? [row.CapacityBytes > 0 && size(row.CapacityBytes), row.PluginID].filter((part) => part).join(', ')
    : `configured${row.ReadOnly ? ', read only' : ''}`;
  return {
    key: own ? `host/${row.NodeID}/${row.ID}` : `static/${row.NodeID}/${row.Name}`, name: row.Name, ns: row.Namespace, plugin: row.PluginID,
    node: row.NodeID, word: row.State, note, capacity: row.CapacityBytes, row: own, holders: row.Holders,
  };
}

/** Returns the parameters of the servers' list for filters; `undefined` if no host volume can match. */
export function hostQuery(filters: Filters, filter = ''): Record<string, string | boolean | undefined> | undefined {
  // Host volumes have no claims, and no phases of these.
  if (filters.phase || filters.failed || filters.waits || filters.home) return undefined;
  const holder = finds(['h.JobID'], filters.search);
  const text = finds(['Name', 'Namespace'], filters.search);
  return {
    plugin_id: filters.plugin,
    node: filters.node,
    trouble: filters.trouble,
    filter: all(text && `(${text} or any Holders as h { ${holder} })`, finds(['Name'], filter)),
  };
}

/** Returns host volumes by node. The nodes have the order of their names. */
export function hostTree(rows: HostRow[], names: Record<string, string>): HostBranch[] {
  const by = new Map<string, HostRow[]>();
  for (const row of rows) {
    const own = by.get(row.node);
    if (own) own.push(row);
    else by.set(row.node, [row]);
  }
  return [...by.entries()].map(([node, own]) => ({ node, rows: own })).toSorted((one, two) => compare(names[one.node] ?? one.node, names[two.node] ?? two.node));
}
