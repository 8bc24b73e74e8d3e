// What the palette has found, and its order.

import { isBeginning } from './beginning';
import { to } from './route';

export interface Entry {
  kind: string;
  name: string;
  /** The path below `/ui/`. */
  path: string;
  /** What the entry does instead of leading to its path. */
  act?: () => void;
}

/** Returns how well a name fits a text: 0 for not at all, more is better. */
export function score(name: string, text: string): number {
  const [lower, desired] = [name.toLowerCase(), text.toLowerCase()];
  if (desired === '') return 1;
  if (lower === desired) return 100;
  if (lower.startsWith(desired)) return 80;
  const at = lower.indexOf(desired);
  if (at > 0) return /[^a-z0-9]/.test(lower[at - 1] ?? '') ? 70 : 50;
  // All letters in their order.
  let from = 0;
  for (const letter of desired) {
    from = lower.indexOf(letter, from) + 1;
    if (from === 0) return 0;
  }
  return 20;
}

/** Returns the entries that fit, best first, shorter names before longer ones. */
export function rankEntries(entries: Entry[], text: string): Entry[] {
  const desired = text.trim();
  return entries
    .map((entry) => ({ entry, value: score(entry.name, desired) }))
    .filter(({ value }) => value > 0)
    .sort((one, two) => two.value - one.value || (desired ? one.entry.name.length - two.entry.name.length : 0))
    .map(({ entry }) => entry);
}

interface Match {
  ID: string;
  Scope?: string[] | null;
}

/** The answer of the search by names. */
export type Named = Record<string, Match[] | null>;

/** The answer of the search by beginnings of ids. */
export type ById = Record<string, string[] | null>;

/** Returns whether a text may be the beginning of an id, or a whole one. */
export function mayBeId(text: string): boolean {
  return isBeginning(text) || isBeginning(text.slice(0, 35));
}

/** Returns the entries of the objects whose names contain a text. */
export function named(matches: Named): Entry[] {
  const list = (kind: string) => matches[kind] ?? [];
  return [
    ...list('jobs').map((row) => ({ kind: 'job', name: row.ID, path: to.job(row.ID, row.Scope?.[0] ?? 'default') })),
    ...list('nodes').map((row) => ({ kind: 'node', name: row.ID, path: to.node(row.Scope?.[0] ?? row.ID) })),
    ...list('allocs').map((row) => ({ kind: 'allocation', name: row.ID, path: to.alloc(row.Scope?.[1] ?? row.ID) })),
    ...list('volumes').map((row) => ({ kind: 'volume', name: row.ID, path: to.volume(row.ID, row.Scope?.[0] ?? 'default') })),
    ...list('plugins').map((row) => ({ kind: 'plugin', name: row.ID, path: to.plugin(row.ID) })),
    ...list('vars').map((row) => ({ kind: 'variable', name: row.ID, path: to.variable(row.ID, row.Scope?.[0] ?? 'default') })),
  ];
}

const BY_ID: [kinds: string, kind: string, path: (id: string) => string][] = [
  ['allocs', 'allocation', (id) => to.alloc(id)],
  ['nodes', 'node', (id) => to.node(id)],
  ['evals', 'evaluation', (id) => to.eval(id)],
  // The answer does not name the job: the address finds it.
  ['deployment', 'deployment', (id) => `deployments/${id}`],
];

/** Returns the entries of the objects whose ids begin with a text. Servers find nodes by the beginnings of their names too. */
export function byId(matches: ById, text: string): Entry[] {
  const start = text.toLowerCase();
  return BY_ID.flatMap(([kinds, kind, path]) =>
    (matches[kinds] ?? []).filter((id) => id.startsWith(start)).map((id) => ({ kind, name: id, path: path(id) })),
  );
}

/** Returns entries without those that lead where an earlier one leads: a node may be found by its name and its id. */
export function distinct(entries: Entry[]): Entry[] {
  const seen = new Set<string>();
  return entries.filter(({ kind, path }) => {
    const name = `${kind}/${path}`;
    return !seen.has(name) && seen.add(name);
  });
}
