import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';

const script = readFileSync(join(import.meta.dirname, '../../public/boot.js'), 'utf8');

type Listeners = Map<string, (event: object) => void>;

/** A browser that loads the page again while one of its files is missing. */
class Tab {
  loads = 0;
  pauses: number[] = [];
  /** The requests before the page is loaded again. */
  requests = 0;
  /** The answers to the first requests, before those that succeed; `undefined` for none. */
  answers: ({ ok: boolean } | undefined)[] = [];
  now = 0;
  readyState = 'loading';
  private readonly store = new Map<string, string>();

  /** Loads the page, and again as often as boot.js does. `fails` returns the element that fails, or reports a failure itself. */
  load(fails: (listeners: Listeners) => object | undefined): void {
    this.loads += 1;
    const listeners: Listeners = new Map();
    let reload = false;
    runInNewContext(script, {
      addEventListener: (name: string, listener: (event: object) => void) => listeners.set(name, listener),
      sessionStorage: { getItem: (key: string) => this.store.get(key) ?? null, setItem: (key: string, value: string) => this.store.set(key, value) },
      document: { currentScript: { src: 'boot.js' }, readyState: this.readyState },
      // Answers at once.
      fetch: () => ({
        then: (answered: (answer: object) => void, failed: () => void) => {
          const answer = this.answers.length > 0 ? this.answers.shift() : { ok: true };
          this.requests += 1;
          if (answer) answered(answer);
          else failed();
        },
      }),
      location: { reload: () => (reload = true) },
      Date: { now: () => this.now },
      setTimeout: (run: (...args: unknown[]) => void, ms: number, ...args: unknown[]) => {
        this.pauses.push(ms);
        run(...args);
      },
    });
    const failure = fails(listeners);
    if (failure) listeners.get('error')?.({ target: failure });
    if (reload) this.load(fails);
  }
}

it('loads again until the files are there', () => {
  const tab = new Tab();
  tab.load(() => (tab.loads < 4 ? { tagName: 'SCRIPT' } : undefined));
  expect(tab.loads).toBe(4);
  expect(tab.pauses).toEqual([0, 100, 200]);
  // The second attempt has one more request, which changes the turn of a balancer.
  expect(tab.requests).toBe(4);
});

it('keeps the page until an agent answers', () => {
  const tab = new Tab();
  tab.answers = [undefined, { ok: false }, undefined];
  tab.load(() => (tab.loads < 2 ? { tagName: 'SCRIPT' } : undefined));
  expect(tab.loads).toBe(2);
  expect(tab.pauses).toEqual([1000, 1000, 1000, 0]);
});

it('loads again for a part that the page needs, and not for one that it loads ahead', () => {
  const tab = new Tab();
  tab.readyState = 'complete';
  tab.load(() => ({ tagName: 'LINK', rel: 'stylesheet' }));
  expect(tab.loads).toBe(1);
  tab.load((listeners) => {
    if (tab.loads < 3) listeners.get('caravan:missing')?.({});
    return undefined;
  });
  expect(tab.loads).toBe(3);
});

it('ends its attempts, and begins again later', () => {
  const tab = new Tab();
  tab.load(() => ({ tagName: 'LINK', rel: 'stylesheet' }));
  expect(tab.loads).toBe(25);
  tab.now = 61_000;
  tab.load(() => (tab.loads < 27 ? { tagName: 'LINK', rel: 'stylesheet' } : undefined));
  expect(tab.loads).toBe(27);
});

it('ignores pictures, errors of scripts, and files that are loaded ahead', () => {
  for (const target of [{ tagName: 'IMG' }, {}, { tagName: 'LINK', rel: 'modulepreload' }]) {
    const tab = new Tab();
    tab.load(() => target);
    expect(tab.loads).toBe(1);
  }
});
