import { expect, it } from 'vitest';
import { again, Lines, matcher, nextHit, placeOf } from './lines';

it('joins a line that arrives in parts', () => {
  const lines = new Lines();
  lines.add('a\nb');
  expect(lines.all()).toEqual(['a', 'b']);
  lines.add('c\r\n');
  expect(lines.all()).toEqual(['a', 'bc']);
});

it('drops the oldest lines and keeps their numbers', () => {
  const lines = new Lines(2);
  lines.add('1\n2\n3\n');
  expect(lines.all()).toEqual(['2', '3']);
  expect(lines.first).toBe(2);
  const small = new Lines(100, 4);
  small.add('aaa\nbbb\n');
  expect(small.all()).toEqual(['bbb']);
  small.add('x'.repeat(10));
  expect(small.all().at(-1)).toBe('xxxx');
});

it('searches by text and by expression', () => {
  expect(matcher('')).toBeNull();
  expect(matcher('ERR')?.('an error')).toBe(true);
  expect(matcher('/e.r$/')?.('an err')).toBe(true);
  expect(matcher('/(/')?.('(')).toBe(false);
});

it('finds a line again in a longer text', () => {
  const old = ['c', 'x', 'x', 'd'];
  expect(again(old, 1, ['a', 'x', 'x', 'b', ...old, 'x'])).toEqual({ row: 5, exact: true });
  expect(again(old, 2, ['a', 'x', 'x', 'b', ...old])).toEqual({ row: 6, exact: true });
  // Nothing of it has arrived so far.
  expect(again(old, 3, ['a', 'b'])).toBeUndefined();
  expect(again([], 0, ['a'])).toBeUndefined();
});

it('finds a line of several outputs again, which come in another order', () => {
  expect(again(['1 a', '1 b', '2 a', '1 a'], 0, ['2 z', '2 a', '1 z', '1 a', '1 b', '1 a'])).toEqual({ row: 3, exact: false });
});

it('goes to the first hit first, and over the end', () => {
  const hits = [3, 8, 9].map((number) => ({ number }));
  expect([0, 3, 5, 9].map((chosen) => nextHit(hits, chosen, 1))).toEqual([3, 8, 8, 3]);
  expect([0, 3, 5, 9].map((chosen) => nextHit(hits, chosen, -1))).toEqual([9, 9, 3, 8]);
  expect(nextHit([], 5, 1)).toBe(0);
  expect([0, 3, 4, 10].map((number) => placeOf(hits, number))).toEqual([0, 0, 1, 3]);
});
