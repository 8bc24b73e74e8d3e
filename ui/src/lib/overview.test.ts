import { expect, it } from 'vitest';
import type { Overview } from '../api/types';
import { sum, tiles } from './overview';

const none = { Jobs: {}, Allocations: {}, Evaluations: {}, Nodes: {}, Plugins: {}, Volumes: {}, Claims: {} };
const words = (unread: Partial<Overview>) =>
  tiles({ ...none, ...unread, Attention: [], Omitted: 0, Denied: [] } as Overview).map((tile) => tile.word);

it('counts only what the user may read', () => {
  expect(words({})).toEqual(['Jobs', 'Allocations', 'Nodes', 'Evaluations', 'Plugins', 'Volumes', 'Claims']);
  expect(words({ Nodes: null, Plugins: null })).toEqual(['Jobs', 'Allocations', 'Evaluations', 'Volumes', 'Claims']);
});

it('adds up the states', () => {
  expect(sum({ running: 3, dead: 2 })).toBe(5);
  expect(sum({})).toBe(0);
});
