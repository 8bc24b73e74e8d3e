import { expect, it } from 'vitest';
import { Lines, matcher } from './lines';

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
