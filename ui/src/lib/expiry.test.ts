import { expect, it } from 'vitest';
import { countdown, expiry, spoken } from './expiry';

const at = (text: string) => Date.parse(text);

it('warns ten minutes before the end', () => {
  const ends = '2026-01-01T12:00:00Z';
  expect(expiry(ends, at('2026-01-01T11:49:59Z'))).toEqual({ state: 'valid' });
  expect(expiry(ends, at('2026-01-01T11:50:00Z'))).toEqual({ state: 'soon', left: 600_000 });
  expect(expiry(ends, at('2026-01-01T12:00:00Z'))).toEqual({ state: 'over' });
  expect(expiry(null, at(ends))).toEqual({ state: 'valid' });
});

it('speaks once a minute and counts each second', () => {
  expect(countdown(545_900)).toBe('9:05');
  expect(countdown(-1)).toBe('0:00');
  expect(spoken(545_900)).toBe('less than 10 minutes');
  expect(spoken(30_000)).toBe('less than a minute');
});
