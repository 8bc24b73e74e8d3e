import { expect, it } from 'vitest';
import { added, area, extremes, MAX_SAMPLES, type Sample } from './chart';

it('keeps a bounded number of samples in the order of time', () => {
  let samples: Sample[] = [];
  for (let at = 1; at <= MAX_SAMPLES + 5; at += 1) samples = added(samples, at, at);
  expect(samples.length).toBe(MAX_SAMPLES);
  expect(samples[0]?.at).toBe(6);
  expect(added(samples, 3, 1)).toBe(samples);
  expect(added(samples, 1e9, Number.NaN)).toBe(samples);
});

it('draws a line whose gaps are as wide as the time', () => {
  const samples = [{ at: 0, value: 0 }, { at: 10, value: 5 }, { at: 40, value: 10 }];
  expect(area(samples, 100, 12, 10).line).toBe('M0 12L25 7L100 2');
  expect(area(samples, 100, 12).area).toBe('M0 12L25 7L100 2L100 12L0 12Z');
  expect(area([], 100, 12).line).toBe('');
});

it('knows the extremes', () => {
  expect(extremes([])).toBeUndefined();
  expect(extremes([{ at: 1, value: 4 }, { at: 2, value: 2 }])).toEqual({ least: 2, most: 4, last: 2 });
});
