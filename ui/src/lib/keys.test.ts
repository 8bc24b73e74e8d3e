import { expect, it } from 'vitest';
import { Sequence } from './keys';

it('completes sequences within their time', () => {
  const keys = new Sequence();
  expect(keys.press('g', 0)).toBeUndefined();
  expect(keys.press('j', 100)).toBe('jobs');
  expect(keys.press('g', 200)).toBeUndefined();
  expect(keys.press('j', 2000)).toBe('!down');
  expect(keys.press('?', 2100)).toBe('!help');
});

it('begins again with a key that does not continue', () => {
  const keys = new Sequence();
  keys.press('g', 0);
  expect(keys.press('x', 10)).toBeUndefined();
  expect(keys.press('g', 20)).toBeUndefined();
  expect(keys.press('?', 30)).toBe('!help');
});
