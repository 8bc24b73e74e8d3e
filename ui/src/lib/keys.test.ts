import { expect, it } from 'vitest';
import { neighbourTab, Sequence } from './keys';

it('completes sequences within their time', () => {
  const keys = new Sequence();
  expect(keys.press('g', 0)).toBeUndefined();
  expect(keys.press('j', 100)).toBe('jobs');
  expect(keys.press('g', 200)).toBeUndefined();
  expect(keys.press('j', 2000)).toBe('!down');
  expect(keys.press('?', 2100)).toBe('!help');
});

it('has no sequence that stops or purges anything', () => {
  const keys = new Sequence();
  for (const letter of 'stoppurge') expect(keys.press(letter, 0) ?? '').not.toMatch(/stop|purge/);
  keys.press('x', 1);
  expect(['g', 'o'].map((key) => keys.press(key, 2)).at(-1)).toBe('');
  expect(['r', 'u', 'n'].map((key) => keys.press(key, 3)).at(-1)).toBe('jobs/run');
});

it('begins again with a key that does not continue', () => {
  const keys = new Sequence();
  keys.press('g', 0);
  expect(keys.press('x', 10)).toBeUndefined();
  expect(keys.press('g', 20)).toBeUndefined();
  expect(keys.press('?', 30)).toBe('!help');
});

it('moves along tabs', () => {
  expect([neighbourTab(3, 2, 'ArrowRight'), neighbourTab(3, 0, 'ArrowLeft'), neighbourTab(3, 1, 'Home'), neighbourTab(3, 1, 'End')]).toEqual([0, 2, 0, 2]);
  expect([neighbourTab(3, 1, 'a'), neighbourTab(3, -1, 'End')]).toEqual([undefined, undefined]);
});
