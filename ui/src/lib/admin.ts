// The objects of the administration: their fields as text of a form, and back.

/** How a field is edited. `lines` holds one entry a line; `pairs` holds `name=value`, one a line. */
export type Edit = 'text' | 'long' | 'check' | 'lines' | 'pairs' | 'choice' | 'json' | 'span';

export interface Field {
  /** The name in the API; dots lead into nested objects. */
  key: string;
  label: string;
  edit: Edit;
  options?: string[];
  hint?: string;
  /** Whether the field is set once, when the object is created. */
  fixed?: boolean;
  required?: boolean;
}

export interface Kind {
  /** The segment in the address. */
  name: string;
  title: string;
  /** One object in words. */
  one: string;
  list: string;
  /** The topics of events about the objects. */
  topics: string[];
  /** The keys by which the servers sort the list, and the fields in which a text is found. */
  sorts: string[];
  finds: string[];
  /** The route of one object, without its id. */
  route: string;
  /** The field that names an object in routes. */
  id: 'Name' | 'ID' | 'AccessorID';
  method: 'PUT' | 'POST';
  /** The route that creates an object, if it is not the route of that object. */
  create?: string;
  command: string;
  fields: Field[];
  /** What follows from deleting an object. */
  deleting: string;
}

const NAME: Field = { key: 'Name', label: 'Name', edit: 'text', fixed: true, required: true };
const ABOUT: Field = { key: 'Description', label: 'Description', edit: 'text' };

