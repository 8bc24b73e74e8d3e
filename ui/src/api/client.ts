// Calls of the API.

import { shelf } from '../lib/shelf';
import { apiRoot } from './places';
import { session } from './session.svelte';

/** A refusal or a failure of a call. */
export class CallError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }

  /** Whether the caller lacks a right, or the token is not known. */
  get denied(): boolean {
    return this.status === 403 || this.status === 401;
  }
}

export interface Answer<T> {
  data: T;
  index: number;
  next: string;
  /** The number of rows on all pages, if the call asked for it. */
  total: number | undefined;
}

export interface Options {
  method?: 'GET' | 'PUT' | 'POST' | 'DELETE';
  body?: unknown;
  signal?: AbortSignal;
  /** Another secret than that of the signed-in user. */
  token?: string;
}

let region = '';

/** Sets the region of all calls; empty for the agent's own. */
export function useRegion(name: string): void {
  region = name;
}

/** Returns the address of a route. */
export function address(path: string): URL {
  const url = new URL(path, apiRoot);
  if (region) url.searchParams.set('region', region);
  return url;
}

/** Returns the address of a websocket. */
export function socketAddress(path: string): string {
  const url = address(path);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Sends a request and returns its response. */
export async function send(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const token = options.token ?? session.token;
  if (token) headers['X-Nomad-Token'] = token;
  if (options.body !== undefined) headers['Content-Type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(address(path), {
      method: options.method ?? 'GET',
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new CallError(0, 'The agent does not answer.');
  }
  // What was read before a write may show its old state.
  if (options.method && options.method !== 'GET') shelf.clear();
  if (!response.ok) {
    const text = (await response.text()).trim();
    // A late answer to an older token does not concern the new one.
    if (response.status === 403 && text === 'ACL token expired' && token === session.token) session.ended = true;
    throw new CallError(response.status, text || `The agent answered with status ${response.status}.`);
  }
  return response;
}

let asked: Promise<void> | undefined;

/** Finds out whether a refusal concerns the token as a whole: it has ended or was deleted. */
export function judgeToken(): Promise<void> {
  if (!session.token || session.ended) return Promise.resolve();
  const { token } = session;
  asked ??= send('acl/token/self')
    .then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof CallError && error.denied && token === session.token) session.ended = true;
      },
    )
    .finally(() => (asked = undefined));
  return asked;
}

/** An agent of an older version counts nothing. */
const total = (text: string | null) => (text === null ? undefined : Number(text));

/** Calls a route and reads its JSON. */
export async function call<T>(path: string, options: Options = {}): Promise<Answer<T>> {
  const response = await send(path, options);
  const text = await response.text();
  return {
    data: (text ? JSON.parse(text) : null) as T,
    index: Number(response.headers.get('X-Nomad-Index') ?? 0),
    next: response.headers.get('X-Nomad-NextToken') ?? '',
    total: total(response.headers.get('X-Caravan-Total')),
  };
}

/** Builds a path with its query; empty values are left out. */
export function path(route: string, query: Record<string, string | number | boolean | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== '' && value !== false) search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${route}?${text}` : route;
}

/** Encodes an id as a segment of a path. */
export const seg = encodeURIComponent;
