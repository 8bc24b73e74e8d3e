// Lists in pages: the address of the page as parameters of the API, and the place of a page in its list.

/** The rows of a page without another number in the address. */
export const PAGE = 100;
const MOST = 1000;

/** The keys of lists of allocations that tables show. */
export const ALLOC_KEYS = ['id', 'job', 'group', 'status', 'version', 'node', 'modify', 'create', 'name'];

/** How a list is ordered: a key of the API, and whether it descends. */
export interface Order {
  key: string;
  desc: boolean;
}

/** Returns the order that an address names, if the list knows its key. The names of parameters are those of Nomad's page. */
export function order(query: URLSearchParams, keys: readonly string[]): Order | undefined {
  const key = query.get('sort') ?? '';
  return keys.includes(key) ? { key, desc: query.get('desc') === 'true' } : undefined;
}

/** Returns how many rows a page of an address has. */
export function pageSize(query: URLSearchParams): number {
  const size = Number(query.get('pageSize'));
  return Number.isInteger(size) && size > 0 ? Math.min(size, MOST) : PAGE;
}

/** Returns the parameters of the API for the page of a list that an address names, with the number of all rows. */
export function paged(query: URLSearchParams, keys: readonly string[], newest = false): Record<string, string | number | boolean> {
  const sort = order(query, keys);
  return {
    per_page: pageSize(query),
    next_token: query.get('cursorAt') || query.get('nextToken') || '',
    count: true,
    // Under an order of the user, `reverse` would turn it around.
    ...(sort ? { sort: `${sort.desc ? '-' : ''}${sort.key}` } : { reverse: newest }),
  };
}

/** Returns the order after a choice of a column: first its usual direction, then the other one, then the list's own. */
export function chosen(before: Order | undefined, key: string, descFirst: boolean): Order | undefined {
  if (before?.key !== key) return { key, desc: descFirst };
  return before.desc === descFirst ? { key, desc: !descFirst } : undefined;
}

/** Returns the place of a page in words, such as `101–200 of 48,211`. */
export function place(query: URLSearchParams, shown: number, total: number | undefined): string {
  if (total === undefined) return '';
  const all = total.toLocaleString('en');
  if (shown === 0) return total === 0 ? '' : `none of ${all}`;
  const number = Math.max(1, Math.trunc(Number(query.get('page') ?? '1')) || 1);
  const isLater = Boolean(query.get('cursorAt') || query.get('nextToken'));
  // An address from elsewhere names the start of the page, but not its number.
  if (isLater && number === 1) return `${shown.toLocaleString('en')} of ${all}`;
  const from = (number - 1) * pageSize(query) + 1;
  // Rows that appeared or vanished meanwhile move the pages.
  if (from + shown - 1 > total) return `${shown.toLocaleString('en')} of ${all}`;
  return `${from.toLocaleString('en')}–${(from + shown - 1).toLocaleString('en')} of ${all}`;
}

/** Joins parts of a filter expression; empty ones are left out. */
export function all(...parts: (string | false | null | undefined)[]): string {
  return parts.filter((part) => part).join(' and ');
}

const text = (value: string) => JSON.stringify(value);

/** Returns the values of a parameter. Nomad's page writes several as a JSON list. */
export function values(value: string | null): string[] {
  if (!value) return [];
  if (!value.startsWith('[')) return [value];
  try {
    const read: unknown = JSON.parse(value);
    return Array.isArray(read) ? read.map(String) : [value];
  } catch {
    // A value that begins with a bracket.
    return [value];
  }
}

/** Returns the expression that a field has one of the values of a parameter. */
export function isOneOf(field: string, value: string | null): string {
  const parts = values(value).map((one) => `${field} == ${text(one)}`);
  return parts.length > 1 ? `(${parts.join(' or ')})` : (parts[0] ?? '');
}

/** Returns the expression that one of some fields contains a text. */
export function contains(fields: string[], value: string | null): string {
  if (!value) return '';
  const parts = fields.map((field) => `${field} contains ${text(value)}`);
  return parts.length === 1 ? (parts[0] ?? '') : `(${parts.join(' or ')})`;
}

/** Returns the expression that an allocation is on a node. Addresses of Nomad's page name nodes by the beginnings of their ids, several
 * as a JSON list. */
export function onNode(value: string | null): string {
  const nodes = values(value);
  const parts = nodes.flatMap((one) => [`NodeName == ${text(one)}`, ...(/^[0-9a-f-]{4,36}$/.test(one) ? [`NodeID matches ${text(`^${one}`)}`] : [])]);
  return parts.length > 1 ? `(${parts.join(' or ')})` : (parts[0] ?? '');
}

/** Returns the expression that an allocation is of a version of its job; a value that is no version finds nothing. */
export function version(value: string | null): string {
  const parts = values(value).map((one) => `Job.Version == ${/^\d+$/.test(one) ? one : -1}`);
  return parts.length > 1 ? `(${parts.join(' or ')})` : (parts[0] ?? '');
}

/** Returns an expression that the user typed, as part of a longer one. */
export function own(value: string | null): string {
  return value?.trim() ? `(${value.trim()})` : '';
}

/** Returns whether one of some words contains a text that the user looks for, whatever its case. */
export function fitsText(text: string | null, ...words: (string | undefined)[]): boolean {
  const desired = (text ?? '').trim().toLowerCase();
  return desired === '' || words.some((word) => word?.toLowerCase().includes(desired));
}
