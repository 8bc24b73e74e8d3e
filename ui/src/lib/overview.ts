// The counts of the overview.

import type { Counts, Overview } from '../api/types';

/** A count that leads to the list of its objects. */
export interface Tile {
  word: string;
  path: string;
  counts: Counts;
}

/** The counts and where they lead. */
const TILES: [word: string, path: string, of: (overview: Overview) => Counts | null][] = [
  ['Jobs', 'jobs', (all) => all.Jobs],
  ['Allocations', 'allocations', (all) => all.Allocations],
  ['Nodes', 'clients', (all) => all.Nodes],
  ['Evaluations', 'evaluations', (all) => all.Evaluations],
  ['Plugins', 'storage', (all) => all.Plugins],
  ['Volumes', 'storage', (all) => all.Volumes],
  ['Claims', 'storage', (all) => all.Claims],
];

/** Returns the counts of what the user may read. The servers count nothing else. */
export function tiles(overview: Overview): Tile[] {
  return TILES.flatMap(([word, path, of]) => {
    const counts = of(overview);
    return counts ? [{ word, path, counts }] : [];
  });
}

/** Returns the number of all objects of a count. */
export function sum(counts: Counts): number {
  return Object.values(counts).reduce((total, number) => total + number, 0);
}
