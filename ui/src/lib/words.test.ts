import { expect, it } from 'vitest';
import { clockTime, count, millis, quoted, size, span } from './words';

it('shows the two largest units of a span', () => {
  expect(span(0)).toBe('0s');
  expect(span(-5)).toBe('0s');
  expect(span(59_999)).toBe('59s');
  expect(span(61_000)).toBe('1m 1s');
  expect(span(3_600_000)).toBe('1h');
  expect(span(90_061_000)).toBe('1d 1h');
});

it('reads both forms of times', () => {
  expect(millis(1_500_000_000)).toBe(1500);
  expect(millis('1970-01-01T00:00:01Z')).toBe(1000);
  expect(millis('0001-01-01T00:00:00Z')).toBe(0);
  expect(millis(0)).toBe(0);
  expect(millis(null)).toBe(0);
});

it('shows sizes in binary units', () => {
  expect(size(0)).toBe('0 B');
  expect(size(1536)).toBe('1.5 KiB');
  expect(size(270553174016)).toBe('252 GiB');
});

it('counts', () => {
  expect(count(1, 'node')).toBe('1 node');
  expect(count(2000, 'node')).toBe('2,000 nodes');
});

it('quotes words for a shell', () => {
  expect(quoted('web')).toBe('web');
  expect(quoted("it's")).toBe(`'it'\\''s'`);
  expect(quoted('$(rm)')).toBe(`'$(rm)'`);
});

it('shows the time of the clock, with the day unless it is today', () => {
  const now = new Date(2026, 10, 27, 18, 5, 0).getTime();
  expect(clockTime(new Date(2026, 10, 27, 9, 4, 3).getTime(), now)).toBe('09:04:03');
  expect(clockTime(new Date(2026, 0, 2, 9, 4, 3).getTime(), now)).toBe('2026-01-02 09:04:03');
});
