import { expect, it } from 'vitest';
import { advance, backoff, concerns, lacks, merge, readLine, Splitter, type Note } from './events';

const note = (more: Partial<Note>): Note => ({ topic: 'Job', key: 'web', ns: 'default', related: [], index: 7, ...more });

it('reads the lines of the stream', () => {
  expect(readLine('{}')).toEqual({ kind: 'alive', denied: [], indexes: {} });
  const first = '{"Caravan":{"Denied":["Node"],"Indexes":{"Job":7}}}';
  expect(readLine(first)).toEqual({ kind: 'alive', denied: ['Node'], indexes: { Job: 7 } });
  expect(readLine('{"Error":"x"}')).toEqual({ kind: 'gone' });
  expect(readLine('{"Events"')).toEqual({ kind: 'gone' });
  const line = '{"Index":7,"Events":[{"Topic":"Job","Key":"web","Namespace":"default","FilterKeys":null,"Payload":{}}]}';
  expect(readLine(line)).toEqual({ kind: 'notes', notes: [note({})] });
  const reason = '{"Index":7,"Events":[{"Topic":"CSIVolume","Type":"CSIVolumeReason","Key":"data","Namespace":"default","FilterKeys":null}]}';
  expect(readLine(reason)).toEqual({ kind: 'notes', notes: [note({ topic: 'CSIVolume', key: 'data', unindexed: true })] });
});

it('cuts parts into lines', () => {
  const splitter = new Splitter();
  expect(splitter.add('{}\n{"a"')).toEqual(['{}']);
  expect(splitter.add(':1}\n\n')).toEqual(['{"a":1}']);
});

it('keeps one note of each object', () => {
  const merged = merge([note({ related: ['a'] }), note({ index: 9, related: ['b'] }), note({ ns: 'team' })]);
  expect(merged).toEqual([note({ index: 9, related: ['a', 'b'] }), note({ ns: 'team' })]);
});

it('drops notes that the page has seen', () => {
  const interest = { topics: ['Job'], ns: 'default', keys: ['web'] };
  expect(concerns(interest, note({}), 6)).toBe(true);
  expect(concerns(interest, note({}), 7)).toBe(false);
  expect(concerns(interest, note({ ns: 'team' }), 6)).toBe(false);
  expect(concerns({ ...interest, ns: '*' }, note({ ns: 'team' }), 6)).toBe(true);
  expect(concerns(interest, note({ topic: 'Node' }), 6)).toBe(false);
  expect(concerns(interest, note({ key: 'x', related: ['web'] }), 6)).toBe(true);
  expect(concerns(interest, note({ key: 'x' }), 6)).toBe(false);
});

it('keeps changes of reasons, whose index is not their own', () => {
  const reason = note({ unindexed: true });
  expect(concerns({ topics: ['Job'], ns: 'default', keys: ['web'] }, reason, 9)).toBe(true);
  expect(concerns({ topics: ['Job'], keys: ['other'] }, reason, 9)).toBe(false);
  expect(merge([reason, note({ index: 8 })])).toEqual([note({ index: 8, unindexed: true })]);
});

it('notices changes from before the stream', () => {
  const interest = { topics: ['Job', 'Allocation'] };
  expect(lacks(interest, { Job: 7, Node: 99 }, 7)).toBe(false);
  expect(lacks(interest, { Job: 7, Allocation: 8 }, 7)).toBe(true);
  expect(lacks({ topics: [] }, { Job: 7 }, 0)).toBe(false);
  expect(advance({ Job: 9 }, [note({}), note({ topic: 'Node', index: 12 })])).toEqual({ Job: 9, Node: 12 });
});

it('waits longer after each failure, at most five seconds', () => {
  expect([1, 2, 3, 9].map(backoff)).toEqual([250, 500, 1000, 5000]);
});

it('reads the interval of heartbeats', () => {
  expect(readLine('{"Heartbeat":4000}')).toEqual({ kind: 'heartbeat', interval: 4000 });
  expect(readLine('{"Heartbeat":0}')).toEqual({ kind: 'alive', denied: [], indexes: {} });
});
