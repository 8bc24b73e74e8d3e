// The time that a token is still valid.

import { millis } from './words';

/** The time before the end in which the page warns, in milliseconds. */
export const WARNING = 10 * 60_000;

/** Where a token stands: nothing to report, soon at its end, or past it by this clock. */
export type Expiry = { state: 'valid' } | { state: 'soon'; left: number } | { state: 'over' };

/** Returns where a token stands at a time. A token without an end is always valid. */
export function expiry(ends: string | null | undefined, now: number): Expiry {
  const at = millis(ends);
  if (at === 0) return { state: 'valid' };
  const left = at - now;
  if (left <= 0) return { state: 'over' };
  return left <= WARNING ? { state: 'soon', left } : { state: 'valid' };
}

/** Returns the time left in words that change once a minute, for readers that speak. */
export function spoken(left: number): string {
  const minutes = Math.ceil(left / 60_000);
  return minutes <= 1 ? 'less than a minute' : `less than ${minutes} minutes`;
}

/** Returns the time left as `9:05`. */
export function countdown(left: number): string {
  const seconds = Math.max(0, Math.floor(left / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}
