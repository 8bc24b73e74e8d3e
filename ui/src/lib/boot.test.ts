import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';

const script = readFileSync(join(import.meta.dirname, '../../public/boot.js'), 'utf8');

/** A browser that loads the page again while one of its files is missing. */
class Tab {
  loads = 0;
  pauses: number[] = [];
  /** Requests that change the turn of a balancer. */
  further = 0;
  now = 0;
  private readonly store = new Map<string, string>();

  load(fails: (target: object) => object | undefined): void {
    this.loads += 1;
    const listeners = new Map<string, (event: object) => void>();
    let reload = false;
    runInNewContext(script, {
      addEventListener: (name: string, listener: (event: object) => void) => listeners.set(name, listener),
      sessionStorage: { getItem: (key: string) => this.store.get(key) ?? null, setItem: (key: string, value: string) => this.store.set(key, value) },
      document: { currentScript: { src: 'boot.js' } },
      fetch: () => {
        this.further += 1;
        return Promise.resolve();
      },
      location: { reload: () => (reload = true) },
      Date: { now: () => this.now },
      setTimeout: (run: () => void, ms: number) => {
        this.pauses.push(ms);
        run();
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
  expect(tab.further).toBe(1);
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
