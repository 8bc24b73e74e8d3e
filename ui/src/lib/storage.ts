// The storage map: plugins, their nodes, volumes and claims as a tree with a budget.

import type { Claim, PluginRow, VolumeExplain } from '../api/types';

/** The most volumes that one plugin shows at once. */
export const BUDGET = 60;

export interface Filters {
  search: string;
  plugin: string;
  phase: string;
  /** Only volumes that wait or failed. */
  trouble: boolean;
}

export interface Branch {
  plugin: PluginRow | undefined;
  id: string;
  volumes: VolumeExplain[];
  /** How many volumes are left out. */
  hidden: number;
}

/** Returns the claims that have not ended. */
export function held(volume: VolumeExplain): Claim[] {
  return (volume.Claims ?? []).filter((claim) => claim.Phase !== 'gone');
}

/** Returns how much a claim needs attention: higher is worse. */
export function claimRank(claim: Claim): number {
  if (claim.LastError) return 5;
  if (claim.Phase === 'fencing') return 4;
  if (claim.WaitsFor) return 3;
  return ['mounted', 'gone'].includes(claim.Phase) ? 0 : 2;
}

/** Returns how much a volume needs attention. */
export function rank(volume: VolumeExplain): number {
  const own = volume.LastError ? 5 : volume.Phase === 'ready' ? 0 : 2;
  return Math.max(own, ...(volume.Claims ?? []).map(claimRank));
}

function fits(volume: VolumeExplain, filters: Filters): boolean {
  const search = filters.search.toLowerCase();
  const words = [volume.ID, volume.Namespace, ...(volume.Claims ?? []).flatMap((claim) => [claim.JobID, claim.NodeID, claim.AllocID])];
  if (search && !words.some((word) => word.toLowerCase().includes(search))) return false;
  if (filters.plugin && volume.PluginID !== filters.plugin) return false;
  if (filters.trouble && rank(volume) === 0) return false;
  if (!filters.phase) return true;
  return volume.Phase === filters.phase || (volume.Claims ?? []).some((claim) => claim.Phase === filters.phase);
}

/** Builds the tree, trouble first. */
export function tree(plugins: PluginRow[], volumes: VolumeExplain[], filters: Filters, budget = BUDGET): Branch[] {
  const shown = volumes.filter((volume) => fits(volume, filters));
  const ids = new Set([...plugins.map((plugin) => plugin.ID), ...shown.map((volume) => volume.PluginID)]);
  const narrowed = Boolean(filters.search || filters.phase || filters.trouble);
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
