import { afterEach, describe, expect, it, vi } from 'vitest';
import { Stream, type FromStream } from './stream';

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

/** Returns an answer of these lines that stays open. */
function answer(lines: string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const line of lines) controller.enqueue(new TextEncoder().encode(`${line}\n`));
    },
  });
  return new Response(body, { status: 200 });
}

it('asks for the newest row of each object, and hands out notes', async () => {
  const asked: URL[] = [];
  vi.stubGlobal('fetch', (address: URL) => {
    asked.push(address);
    return Promise.resolve(
      answer([
        '{"Caravan":{"Denied":["Node"],"Indexes":{"Job":7}}}',
        '{"Index":9,"Events":[{"Topic":"Namespace","Type":"NamespaceUpserted","Key":"team","Namespace":"team","Index":9}]}',
      ]),
    );
  });
  const seen: FromStream[] = [];
  let resolve = () => {};
  const done = new Promise<void>((settle) => (resolve = settle));
  const target = { api: 'http://agent/v1/', token: '', namespace: '*', region: '' };
  const stream = new Stream(target, (message) => {
    seen.push(message);
    if (message.kind === 'notes') resolve();
  });
  await done;
  stream.end();
  const query = asked[0]!.searchParams;
  expect([query.get('coalesce'), query.get('caravan'), query.get('namespace'), query.get('heartbeat')]).toEqual(['250ms', 'true', '*', '4s']);
  expect(query.getAll('topic')).toContain('Namespace');
  expect(seen).toEqual([
    { kind: 'state', state: 'live', denied: ['Node'] },
    { kind: 'begun', indexes: { Job: 7 } },
    { kind: 'notes', notes: [{ topic: 'Namespace', key: 'team', ns: 'team', related: [], index: 9 }] },
  ]);
});

describe('an agent that falls silent', () => {
  const FIRST = '{"Caravan":{"Denied":[],"Indexes":{"Job":7}}}';

  /** An agent whose first answer has these lines. Later requests get no answer. */
  function frozen(lines: string[]) {
    vi.useFakeTimers();
    let send: (line: string) => void = () => {};
    let calls = 0;
    vi.stubGlobal('fetch', (_: URL, { signal }: { signal: AbortSignal }) => {
      calls += 1;
      if (calls > 1) return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new DOMException('ended', 'AbortError'))));
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          send = (line) => controller.enqueue(new TextEncoder().encode(`${line}\n`));
          for (const line of lines) send(line);
          signal.addEventListener('abort', () => controller.error(new DOMException('ended', 'AbortError')));
        },
      });
      return Promise.resolve(new Response(body, { status: 200 }));
    });
    const states: string[] = [];
    const target = { api: 'http://agent/v1/', token: '', namespace: '*', region: '' };
    const stream = new Stream(target, (message) => message.kind === 'state' && states.push(message.state));
    return { stream, states, send: (line: string) => send(line), calls: () => calls };
  }

  it('is offline two heartbeats later, and stays so while it does not answer', async () => {
    const { stream, states, send, calls } = frozen(['{"Heartbeat":4000}', FIRST]);
    await vi.advanceTimersByTimeAsync(4000);
    send('{}');
    await vi.advanceTimersByTimeAsync(8900);
    expect(states).toEqual(['live']);
    await vi.advanceTimersByTimeAsync(200);
    expect(states).toEqual(['live', 'offline']);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(states).toEqual(['live', 'offline']);
    expect(calls()).toBeGreaterThan(2);
    stream.end();
  });

  it('has longer if it did not confirm the heartbeat', async () => {
    const { stream, states } = frozen([FIRST]);
    await vi.advanceTimersByTimeAsync(44_000);
    expect(states).toEqual(['live']);
    await vi.advanceTimersByTimeAsync(2000);
    expect(states).toEqual(['live', 'offline']);
    stream.end();
  });

  it('is one that does not let the stream through if it never sent a line', async () => {
    const { stream, states } = frozen([]);
    await vi.advanceTimersByTimeAsync(16_000);
    expect(states).toEqual(['refused']);
    stream.end();
  });
});

it('asks an agent that refuses the heartbeat again without it', async () => {
  const asked: (string | null)[] = [];
  vi.stubGlobal('fetch', (address: URL) => {
    asked.push(address.searchParams.get('heartbeat'));
    return Promise.resolve(asked.length === 1 ? new Response('unknown parameter', { status: 400 }) : answer(['{}']));
  });
  let resolve = () => {};
  const done = new Promise<void>((settle) => (resolve = settle));
  const states: string[] = [];
  const stream = new Stream({ api: 'http://agent/v1/', token: '', namespace: '*', region: '' }, (message) => {
    if (message.kind !== 'state') return;
    states.push(message.state);
    resolve();
  });
  await done;
  stream.end();
  expect(asked).toEqual(['4s', null]);
  expect(states).toEqual(['live']);
});
