import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { later } from './later';

/** What the browser calls next. */
let frame: (() => void) | undefined;
let idle: (() => void) | undefined;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('window', { requestIdleCallback: true });
  vi.stubGlobal('requestAnimationFrame', (call: () => void) => ((frame = call), 1));
  vi.stubGlobal('cancelAnimationFrame', () => (frame = undefined));
  vi.stubGlobal('requestIdleCallback', (call: () => void) => (idle = call));
});
afterEach(() => {
  frame = idle = undefined;
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it('acts once, after a frame and without other work', () => {
  const act = vi.fn();
  later(act, 200);
  expect(idle).toBeUndefined();
  frame?.();
  expect(act).not.toHaveBeenCalled();
  idle?.();
  vi.advanceTimersByTime(300);
  expect(act).toHaveBeenCalledTimes(1);
});

it('acts late in a window that draws nothing, and in a browser that reports no idle time', () => {
  const act = vi.fn();
  later(act, 200);
  vi.advanceTimersByTime(199);
  expect(act).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(act).toHaveBeenCalledTimes(1);

  vi.stubGlobal('window', {});
  later(act, 200);
  frame?.();
  vi.advanceTimersByTime(1);
  expect(act).toHaveBeenCalledTimes(2);
});

it('gives up', () => {
  const act = vi.fn();
  later(act, 200)();
  expect(frame).toBeUndefined();
  idle?.();
  vi.advanceTimersByTime(300);
  expect(act).not.toHaveBeenCalled();

  const stop = later(act, 200);
  frame?.();
  stop();
  idle?.();
  expect(act).not.toHaveBeenCalled();
});
