// The order of what the palette has found.

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
