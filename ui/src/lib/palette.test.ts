import { expect, it } from 'vitest';
import { rankEntries, score } from './palette';

it('prefers the whole name, its beginning, the beginning of a word', () => {
  const scores = ['web', 'website', 'my-web', 'cobweb', 'wide-ebb', 'other'].map((name) => score(name, 'WEB'));
  expect(scores).toEqual([100, 80, 70, 50, 20, 0]);
});

it('keeps the order of pages without a text', () => {
  const entries = ['Overview', 'Jobs'].map((name) => ({ kind: 'page', name, path: name }));
  expect(rankEntries(entries, ' ').map((entry) => entry.name)).toEqual(['Overview', 'Jobs']);
  expect(rankEntries(entries, 'job').map((entry) => entry.name)).toEqual(['Jobs']);
});