export const KINDS: Kind[] = [
  {
    name: 'namespaces',
    title: 'Namespaces',
    one: 'namespace',
    list: 'namespaces',
    topics: ['Namespace'],
    sorts: ['name', 'description'],
    finds: ['Name', 'Description'],
    route: 'namespace',
    id: 'Name',
    method: 'PUT',
    create: 'namespace',
    command: 'caravan namespace',
    deleting: 'Only a namespace without jobs, volumes and variables can be deleted.',
    fields: [
      NAME,
      ABOUT,
      { key: 'Capabilities.EnabledTaskDrivers', label: 'Enabled task drivers', edit: 'lines', hint: 'empty: all' },
      { key: 'Capabilities.DisabledTaskDrivers', label: 'Disabled task drivers', edit: 'lines' },
      { key: 'NodePoolConfiguration.Default', label: 'Default node pool', edit: 'text' },
      { key: 'Meta', label: 'Metadata', edit: 'pairs' },
    ],
  },
  {
    name: 'policies',
    title: 'Policies',
    one: 'policy',
    list: 'acl/policies',
    topics: ['ACLPolicy'],
    sorts: ['name', 'description'],
    finds: ['Name', 'Description'],
    route: 'acl/policy',
    id: 'Name',
    method: 'PUT',
    command: 'caravan acl policy',
    deleting: 'Tokens and roles with the policy lose its rights at once.',
    fields: [
      NAME,
      ABOUT,
      { key: 'Rules', label: 'Rules', edit: 'long', required: true, hint: 'HCL, such as namespace "default" { policy = "read" }' },
      { key: 'JobACL.Namespace', label: 'For workloads of the namespace', edit: 'text' },
      { key: 'JobACL.JobID', label: 'For workloads of the job', edit: 'text' },
      { key: 'JobACL.Group', label: 'For workloads of the group', edit: 'text' },
      { key: 'JobACL.Task', label: 'For workloads of the task', edit: 'text' },
    ],
  },
  {
    name: 'roles',
    title: 'Roles',
    one: 'role',
    list: 'acl/roles',
    topics: ['ACLRole'],
    sorts: ['name', 'description'],
    finds: ['Name', 'Description'],
    route: 'acl/role',
    id: 'ID',
    method: 'PUT',
    create: 'acl/role',
    command: 'caravan acl role',
    deleting: 'Tokens with the role lose its rights at once.',
    fields: [
      { ...NAME, fixed: false },
      ABOUT,
      { key: 'Policies', label: 'Policies', edit: 'lines', required: true, hint: 'one name a line' },
    ],
  },
  {
    name: 'tokens',
    title: 'Tokens',
    one: 'token',
    list: 'acl/tokens',
    topics: ['ACLToken'],
    sorts: ['name', 'type', 'expires'],
    finds: ['Name', 'AccessorID'],
    route: 'acl/token',
    id: 'AccessorID',
    method: 'PUT',
    create: 'acl/token',
    command: 'caravan acl token',
    deleting: 'Its users lose their access at once.',
    fields: [
      { ...NAME, fixed: false },
      { key: 'Type', label: 'Type', edit: 'choice', options: ['client', 'management'], fixed: true },
      { key: 'Policies', label: 'Policies', edit: 'lines', hint: 'one name a line; a management token has none' },
      { key: 'Roles', label: 'Roles', edit: 'lines', hint: 'one name a line' },
      { key: 'Global', label: 'In all regions', edit: 'check', fixed: true },
      { key: 'ExpirationTTL', label: 'Ends after', edit: 'span', fixed: true, hint: 'such as 8h; empty: never' },
    ],
  },
  {
    name: 'auth-methods',
    title: 'Auth methods',
    one: 'auth method',
    list: 'acl/auth-methods',
    topics: ['ACLAuthMethod'],
    sorts: ['name', 'type'],
    finds: ['Name', 'Type'],
    route: 'acl/auth-method',
    id: 'Name',
    method: 'PUT',
    create: 'acl/auth-method',
    command: 'caravan acl auth-method',
    deleting: 'Nobody can sign in with it any more. Its binding rules and tokens stay until they are deleted or end.',
    fields: [
      NAME,
      { key: 'Type', label: 'Type', edit: 'choice', options: ['OIDC', 'JWT'], fixed: true },
      { key: 'TokenLocality', label: 'Tokens are valid in', edit: 'choice', options: ['local', 'global'] },
      { key: 'TokenNameFormat', label: 'Format of token names', edit: 'text' },
      { key: 'MaxTokenTTL', label: 'Tokens end after', edit: 'span', required: true, hint: 'such as 1h' },
      { key: 'Default', label: 'Default for its type', edit: 'check' },
      { key: 'Config', label: 'Configuration', edit: 'json', required: true, hint: 'JSON; a stored secret is shown as redacted' },
    ],
  },
  {
    name: 'binding-rules',
    title: 'Binding rules',
    one: 'binding rule',
    list: 'acl/binding-rules',
    topics: ['ACLBindingRule'],
    sorts: ['description', 'method'],
    finds: ['ID', 'Description', 'AuthMethod'],
    route: 'acl/binding-rule',
    id: 'ID',
    method: 'PUT',
    create: 'acl/binding-rule',
    command: 'caravan acl binding-rule',
    deleting: 'Later logins do not get its rights. Tokens of earlier logins keep theirs until they end.',
    fields: [
      { key: 'AuthMethod', label: 'Auth method', edit: 'text', fixed: true, required: true },
      ABOUT,
      { key: 'Selector', label: 'Selector', edit: 'text', hint: 'an expression over claims; empty: every login' },
      { key: 'BindType', label: 'Binds', edit: 'choice', options: ['role', 'policy', 'management'] },
      { key: 'BindName', label: 'Name of the role or policy', edit: 'text' },
    ],
  },
  {
    name: 'pools',
    title: 'Node pools',
    one: 'node pool',
    list: 'node/pools',
    topics: ['NodePool'],
    sorts: ['name', 'description'],
    finds: ['Name', 'Description'],
    route: 'node/pool',
    id: 'Name',
    method: 'PUT',
    create: 'node/pools',
    command: 'caravan node pool',
    deleting: 'Only a node pool without nodes and jobs can be deleted.',
    fields: [
      NAME,
      ABOUT,
      {
        key: 'SchedulerConfiguration.SchedulerAlgorithm',
        label: 'Scheduler algorithm',
        edit: 'choice',
        options: ['', 'binpack', 'spread'],
      },
      { key: 'Meta', label: 'Metadata', edit: 'pairs' },
    ],
  },
];

type Json = Record<string, unknown>;

function at(object: Json, key: string): unknown {
  return key.split('.').reduce<unknown>((value, part) => (value as Json | null | undefined)?.[part], object);
}

function put(object: Json, key: string, value: unknown): void {
  const parts = key.split('.');
  const last = parts.pop() ?? '';
  let inner = object;
  for (const part of parts) inner = (inner[part] ??= {}) as Json;
  inner[last] = value;
}

