// The items of a variable as JSON text.

/** Returns items as JSON; those without a key are left out. */
export function writeItems(items: { key: string; value: string }[]): string {
  return JSON.stringify(Object.fromEntries(items.filter((item) => item.key !== '').map((item) => [item.key, item.value])), null, 2);
}

/** Reads items from JSON, or returns why the text holds none. */
export function readItems(text: string): Record<string, string> | string {
  if (text.trim() === '') return {};
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch (error) {
    return `This is no JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof read !== 'object' || read === null || Array.isArray(read)) return 'The items must be a JSON object.';
  const wrong = Object.entries(read).find(([, value]) => typeof value !== 'string');
  if (wrong) return `The value of ${JSON.stringify(wrong[0])} must be a text.`;
  return read as Record<string, string>;
}

/** A key of two versions of a variable. */
export interface Side {
  key: string;
  /** Absent if the version has no such key. */
  mine: string | undefined;
  theirs: string | undefined;
}

/** Returns the keys of two versions, sorted, those that differ first. */
export function sides(mine: Record<string, string>, theirs: Record<string, string>): Side[] {
  const keys = [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].toSorted();
  const all = keys.map((key) => ({ key, mine: mine[key], theirs: theirs[key] }));
  return [...all.filter((side) => side.mine !== side.theirs), ...all.filter((side) => side.mine === side.theirs)];
}
