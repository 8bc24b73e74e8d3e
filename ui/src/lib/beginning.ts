// Addresses that name the beginning of an id: the lists to search, and the address of the whole id.

import { to, type Route } from './route';

/** The kinds of objects whose ids are UUIDs. */
export type IdKind = 'allocation' | 'node' | 'evaluation' | 'deployment';

/** What an address names instead of a whole id. */
export interface Beginning {
  kind: IdKind;
  text: string;
}

/** An object that was found, as its list shows it. */
export interface Candidate {
  ID: string;
  Name?: string;
  JobID?: string;
  Namespace?: string;
  Status?: string;
  ClientStatus?: string;
}

/** The number of objects that a choice shows. */
const CHOICES = 20;

/** Returns whether a text can be the beginning of a UUID, but not a whole one. Fewer than four digits say too little. */
export function isBeginning(text: string): boolean {
  return /^[0-9a-f]{4}[0-9a-f-]{0,31}$/i.test(text);
}

/** Returns what an address names by the beginning of its id. The address of a deployment without its job always needs a lookup. */
export function beginning(route: Route, query: URLSearchParams): Beginning | undefined {
  const of = (kind: IdKind, text: string) => (isBeginning(text) ? { kind, text } : undefined);
  switch (route.page) {
    case 'allocation':
      return of('allocation', route.id);
    case 'node':
      return of('node', route.id);
    case 'evaluations':
      return of('evaluation', query.get('currentEval') || route.id);
    case 'job':
      return route.tab === 'deployments' ? of('deployment', route.rest[0] ?? '') : undefined;
    case 'deployment':
      return { kind: 'deployment', text: route.id };
    default:
      return undefined;
  }
}

const ROUTES: Record<IdKind, string> = { allocation: 'allocations', node: 'nodes', evaluation: 'evaluations', deployment: 'deployments' };

/** Returns the route that lists the candidates. Servers take prefixes of whole bytes only, so a filter checks the last digit. */
export function lookup({ kind, text }: Beginning): string {
  const start = text.toLowerCase();
  const isOdd = start.replaceAll('-', '').length % 2 === 1;
  const query = new URLSearchParams({ prefix: isOdd ? start.replace(/[0-9a-f](-*)$/, '') : start, per_page: String(CHOICES) });
  if (kind !== 'node') query.set('namespace', '*');
  if (isOdd) query.set('filter', `ID matches ${JSON.stringify(`^${start}`)}`);
  return `${ROUTES[kind]}?${query.toString()}`;
}

/** Returns the address of a candidate: that of the beginning, with the whole id. `path` and `search` are those of the current address. */
export function whole({ kind }: Beginning, found: Candidate, path: string, search: string): string {
  switch (kind) {
    case 'evaluation': {
      const query = new URLSearchParams(search);
      query.set('currentEval', found.ID);
      return `evaluations?${query.toString()}`;
    }
    case 'deployment':
      return to.deployment(found.ID, found.JobID ?? '', found.Namespace ?? 'default') + search;
    default: {
      const words = path.split('/').filter((word) => word !== '');
      words[1] = found.ID;
      return words.join('/') + search;
    }
  }
}

/** Returns what a candidate is, for a choice between several. */
export function about(found: Candidate): string {
  return [found.Name ?? found.JobID, found.ClientStatus ?? found.Status].filter((word) => word).join(', ');
}
