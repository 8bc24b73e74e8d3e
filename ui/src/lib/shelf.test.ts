import { beforeEach, expect, it } from 'vitest';
import { CHANGED, KEPT, Shelf, UNCOVERED, type Answered } from './shelf';

const answer = (more: Partial<Answered> = {}): Answered => ({
  interest: { topics: ['Node'] }, data: [], next: '', total: undefined, index: 7, at: 1000, ...more,
});
const note = (topic: string, index: number, key = 'k') => ({ topic, key, ns: '', related: [], index });
let shelf: Shelf;
beforeEach(() => {
  shelf = new Shelf();
  shelf.put('nodes', answer());
  shelf.put('job', answer({ interest: { topics: ['Job'], keys: ['web'] } }));
});

it('keeps an answer as long as it is current', () => {
  expect(shelf.take('nodes', 10_000_000, true)?.index).toBe(7);
  expect(shelf.take('other', 1000, true)).toBeUndefined();
  expect(shelf.take('nodes', 1000 + UNCOVERED, false)).toBeDefined();
  expect(shelf.take('nodes', 1001 + UNCOVERED, false)).toBeUndefined();
  shelf.put('still', answer({ interest: { topics: [] } }));
  expect(shelf.take('still', 1001 + UNCOVERED, true)).toBeUndefined();
});

it('shows what a change concerns for moments only', () => {
  shelf.changed([note('Node', 7), note('Job', 9, 'mail')], 2000);
  expect(shelf.take('nodes', 9_000_000, true)).toBeDefined();
  shelf.changed([note('Node', 8), note('Job', 9, 'web')], 3000);
  // The first change counts: what follows it makes the answer no newer.
  shelf.changed([note('Node', 9)], 8000);
  expect(shelf.take('nodes', 3000 + CHANGED, true)).toBeDefined();
  expect(shelf.take('nodes', 3001 + CHANGED, true)).toBeUndefined();
  expect(shelf.take('job', 3001 + CHANGED, true)).toBeUndefined();
});

it('drops what lacks changes from before the stream', () => {
  shelf.begun({ Node: 8, Job: 7 });
  expect(shelf.take('nodes', 1000, true)).toBeUndefined();
  expect(shelf.take('job', 1000, true)).toBeDefined();
  shelf.put('why', answer({ interest: { topics: ['CSIVolume'], reasons: true } }));
  shelf.begun({ CSIVolume: 7 });
  expect(shelf.take('why', 1000, true)).toBeUndefined();
  shelf.clear();
  expect(shelf.take('job', 1000, true)).toBeUndefined();
});

it('keeps the newest answers only', () => {
  for (let at = 0; at < KEPT - 1; at += 1) shelf.put(`${at}`, answer());
  expect(shelf.take('nodes', 1000, true)).toBeUndefined();
  expect(shelf.take('job', 1000, true)).toBeDefined();
});
