// The storage map: plugins, their nodes, volumes and claims as a tree with a budget.

import type { BlockedJob } from '../api/generated';
import type { Claim, PluginRow, VolumeExplain } from '../api/types';
import { all } from './list';

/** The most volumes that one plugin shows at once. */
export const BUDGET = 60;

export interface Filters {
  search: string;
  plugin: string;
  phase: string;
  /** The beginning of a node's id, or a part of its name. */
  node?: string;
  /** Only volumes that wait or failed. */
  trouble: boolean;
  /** Only volumes that failed, or with a claim that did. */
  failed?: boolean;
  /** Only volumes with a claim that waits. */
  waits?: boolean;
  /** Only volumes that are drawn below this node; `none` for those on no node. The servers select them. */
  home?: string;
}

export interface Branch {
  plugin: PluginRow | undefined;
  id: string;
  volumes: MapVolume[];
  /** How many volumes are left out. */
  hidden: number;
}

/** Returns the claims that have not ended. */
export function held(volume: VolumeExplain): Claim[] {
  return (volume.Claims ?? []).filter((claim) => claim.Phase !== 'gone');
}

/** How often a page asks again while it shows a duration that the servers count, in milliseconds. */
const COUNTING = 3000;

/** Returns how often an explanation is read again without an event: only while a call is in progress or a fence runs, because its
 * sentences tell how long. `calls`: other calls are shown. */
export function again(volumes: VolumeExplain[], calls = false): number | undefined {
  const counts = (volume: VolumeExplain) => (volume.Calls ?? []).length > 0 || held(volume).some((claim) => claim.FenceLeft > 0);
  return calls || volumes.some(counts) ? COUNTING : undefined;
}

/** Returns what ends the wait of a claim: `holder` for the end of the allocation that holds the volume, `plugin` for a look at the
 * plugin, `node` for its node, `step` for the step under way. */
export function advice(claim: Claim): ('holder' | 'plugin' | 'node' | 'step')[] {
  const out: ('holder' | 'plugin' | 'node')[] = [];
  if (claim.Holder) out.push('holder');
  if (claim.LastError) out.push('plugin');
  if (claim.Phase === 'fencing' || claim.FenceUntil > 0) out.push('node');
  return out.length ? out : ['step'];
}

/** Returns how much a claim needs attention: higher is worse. */
export function claimRank(claim: Claim): number {
  if (claim.LastError) return 5;
  if (claim.Phase === 'fencing') return 3;
  if (claim.WaitsFor) return 4;
  return ['mounted', 'gone'].includes(claim.Phase) ? 0 : 2;
}

/** A volume with the jobs that wait for a claim on it. */
export type MapVolume = VolumeExplain & { Blocked?: BlockedJob[] };

/** Adds the jobs that wait to their volumes. */
export function withBlocked(volumes: VolumeExplain[], blocked: BlockedJob[]): MapVolume[] {
  if (blocked.length === 0) return volumes;
  const key = (ns: string, id: string) => `${ns}/${id}`;
  const by = new Map<string, BlockedJob[]>();
  for (const job of blocked) by.set(key(job.Namespace, job.VolumeID), [...(by.get(key(job.Namespace, job.VolumeID)) ?? []), job]);
  return volumes.map((volume) => {
    const Blocked = by.get(key(volume.Namespace, volume.ID));
    return Blocked ? { ...volume, Blocked } : volume;
  });
}

/** Returns how much a volume needs attention. */
export function rank(volume: MapVolume): number {
  const own = volume.LastError ? 5 : volume.Blocked?.length ? 4 : volume.Phase === 'ready' ? 0 : 2;
  return Math.max(own, ...(volume.Claims ?? []).map(claimRank));
}

/** Returns the filter expression of the volumes that fit, for all pages of the map. `nodes` are the ids of the nodes that the
 * user means; `undefined` for any. */
export function mapFilter(search: string, phase: string, nodes: string[] | undefined): string {
  const text = (value: string) => JSON.stringify(value);
  // A volume without claims has none, not an empty list.
  const claims = (what: string) => `(Claims is not nil and any Claims as c { ${what} })`;
  return all(
    search && `(ID contains ${text(search)} or Namespace contains ${text(search)} or ${claims(`c.JobID contains ${text(search)} or c.AllocID contains ${text(search)}`)})`,
    phase && `(Phase == ${text(phase)} or ${claims(`c.Phase == ${text(phase)}`)})`,
    nodes && (nodes.length ? claims(nodes.map((id) => `c.NodeID == ${text(id)}`).join(' or ')) : 'ID == ""'),
  );
}

/** Returns whether a step of a volume or of one of its claims failed. */
export function hasFailed(volume: VolumeExplain): boolean {
  return Boolean(volume.LastError) || held(volume).some((claim) => Boolean(claim.LastError));
}

/** Returns whether a claim of a volume waits, or a job waits for one. */
export function doesWait(volume: MapVolume): boolean {
  return Boolean(volume.Blocked?.length) || held(volume).some((claim) => Boolean(claim.WaitsFor) || claim.Phase === 'fencing');
}

function isOn(volume: VolumeExplain, node: string, names: Record<string, string>): boolean {
  const ids = [...held(volume).map((claim) => claim.NodeID), ...Object.keys(volume.Usage ?? {})];
  return ids.some((id) => id.startsWith(node) || (names[id] ?? '').toLowerCase().includes(node.toLowerCase()));
}

/** Returns whether a volume is one of those that the filters select. */
export function fits(volume: MapVolume, filters: Filters, names: Record<string, string>): boolean {
  const search = filters.search.toLowerCase();
  const words = [volume.ID, volume.Namespace, ...(volume.Claims ?? []).flatMap((claim) => [claim.JobID, claim.NodeID, claim.AllocID]), ...(volume.Blocked ?? []).map((job) => job.JobID)];
  if (search && !words.some((word) => word.toLowerCase().includes(search))) return false;
  if (filters.plugin && volume.PluginID !== filters.plugin) return false;
  if (filters.node && !isOn(volume, filters.node, names)) return false;
  if (filters.failed && !hasFailed(volume)) return false;
  if (filters.waits && !doesWait(volume)) return false;
  if (filters.trouble && rank(volume) === 0) return false;
  if (!filters.phase) return true;
  return volume.Phase === filters.phase || (volume.Claims ?? []).some((claim) => claim.Phase === filters.phase);
}

/** Builds the tree, trouble first. */
export function tree(plugins: PluginRow[], volumes: MapVolume[], filters: Filters, budget = BUDGET, names: Record<string, string> = {}): Branch[] {
  const shown = volumes.filter((volume) => fits(volume, filters, names));
  const ids = new Set([...plugins.map((plugin) => plugin.ID), ...shown.map((volume) => volume.PluginID)]);
  const narrowed = Boolean(filters.search || filters.phase || filters.trouble || filters.node || filters.failed || filters.waits);
  const out: Branch[] = [];
  for (const id of ids) {
    if (filters.plugin && filters.plugin !== id) continue;
    const own = shown
      .filter((volume) => volume.PluginID === id)
      .sort((one, two) => rank(two) - rank(one) || one.ID.localeCompare(two.ID));
    if (own.length === 0 && narrowed) continue;
    const plugin = plugins.find((row) => row.ID === id);
    out.push({ plugin, id, volumes: own.slice(0, budget), hidden: Math.max(0, own.length - budget) });
  }
  const worst = (branch: Branch) => Math.max(0, ...branch.volumes.map(rank));
  return out.sort((one, two) => worst(two) - worst(one) || one.id.localeCompare(two.id));
}
