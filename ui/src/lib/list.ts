// Lists in pages: the address of the page as parameters of the API, and the place of a page in its list.

/** The rows of a page without another number in the address. */
export const PAGE = 100;
const MOST = 1000;

/** The keys of lists of allocations that tables show. */
export const ALLOC_KEYS = ['id', 'job', 'group', 'status', 'version', 'node', 'modify', 'create', 'name'];

/** The keys of lists of evaluations that tables show. */
export const EVAL_KEYS = ['id', 'job', 'status', 'triggered', 'priority', 'create'];

/** The keys of lists of the services of a job that tables show. */
export const SERVICE_KEYS = ['service', 'address', 'allocation'];

/** How a list is ordered: a key of the API, and whether it descends. */
export interface Order {
  key: string;
  desc: boolean;
}

/** The parameters of an address that name the order and the page of a list. They are those of Nomad's page. */
export interface Names {
  sort: string;
  desc: string;
  cursor: string;
  page: string;
}

/** The parameters of the list of a page, and of the list of host volumes beside another one. */
export const MAIN: Names = { sort: 'sort', desc: 'desc', cursor: 'cursorAt', page: 'page' };
export const HOSTS: Names = { sort: 'dhvSortProperty', desc: 'dhvSortDescending', cursor: 'dhvCursorAt', page: 'dhvPage' };

/** The parameters of the first pages of all lists: another filter begins there. */
export const FIRST: Record<string, string> = { cursorAt: '', nextToken: '', page: '', dhvCursorAt: '', dhvPage: '' };

/** Returns the token of the page that an address names; empty for the first one. */
export function cursor(query: URLSearchParams, names = MAIN): string {
  return query.get(names.cursor) || (names === MAIN && query.get('nextToken')) || '';
}

/** Returns the number of the page that an address names. */
export function number(query: URLSearchParams, names = MAIN): number {
  return Math.max(1, Math.trunc(Number(query.get(names.page) ?? '1')) || 1);
}

/** Returns the order that an address names, if the list knows its key. */
export function order(query: URLSearchParams, keys: readonly string[], names = MAIN): Order | undefined {
  const key = query.get(names.sort) ?? '';
  return keys.includes(key) ? { key, desc: query.get(names.desc) === 'true' } : undefined;
}

/** Returns how many rows a page of an address has. */
export function pageSize(query: URLSearchParams): number {
  const size = Number(query.get('pageSize'));
  return Number.isInteger(size) && size > 0 ? Math.min(size, MOST) : PAGE;
}

/** Returns the parameters of the API for the page of a list that an address names, with the number of all rows. */
export function paged(query: URLSearchParams, keys: readonly string[], newest = false, names = MAIN): Record<string, string | number | boolean> {
  const sort = order(query, keys, names);
  return {
    per_page: pageSize(query),
    next_token: cursor(query, names),
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
export function place(query: URLSearchParams, shown: number, total: number | undefined, names = MAIN): string {
  if (total === undefined) return '';
  const all = total.toLocaleString('en');
  if (shown === 0) return total === 0 ? '' : `none of ${all}`;
  const at = number(query, names);
  // An address from elsewhere names the start of the page, but not its number.
  if (cursor(query, names) && at === 1) return `${shown.toLocaleString('en')} of ${all}`;
  const from = (at - 1) * pageSize(query) + 1;
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

/** Returns a regular expression that matches a text as it is. */
export function quotedPattern(value: string): string {
  return value.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

/** Returns the expression that one of some fields contains a text, whatever its case. A list of short rows can afford it. */
export function finds(fields: string[], value: string | null): string {
  const desired = (value ?? '').trim();
  if (!desired) return '';
  const pattern = text(`(?i)${quotedPattern(desired)}`);
  return `(${fields.map((field) => `${field} matches ${pattern}`).join(' or ')})`;
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
