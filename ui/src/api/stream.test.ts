import { afterEach, expect, it, vi } from 'vitest';
import { Stream, type FromStream } from './stream';

afterEach(() => vi.unstubAllGlobals());

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
  expect([query.get('coalesce'), query.get('caravan'), query.get('namespace')]).toEqual(['250ms', 'true', '*']);
  expect(query.getAll('topic')).toContain('Namespace');
  expect(seen).toEqual([
    { kind: 'state', state: 'live', denied: ['Node'] },
    { kind: 'begun', indexes: { Job: 7 } },
    { kind: 'notes', notes: [{ topic: 'Namespace', key: 'team', ns: 'team', related: [], index: 9 }] },
  ]);
});