/** Returns nanoseconds as a span such as `1h30m`. */
export function spanText(value: unknown): string {
  if (typeof value === 'string') return value === '0s' ? '' : value;
  if (typeof value !== 'number' || value <= 0) return '';
  let seconds = Math.round(value / 1e9);
  let out = '';
  for (const [unit, size] of [
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ] as const) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count) out += `${count}${unit}`;
  }
  return out;
}

/** Reads a span such as `1h30m` as nanoseconds. The error names the field. */
export function nanos(text: string, field: string): number {
  const bare = text.replaceAll(' ', '');
  const units: Record<string, number> = { h: 3600e9, m: 60e9, s: 1e9 };
  const parts = [...bare.matchAll(/(\d+)([hms])/g)];
  if (parts.length === 0 || parts.map((part) => part[0]).join('') !== bare) {
    throw new Error(`${field} "${text}" is no span such as 90s, 15m or 1h30m.`);
  }
  return parts.reduce((sum, part) => sum + Number(part[1]) * (units[part[2] ?? ''] ?? 0), 0);
}

/** Returns the fields of an object as text. */
export function toForm(kind: Kind, object: Json): Record<string, string> {
  const form: Record<string, string> = {};
  for (const field of kind.fields) {
    const value = at(object, field.key);
    switch (field.edit) {
      case 'lines':
        form[field.key] = ((value as unknown[] | null) ?? [])
          .map((row) => (typeof row === 'string' ? row : String((row as Json).Name ?? '')))
          .join('\n');
        break;
      case 'pairs':
        form[field.key] = Object.entries((value as Record<string, string> | null) ?? {})
          .map(([name, text]) => `${name}=${text}`)
          .join('\n');
        break;
      case 'json':
        form[field.key] = JSON.stringify(value ?? {}, null, 2);
        break;
      case 'span':
        form[field.key] = spanText(value);
        break;
      case 'check':
        form[field.key] = value ? 'true' : '';
        break;
      case 'choice':
        form[field.key] = typeof value === 'string' ? value : (field.options?.[0] ?? '');
        break;
      default:
        form[field.key] = typeof value === 'string' ? value : '';
    }
  }
  return form;
}

const lines = (text: string) => text.split('\n').map((line) => line.trim()).filter((line) => line !== '');

function read(kind: Kind, field: Field, text: string): unknown {
  switch (field.edit) {
    case 'lines':
      // Links to roles, and the policies of a role, are objects in the API.
      return (field.key === 'Roles' || (kind.name === 'roles' && field.key === 'Policies'))
        ? lines(text).map((name) => ({ Name: name }))
        : lines(text);
    case 'pairs':
      return Object.fromEntries(
        lines(text).map((line) => {
          const sign = line.indexOf('=');
          if (sign < 1) throw new Error(`${field.label}: "${line}" is not name=value.`);
          return [line.slice(0, sign).trim(), line.slice(sign + 1).trim()];
        }),
      );
    case 'json':
      try {
        return JSON.parse(text) as unknown;
      } catch (error) {
        throw new Error(`${field.label} is no JSON: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
      }
    case 'span':
      return text.trim() === '' ? undefined : nanos(text, field.label);
    case 'check':
      return text === 'true';
    default:
      return field.edit === 'long' ? text : text.trim();
  }
}

/** Returns the body that writes a form over an object. Fields that the form does not show keep their values. */
export function toBody(kind: Kind, form: Record<string, string>, before: Json | undefined): Json {
  const body = structuredClone(before ?? {});
  for (const field of kind.fields) {
    if (before && field.fixed) continue;
    const text = form[field.key] ?? '';
    if (field.required && text.trim() === '') throw new Error(`${field.label} is missing.`);
    const value = read(kind, field, text);
    const nested = field.key.includes('.');
    const empty = value === undefined || value === '' || (Array.isArray(value) && value.length === 0);
    // An absent nested object stays absent.
    if (empty && (value === undefined || (nested && at(body, field.key) === undefined))) continue;
    put(body, field.key, value);
  }
  delete body.SecretID;
  // A policy for workloads of no namespace is one for no workloads.
  if ((body.JobACL as Json | null | undefined)?.Namespace === '' && Object.values(body.JobACL as Json).every((text) => text === '')) {
    body.JobACL = null;
  }
  return body;
}
