// The addresses of the page. An address is the state: page, object, tab and filters.

/** The pages. */
export type Page =
  | 'overview'
  | 'jobs'
  | 'run'
  | 'job'
  | 'group'
  | 'deployment'
  | 'allocations'
  | 'allocation'
  | 'nodes'
  | 'node'
  | 'storage'
  | 'volume'
  | 'host-volume'
  | 'new-volume'
  | 'plugin'
  | 'topology'
  | 'evaluations'
  | 'variables'
  | 'variable'
  | 'administration'
  | 'servers'
  | 'server'
  | 'exec'
  | 'sign-in'
  | 'settings'
  | 'error'
  | 'missing';

/** An address, taken apart. */
export interface Route {
  page: Page;
  /** The id of the object; empty on lists. */
  id: string;
  /** The namespace of the object; empty if the object has none. */
  ns: string;
  /** The tab, the task or the kind within the page; empty for the first one. */
  tab: string;
  /** What remains of the path: a task, a file. */
  rest: string[];
}

/** Splits `<id>@<namespace>` at the last `@`. Without one, the namespace is that of the address's parameter. */
export function splitId(text: string, otherwise = 'default'): { id: string; ns: string } {
  const at = text.lastIndexOf('@');
  return at > 0 ? { id: text.slice(0, at), ns: text.slice(at + 1) || 'default' } : { id: text, ns: otherwise };
}

function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

function route(page: Page, more: Partial<Route> = {}): Route {
  return { page, id: '', ns: '', tab: '', rest: [], ...more };
}

/** The tabs of a job, by their segment in the address. */
export const JOB_TABS = [
  'allocations',
  'placement',
  'definition',
  'versions',
  'deployments',
  'evaluations',
  'services',
  'variables',
  'volumes',
  'dispatch',
  'clients',
];

/** Reads a raw path below `/ui/`, whose segments are still percent-encoded. `namespace` is the parameter of the address, which
 * names the namespace of an object whose path has none. */
export function parse(path: string, namespace = ''): Route {
  const split = (text: string) => splitId(text, namespace && namespace !== '*' ? namespace : 'default');
  const words = path.replace(/^\/+|\/+$/g, '').split('/').filter((word) => word !== '').map(decode);
  const [first, second, third, ...rest] = words;
  switch (first) {
    case undefined:
      return route('overview');
    case 'jobs':
      if (second === undefined) return route('jobs');
      if (second === 'run') return route('run', { tab: third === 'templates' ? 'templates' : '', id: third === 'templates' ? (rest[0] ?? '') : '' });
      if (third === undefined || JOB_TABS.includes(third)) {
        return route('job', { ...split(second), tab: third ?? '', rest });
      }
      return route('group', { ...split(second), tab: third, rest });
    case 'deployments':
      // Nomad's page has no such address: ids are found without their job.
      return second === undefined ? route('jobs') : route('deployment', { id: second });
    case 'allocations':
      if (second === undefined) return route('allocations');
      return route('allocation', { id: second, tab: third ?? '', rest });
    case 'clients':
      if (second === undefined) return route('nodes');
      return route('node', { id: second, tab: third ?? '', rest });
    case 'servers':
      return second === undefined ? route('servers') : route('server', { id: second, tab: third ?? '' });
    case 'storage':
    case 'csi': {
      const kind = second === 'volumes' ? third : undefined;
      if (kind === 'new') return route('new-volume');
      if (kind === 'csi' && rest[0] !== undefined) return route('volume', split(rest[0]));
      if (kind === 'dynamic' && rest[0] !== undefined) return route('host-volume', split(rest[0]));
      // Old bookmarks name no kind.
      if (first === 'csi' && kind !== undefined) return route('volume', split(kind));
      if (second === 'plugins' && third !== undefined) return route('plugin', { id: third, tab: rest[0] ?? '' });
      return route('storage');
    }
    case 'topology':
      return route('topology');
    case 'evaluations':
      return route('evaluations', { id: second ?? '' });
    case 'variables': {
      const tail = [third, ...rest].filter((word) => word !== undefined);
      if (second === 'var') {
        const edit = tail.at(-1) === 'edit';
        return route('variable', { ...split((edit ? tail.slice(0, -1) : tail).join('/')), tab: edit ? 'edit' : '' });
      }
      if (second === 'new') return route('variable', { tab: 'new' });
      return route('variables', { id: second === 'path' ? tail.join('/') : '' });
    }
    case 'administration':
      return route('administration', { tab: second ?? '', id: third ?? '' });
    case 'exec':
      return route('exec', { ...split(second ?? ''), tab: third ?? '', rest });
    case 'settings':
      return second === 'user-settings' ? route('settings') : route('sign-in');
    case 'errors':
      return second === undefined ? route('missing', { id: path }) : route('error', { id: second });
    case 'sign-in':
      return route('sign-in');
    default:
      return route('missing', { id: path });
  }
}

const enc = encodeURIComponent;

/** The addresses of objects, relative to `/ui/`. */
export const to = {
  job: (id: string, ns: string, tab = '') => `jobs/${enc(id)}@${enc(ns)}${tab && `/${tab}`}`,
  deployment: (id: string, job: string, ns: string) => `jobs/${enc(job)}@${enc(ns)}/deployments/${enc(id)}`,
  /** The log of a group, or of the whole job. */
  groupLog: (id: string, ns: string, group = '') =>
    `jobs/${enc(id)}@${enc(ns)}/allocations/logs${group && `?taskGroup=${enc(group)}`}`,
  alloc: (id: string, tab = '') => `allocations/${enc(id)}${tab && `/${tab}`}`,
  files: (id: string, task: string) => `allocations/${enc(id)}/${task && `${enc(task)}/`}fs`,
  logs: (id: string, task: string) => `allocations/${enc(id)}/${enc(task)}/logs`,
  node: (id: string, tab = '') => `clients/${enc(id)}${tab && `/${tab}`}`,
  server: (name: string, tab = '') => `servers/${enc(name)}${tab && `/${tab}`}`,
  volume: (id: string, ns: string) => `storage/volumes/csi/${enc(id)}@${enc(ns)}`,
  hostVolume: (id: string, ns: string) => `storage/volumes/dynamic/${enc(id)}@${enc(ns)}`,
  plugin: (id: string) => `storage/plugins/${enc(id)}`,
  eval: (id: string) => `evaluations?currentEval=${enc(id)}`,
  error: (code: string) => `errors/${enc(code)}`,
  variable: (path: string, ns: string) => `variables/var/${path.split('/').map(enc).join('/')}@${enc(ns)}`,
};

/** Returns the link to a path below `root`, with parameters that the path does not name itself. */
export function link(root: URL, path: string, kept: readonly (readonly [string, string])[]): string {
  // Lists have hundreds of links: most have no parameters, and need no parser.
  if (kept.length === 0 && !/[?#]/.test(path)) return root.pathname + path;
  const url = new URL(path, root);
  for (const [name, value] of kept) {
    if (!url.searchParams.has(name)) url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

/** Which entry of the navigation a page belongs to. */
export function section(page: Page): string {
  switch (page) {
    case 'job':
    case 'group':
    case 'deployment':
    case 'run':
    case 'error':
    case 'exec':
      return 'jobs';
    case 'allocation':
      return 'allocations';
    case 'node':
      return 'nodes';
    case 'volume':
    case 'host-volume':
    case 'new-volume':
    case 'plugin':
      return 'storage';
    case 'variable':
      return 'variables';
    case 'server':
      return 'servers';
    default:
      return page;
  }
}
