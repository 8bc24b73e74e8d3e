import { expect, it } from 'vitest';
import { GATHER, MIN_PAUSE, Pace } from './pace';

it('reads soon after the first change, then rests', () => {
  const pace = new Pace();
  expect(pace.after(1000)).toBe(GATHER);
  pace.read(1040, 1050);
  expect(pace.after(1050)).toBe(MIN_PAUSE);
  expect(pace.after(1300)).toBe(50);
  expect(pace.after(2000)).toBe(GATHER);
});

it('rests longer after slow reads', () => {
  const pace = new Pace();
  pace.read(0, 400);
  expect(pace.after(400)).toBe(2000);
});

it('reads while changes never end', () => {
  const pace = new Pace();
  let [reads, due] = [0, Infinity];
  // A change every 10 ms for 10 s, and reads of 20 ms. A change while a read is due changes nothing.
  for (let now = 0; now < 10_000; now += 10) {
    if (now >= due) {
      pace.read(now, now + 20);
      [reads, due] = [reads + 1, Infinity];
    }
    if (due === Infinity) due = now + pace.after(now);
  }
  expect(reads).toBeGreaterThan(25);
  expect(reads).toBeLessThan(35);
});
