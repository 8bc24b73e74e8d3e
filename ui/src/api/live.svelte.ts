// Data that stays current: read once, then read again when the event stream reports a change.

import { untrack } from 'svelte';
import workerAddress from './worker.ts?sharedworker&url';
import { advance, concerns, lacks, latest, type Indexes, type Interest } from '../lib/events';
import { MIN_PAUSE, Pace } from '../lib/pace';
import { shelf } from '../lib/shelf';
import { call, CallError, judgeToken } from './client';
import { apiRoot } from './places';
import { session } from './session.svelte';
import { Stream, type FromStream, type State } from './stream';
import type { ToWorker } from './worker';

type Listener = (message: FromStream) => void;

class Connection {
  state = $state<State>('connecting');
  denied = $state.raw<string[]>([]);
  /** When the state began, in milliseconds. */
  since = $state(Date.now());
  /** Whether the browser has a network. A stream that is open may notice its end late. */
  hasNetwork = $state(navigator.onLine);
  /** When the oldest reported change was reported that no read shows yet; 0 without one. */
  behind = $state(0);
  private readonly late = new Map<object, number>();
  private readonly listeners = new Set<Listener>();
  private leave: () => void = () => {};
  private nudgeStream: () => void = () => {};

  /** Notes that a reader lacks a reported change. */
  lacks(reader: object): void {
    if (!this.late.has(reader)) this.late.set(reader, Date.now());
    this.behind = Math.min(...this.late.values());
  }

  /** Notes that a reader shows all that was reported, or ended. */
  shows(reader: object): void {
    if (!this.late.delete(reader)) return;
    this.behind = this.late.size ? Math.min(...this.late.values()) : 0;
  }

  /** Notes that the browser lost its network, or has it again. */
  network(isThere: boolean): void {
    if (this.hasNetwork === isThere) return;
    this.hasNetwork = isThere;
    this.since = Date.now();
    if (isThere) this.nudge();
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Returns whether the stream reports changes of all topics. */
  covers(topics: string[]): boolean {
    return this.state === 'live' && !topics.some((topic) => this.denied.includes(topic));
  }

  /** Follows the stream with a token; replaces the previous stream. */
  join(token: string, region: string): void {
    this.leave();
    shelf.clear();
    this.state = 'connecting';
    const target = { api: apiRoot.href, token, namespace: '*', region };
    const receive = (message: FromStream) => {
      if (message.kind === 'state') {
        if (message.state !== this.state) this.since = Date.now();
        this.state = message.state;
        this.denied = message.denied;
      } else if (message.kind === 'notes') shelf.changed(message.notes, Date.now());
      else if (message.kind === 'begun') shelf.begun(message.indexes);
      else shelf.clear();
      for (const listener of this.listeners) listener(message);
    };
    const worker = openWorker(`${token}\n${region}`);
    if (worker) {
      const { port } = worker;
      const say = (message: ToWorker) => port.postMessage(message);
      port.onmessage = (event: MessageEvent<FromStream>) => receive(event.data);
      say({ kind: 'hello', target });
      const hide = () => say({ kind: 'bye' });
      const show = (event: PageTransitionEvent) => event.persisted && say({ kind: 'hello', target });
      addEventListener('pagehide', hide);
      addEventListener('pageshow', show);
      this.nudgeStream = () => say({ kind: 'nudge' });
      this.leave = () => {
        hide();
        removeEventListener('pagehide', hide);
        removeEventListener('pageshow', show);
        port.onmessage = null;
      };
    } else {
      this.withoutWorker(target, receive);
    }
  }

  /** Tries a lost stream again at once. */
  nudge(): void {
    this.nudgeStream();
  }

  /** The visible tab has the stream; a hidden one ends it, because connections are few. */
  private withoutWorker(target: ConstructorParameters<typeof Stream>[0], receive: Listener): void {
    let stream: Stream | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const change = () => {
      clearTimeout(timer);
      if (document.hidden) {
        timer = setTimeout(() => {
          stream?.end();
          stream = undefined;
        }, 5000);
      } else if (!stream) {
        stream = new Stream(target, receive);
        receive({ kind: 'reset' });
      }
    };
    change();
    document.addEventListener('visibilitychange', change);
    this.nudgeStream = () => stream?.nudge();
    this.leave = () => {
      document.removeEventListener('visibilitychange', change);
      clearTimeout(timer);
      stream?.end();
    };
  }
}

/** Hashes text (FNV-1a), so that tabs with one token share a worker and its name does not tell the token. */
function hash(text: string): string {
  let value = 0x811c9dc5;
  for (const char of text) value = Math.imul(value ^ (char.codePointAt(0) ?? 0), 0x01000193) >>> 0;
  return value.toString(16);
}

interface Policy {
  createScriptURL(text: string): string;
}

function openWorker(of: string): SharedWorker | undefined {
  if (!('SharedWorker' in window)) return undefined;
  try {
    const expected = new URL(workerAddress, import.meta.url).href;
    const types = (window as { trustedTypes?: { createPolicy(name: string, rules: object): Policy } }).trustedTypes;
    policy ??= types?.createPolicy('caravan-worker', {
      createScriptURL: (text: string) => {
        if (text !== expected) throw new TypeError('another address than that of the worker');
        return text;
      },
    });
    const trusted = policy ? policy.createScriptURL(expected) : expected;
    const worker = new SharedWorker(trusted, { type: 'module', name: `caravan-${hash(of)}` });
    worker.port.start();
    return worker;
  } catch {
    return undefined;
  }
}
let policy: Policy | undefined;

export const connection = new Connection();

addEventListener('online', () => connection.network(true));
addEventListener('offline', () => connection.network(false));
document.addEventListener('visibilitychange', () => !document.hidden && connection.nudge());

class First {
  isShown = $state(false);
  /** Whether data arrived, not only time passed. */
  hasData = $state(false);

