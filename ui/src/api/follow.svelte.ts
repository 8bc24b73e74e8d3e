// Data that the agent sends as a stream: an object a line, at once and after each change. A change costs no request.

import { untrack } from 'svelte';
import { backoff, Splitter } from '../lib/events';
import { CallError, judgeToken, send } from './client';
import { first, Live } from './live.svelte';
import { session } from './session.svelte';

/** After this silence the connection is dead: heartbeats come every 30 s. */
const SILENCE = 45_000;

/** Keeps the newest object of a stream while the calling component lives. A hidden tab has no stream, because connections are few. */
export function follow<T extends object>(route: () => string): Live<T> {
  const out = new Live<T>();
  let round = $state(0);
  let isHidden = $state(document.hidden);
  $effect(() => {
    const see = () => (isHidden = document.hidden);
    document.addEventListener('visibilitychange', see);
    return () => document.removeEventListener('visibilitychange', see);
  });
  out.refresh = () => (round += 1);
  $effect(() => {
    const path = route();
    void [session.token, round];
    if (isHidden) return;
    const abort = new AbortController();
    untrack(() => void attend(path, out, abort.signal));
    return () => abort.abort();
  });
  return out;
}

/** Reads the stream over all of its connections, until the caller may not read it. */
async function attend<T extends object>(path: string, out: Live<T>, signal: AbortSignal): Promise<void> {
  for (let failures = 1; ; failures += 1) {
    try {
      await read<T>(path, signal, (object) => {
        failures = 0;
        out.data = object;
        out.error = undefined;
        out.at = Date.now();
        arrived(out);
      });
    } catch (error) {
      if (signal.aborted) return;
      const found = error instanceof CallError ? error : new CallError(0, 'The agent does not answer.');
      if (found.denied && out.data !== undefined) await judgeToken();
      if (signal.aborted) return;
      out.error = found;
      if (found.denied && !session.ended) out.data = undefined;
      arrived(out);
      // Another token begins again.
      if (found.denied) return;
    }
    if (signal.aborted) return;
    await pause(backoff(failures), signal);
    if (signal.aborted) return;
  }
}

function arrived(out: Live<unknown>): void {
  out.loading = false;
  first.arrived();
}

/** Reads one connection to its end. */
async function read<T extends object>(path: string, signal: AbortSignal, take: (object: T) => void): Promise<void> {
  const cut = new AbortController();
  const stop = () => cut.abort();
  signal.addEventListener('abort', stop, { once: true });
  let guard = setTimeout(stop, SILENCE);
  try {
    const response = await send(path, { signal: cut.signal });
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const splitter = new Splitter();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(guard);
      guard = setTimeout(stop, SILENCE);
      for (const text of splitter.add(value)) {
        const object = JSON.parse(text) as T;
        // An empty object is a heartbeat.
        if (!signal.aborted && Object.keys(object).length > 0) take(object);
      }
    }
  } finally {
    clearTimeout(guard);
    signal.removeEventListener('abort', stop);
  }
}

/** Waits, and ends at once when the network is back. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const now = () => {
      clearTimeout(timer);
      resolve();
    };
    addEventListener('online', now, { once: true, signal });
    signal.addEventListener('abort', now, { once: true });
  });
}