  constructor() {
    // Pages without data, and tabs that do not draw because they are hidden.
    setTimeout(() => (this.isShown = true), 500);
  }

  /** Notes that data has arrived. The browser draws it before further requests begin. */
  arrived(): void {
    this.hasData = true;
    if (!this.isShown) requestAnimationFrame(() => setTimeout(() => (this.isShown = true)));
  }
}

/** Whether the first content of the page is there. What the page's frame needs is read after it. */
export const first = new First();

/** What to read and what changes it. */
export interface Query extends Interest {
  path: string;
  /** Changes without an event are found by reading again after this time, in milliseconds. */
  every?: number | undefined;
  /** Queries with the same table differ in parts beside it: the old answer stays until the new one is there. */
  table?: string;
}

/** The newest data of a query. */
export class Live<T> {
  data = $state.raw<T | undefined>();
  error = $state.raw<CallError | undefined>();
  next = $state('');
  /** The number of rows on all pages, if the query asks for it. */
  total = $state<number | undefined>();
  loading = $state(true);
  /** When the data was read, in milliseconds. */
  at = $state(0);
  index = 0;
  refresh: () => void = () => {};
}

/** Keeps the data of a query current while the calling component lives. A query of `null` reads nothing. */
export function live<T>(query: () => Query | null): Live<T> {
  const out = new Live<T>();
  let shown = '';
  let table: string | undefined;
  // The same query is not read again because an address changed that does not concern it, such as that of the next page.
  const text = $derived(JSON.stringify(query()));
  $effect(() => {
    const desired = JSON.parse(text) as Query | null;
    // A new token reads again; what is shown stays while the user stays signed in.
    void session.token;
    const { epoch } = session;
    if (!desired) {
      out.data = undefined;
      out.error = undefined;
      out.loading = false;
      shown = '';
      table = undefined;
      return;
    }
    const name = `${epoch}\n${desired.path}`;
    let isOld = false;
    if (name !== shown) {
      // Another object: the old one must not be shown under the new name.
      // A page that was left shortly before begins with its last answer, which is read again at once.
      const kept = untrack(() => shelf.take(name, Date.now(), connection.covers(desired.topics)));
      isOld = kept?.changed !== undefined;
      const own = desired.table === undefined ? undefined : `${epoch}\n${desired.table}`;
      const stays = kept === undefined && own !== undefined && own === table;
      table = own;
      if (!stays) {
        out.data = kept?.data as T | undefined;
        out.next = kept?.next ?? '';
        out.total = kept?.total;
        out.at = kept?.at ?? 0;
        out.loading = kept === undefined;
      }
      out.error = undefined;
      out.index = 0;
      shown = name;
    }
    return follow(desired, out, name, isOld);
  });
  return out;
}

/** When reasons are read again after the stream began: not beside the first content of the page. In milliseconds. */
const SETTLE = 400;

/** Follows a query. `isOld`: what is shown lacks a change that was reported. */
function follow<T>(query: Query, out: Live<T>, name: string, isOld: boolean): () => void {
  const abort = new AbortController();
  const reader = {};
  const pace = new Pace();
  let busy = false;
  /** Whether a read is due. */
  let due = false;
  /** The newest changes that were reported during a read. */
  let reported: Indexes = {};
  let timer: ReturnType<typeof setTimeout> | undefined;
  let settle: ReturnType<typeof setTimeout> | undefined;
  let stale = false;

  const read = async (wait: boolean) => {
    busy = true;
    due = false;
    const begun = performance.now();
    try {
      const sign = query.path.includes('?') ? '&' : '?';
      const path = wait && out.index > 0 ? `${query.path}${sign}index=${out.index}&wait=55s` : query.path;
      const answer = await call<T>(path, { signal: abort.signal });
      if (abort.signal.aborted) return;
      out.data = answer.data;
      out.next = answer.next;
      out.total = answer.total;
      out.index = answer.index;
      out.error = undefined;
      out.at = Date.now();
      shelf.put(name, { interest: query, data: answer.data, next: answer.next, total: answer.total, index: answer.index, at: out.at });
    } catch (error) {
      if (abort.signal.aborted) return;
      const found = error instanceof CallError ? error : new CallError(0, String(error));
      // The end of a token takes nothing from the user that was already shown.
      if (found.denied && out.data !== undefined) await judgeToken();
      if (abort.signal.aborted) return;
      out.error = found;
      if ((found.denied && !session.ended) || found.status === 404) out.data = undefined;
    } finally {
      busy = false;
      out.loading = false;
      first.arrived();
      if (!wait) pace.read(begun, performance.now());
    }
    if (abort.signal.aborted) return;
    const behind = lacks(query, reported, out.index);
    reported = {};
    if (due || behind) schedule(pace.after(performance.now()));
    else {
      if (out.error === undefined || out.error.denied || out.error.status === 404) connection.shows(reader);
      later();
    }
  };

  const schedule = (ms: number) => {
    // The next token reads again.
    if (session.ended && out.error?.denied) return;
    if (document.hidden) {
      stale = true;
      return;
    }
    due = true;
    if (busy) return;
    clearTimeout(timer);
    timer = setTimeout(() => void read(false), ms);
  };

  /** Schedules a read that shows a change. A read that is due stays when it is: changes that never end do not put it off. */
  const changed = () => {
    if (!document.hidden) connection.lacks(reader);
    if (!due) schedule(pace.after(performance.now()));
  };

  /** Without the stream, a blocking query waits for the next change. */
  const later = () => {
    clearTimeout(timer);
    if (session.ended && out.error?.denied) return;
    if (query.every) {
      timer = setTimeout(() => schedule(0), query.every);
    } else if (query.topics.length > 0 && (connection.state === 'refused' || connection.denied.some((topic) => query.topics.includes(topic)))) {
      // An answer without an index does not wait: such a query is asked from time to time.
      timer = setTimeout(() => void read(out.error === undefined), out.error ? 5000 : out.index > 0 ? MIN_PAUSE : 10_000);
    } else if (out.error && !out.error.denied && out.error.status !== 404) {
      timer = setTimeout(() => void read(false), 2000);
    }
  };

  const away = connection.listen((message) => {
    if (message.kind === 'reset') changed();
    else if (message.kind === 'state') {
      if (message.state === 'live' && out.error) schedule(0);
      else if (message.state === 'refused' && !busy) later();
    } else {
      // The answer to a read under way may contain the changes already.
      // A change without an index: an answer that was asked for before it may lack it, as may one from before the stream.
      if (message.kind === 'notes' && message.notes.some((note) => note.unindexed === true && concerns(query, note, out.index))) changed();
      if (message.kind === 'begun' && query.reasons) {
        clearTimeout(settle);
        settle = setTimeout(changed, SETTLE);
      }
      const before = busy ? reported : {};
      const found =
        message.kind === 'begun'
          ? latest(before, message.indexes)
          : advance(before, message.notes.filter((note) => concerns(query, note, out.index)));
      if (busy) reported = found;
      else if (lacks(query, found, out.index)) changed();
    }
  });
  const seen = () => {
    if (!document.hidden && stale) {
      stale = false;
      schedule(0);
    }
  };
  document.addEventListener('visibilitychange', seen);
  out.refresh = () => schedule(0);
  if (isOld) connection.lacks(reader);
  void read(false);
  return () => {
    away();
    connection.shows(reader);
    abort.abort();
    clearTimeout(timer);
    clearTimeout(settle);
    document.removeEventListener('visibilitychange', seen);
  };
}
