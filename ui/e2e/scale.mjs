// The budgets of the page over a large state: node scale.mjs ADDRESS [STEP]. Times are printed, because a busy machine changes
// them; what no machine changes must hold. Prints one JSON object a line, then `the session is over`.

import { readFileSync } from 'node:fs';
import { address, api, browser, expect, heading, live, main, open, session } from './browser.mjs';
import { Changes, elements, firstContent, LIMITS, LISTS, memory, Registrations, requestsAtRest } from './measure.mjs';

/** Prints a figure, and whether it keeps its budget (`limit`). */
const print = (name, value, unit, limit) =>
  console.log(JSON.stringify({ bench: 'ui', case: name, value: Math.round(value * 10) / 10, unit, ...(limit === undefined ? {} : { limit, met: value <= limit }) }));
const percentile = (values, share) => [...values].sort((one, two) => one - two)[Math.min(values.length - 1, Math.floor(values.length * share))];
const median = (values) => percentile(values, 0.5);

/** How long the changes go on, in seconds, and their number a second. */
const SECONDS = Number(process.env.CARAVAN_BENCH_SECONDS ?? 60);
const RATE = 100;

/** Returns the bytes of the processes that draw pages and run their scripts: private ones, without what they share. */
async function rendererMemory() {
  const debug = await browser.newBrowserCDPSession();
  const { processInfo } = await debug.send('SystemInfo.getProcessInfo');
  await debug.detach();
  const own = processInfo.filter((process) => process.type === 'renderer').map((process) => {
    const rollup = readFileSync(`/proc/${process.id}/smaps_rollup`, 'utf8');
    return [...rollup.matchAll(/^Private_\w+:\s+(\d+) kB$/gm)].reduce((sum, [, kib]) => sum + Number(kib) * 1024, 0);
  });
  return Math.max(...own);
}

/** The main pages: the word of their link, and a selector of what they show when their data is there. */
const PAGES = [
  ['Overview', 'section .attention, section p .status'],
  ['Jobs', 'table[aria-label="Jobs"] tbody a'],
  ['Allocations', 'table[aria-label="Allocations"] tbody a'],
  ['Nodes', 'table[aria-label="Nodes"] tbody a'],
  ['Storage', 'table[aria-label="Volumes"] tbody a'],
  ['Topology', 'canvas'],
  ['Evaluations', 'table[aria-label="Evaluations"] tbody a'],
  ['Variables', 'main nav.pager, main section table'],
  ['Administration', 'table[aria-label="Namespaces"] tbody a'],
  // The fleet has no members.
  ['Servers', 'table[aria-label="Servers"] tbody td'],
];

/**
 * Measures in the page the milliseconds from a click on a link of the navigation until the page has what it shows, and the browser
 * has drawn it. Returns them with the longest task of the browser within that time.
 */
function moved(page, name, selector) {
  return page.evaluate(
    ([text, wanted]) =>
      new Promise((resolve) => {
        const link = [...document.querySelectorAll('nav a')].find((found) => found.textContent === text);
        let longest = 0;
        const tasks = new PerformanceObserver((list) => list.getEntries().forEach((entry) => (longest = Math.max(longest, entry.duration))));
        tasks.observe({ type: 'longtask' });
        const begun = performance.now();
        const isThere = () => link.getAttribute('aria-current') === 'page' && document.querySelector(wanted);
        const end = () =>
          requestAnimationFrame(() =>
            setTimeout(() => {
              const took = performance.now() - begun;
              // Tasks are reported after they ended.
              setTimeout(() => {
                tasks.disconnect();
                resolve({ took, longest });
              }, 50);
            }),
          );
        new MutationObserver((_, observer) => {
          if (!isThere()) return;
          observer.disconnect();
          end();
        }).observe(document, { childList: true, subtree: true, attributes: true });
        link.click();
      }),
    [name, selector],
  );
}

const steps = {
  async 'the first load'() {
    const own = await browser.newContext();
    const begin = async () => firstContent('', 'section .attention, section p .status', own);
    const { page, took, requests, calls } = await begin();
    const bytes = requests.filter((entry) => !entry.url.includes('/v1/')).reduce((sum, entry) => sum + entry.bytes, 0);
    print('first load, packed', bytes / 1024, 'KiB', LIMITS.firstLoad / 1024);
    print('first load, requests before the first content', requests.length, '', LIMITS.requests);
    print('first load, requests of /v1 before the first content', calls.length, '', LIMITS.calls);
    print('first content, cold browser', took, 'ms');
    expect(bytes <= LIMITS.firstLoad, `at most ${LIMITS.firstLoad} bytes, were ${bytes}`);
    expect(requests.length <= LIMITS.requests && calls.length <= LIMITS.calls, `few requests, were ${requests.map((entry) => entry.url)}`);
    await page.close();
    const warm = [];
    for (let at = 0; at < 5; at += 1) {
      const again = await begin();
      warm.push(again.took);
      await again.page.close();
    }
    print('first content, warm browser, median of 5', median(warm), 'ms', 500);
    await own.close();
  },

  async 'lists show their first rows'() {
    for (const [path, name, selector] of LISTS) {
      const took = [];
      for (let at = 0; at < 3; at += 1) {
        const { page, took: one } = await firstContent(path, selector);
        took.push(one);
        if (at === 2) {
          const number = await elements(page);
          print(`${name}: elements`, number, '', LIMITS.elements);
          expect(number <= LIMITS.elements, `at most ${LIMITS.elements} elements on ${path}, were ${number}`);
        }
        await page.close();
      }
      print(`${name}: first rows, median of 3`, median(took), 'ms', 1000);
    }
  },

  async 'page to page'() {
    const page = await open('');
    await heading(page, 'Overview');
    await live(page);
    // The user looks at a page before the next one: what the page reads has arrived.
    const settled = async () => {
      await page.waitForFunction(() => !document.querySelector('[aria-busy]'));
      await page.waitForTimeout(150);
    };
    const to = async ([name, selector]) => {
      const found = await moved(page, name, selector);
      await settled();
      return found;
    };
    for (const target of PAGES) await to(target);
    await to(PAGES[0]);
    const took = [];
    const measure = async (from, target) => {
      const found = await to(target);
      took.push(found.took);
      print(`page to page, ${from[0]} to ${target[0]}`, found.took, 'ms', 100);
      if (found.longest > 0) print(`page to page, ${from[0]} to ${target[0]}: longest task`, found.longest, 'ms');
    };
    // Each page leads to each other once.
    for (const [at, one] of PAGES.entries()) {
      for (const other of PAGES.slice(at + 1)) {
        await measure(one, other);
        await measure(other, one);
      }
      if (PAGES[at + 1]) await to(PAGES[at + 1]);
    }
    print('page to page, median', median(took), 'ms', 100);
    print('page to page, 95 of 100', percentile(took, 0.95), 'ms', 100);
    print('page to page, longest', Math.max(...took), 'ms', 100);
    await page.close();
  },

  async 'the topology is drawn once, and moves'() {
    const page = await open('topology');
    const drawn = await page.evaluate(
      () =>
        new Promise((resolve) => {
          const look = () => {
            const canvas = document.querySelector('canvas');
            const scale = devicePixelRatio || 1;
            // The first cell of the last row, above the gap of its group.
            const [x, y] = [6 * scale, (canvas?.height ?? 0) - 16 * scale];
            const isDrawn = canvas && parseFloat(canvas.style.height) > 0 && canvas.getContext('2d').getImageData(x, y, 1, 1).data[3] > 0;
            // The time since the navigation began.
            if (isDrawn) resolve(performance.now());
            else requestAnimationFrame(look);
          };
          look();
        }),
    );
    print('topology: first picture', drawn, 'ms', 2000);
    const box = await page.locator('canvas').boundingBox();
    await page.evaluate(() => {
      window.frames95 = [];
      let last = performance.now();
      const frame = (now) => {
        window.frames95.push(now - last);
        last = now;
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    });
    await page.locator('canvas').focus();
    for (let at = 0; at < 120; at += 1) {
      await page.mouse.move(box.x + ((at * 37) % box.width), box.y + ((at * 53) % Math.min(500, box.height)));
      await page.keyboard.press(at % 3 ? 'ArrowRight' : 'ArrowDown');
      if (at % 10 === 0) await page.mouse.wheel(0, 120);
    }
    const frames = await page.evaluate(() => window.frames95.slice(2));
    print('topology: frames while moving', frames.length, '');
    print('topology: frame, 95 of 100', percentile(frames, 0.95), 'ms', 33);
    print('topology: frame, longest', Math.max(...frames), 'ms');
    const number = await elements(page);
    // As in the budgets: a picture and a table, without an element for each node.
    print('topology: elements', number, '', LIMITS.elements);
    expect(number <= LIMITS.elements, `at most ${LIMITS.elements} elements, were ${number}`);
    await page.close();
  },

  async 'rest is quiet'() {
    for (const path of ['', 'jobs', 'allocations', 'clients', 'storage', 'topology', 'evaluations', 'variables', 'administration']) {
      const page = await open(path);
      await live(page);
      const calls = await requestsAtRest(page);
      print(`requests in three seconds at rest on /${path}`, calls.length, '', 0);
      expect(calls.length === 0, `no requests at rest, were ${calls.join(' ')}`);
      await page.close();
    }
  },

  async 'a change is seen'() {
    const page = await open('clients');
    await live(page);
    await page.locator(LISTS[2][2]).first().waitFor();
    const changes = new Changes((await api('nodes?per_page=1')).map((row) => row.ID));
    const took = [];
    for (let at = 0; at < 20; at += 1) {
      const [id] = changes.nodes;
      const desired = at % 2 === 1;
      const seen = page.evaluate(
        ([end, word]) =>
          new Promise((resolve) => {
            const look = () => document.querySelector(`a[href*="${end}"]`)?.closest('tr')?.innerText.split(/\s+/).includes(word);
            new MutationObserver((_, observer) => {
              if (!look()) return;
              observer.disconnect();
              requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
            }).observe(document.querySelector('main'), { childList: true, subtree: true, characterData: true });
          }),
        [id, desired ? 'eligible' : 'ineligible'],
      );
      // The observer is there.
      await page.evaluate(() => 0);
      const begun = performance.timeOrigin + performance.now();
      await changes.set(id, desired);
      took.push((await seen) - begun);
      await page.waitForTimeout(500);
    }
    print('change to seen, median of 20', median(took), 'ms', 200);
    print('change to seen, longest of 20', Math.max(...took), 'ms', 1000);
    await page.close();
  },

  async 'memory stays under changes'() {
    const page = await open('jobs');
    await live(page);
    const changes = new Registrations();
    /** Changes for some seconds, at most as fast as desired, and returns the changes a second. */
    const change = async (seconds) => {
      const begun = performance.now();
      const first = changes.number;
      const worker = async () => {
        for (;;) {
          const spent = performance.now() - begun;
          if (spent > seconds * 1000) return;
          if (changes.number - first > (spent / 1000) * RATE) await new Promise((resolve) => setTimeout(resolve, 10));
          else await changes.one();
        }
      };
      await Promise.all([1, 2, 3, 4].map(worker));
      return (changes.number - first) / ((performance.now() - begun) / 1000);
    };
    let calls = 0;
    page.on('request', () => (calls += 1));
    await change(SECONDS / 3);
    const before = await memory(page);
    const rate = await change((2 * SECONDS) / 3);
    const after = await memory(page);
    print('changes', rate, '1/s');
    print('reads of the list under changes', calls / SECONDS, '1/s');
    print('heap of a tab under changes, after a third', before.heap / 1048576, 'MiB');
    print('heap of a tab under changes, at the end', after.heap / 1048576, 'MiB');
    print('nodes of documents, after a third', before.nodes, '');
    print('nodes of documents, at the end', after.nodes, '');
    print('largest process of pages', (await rendererMemory()) / 1048576, 'MiB', 200);
    expect(after.heap <= before.heap + 3 * 1048576, `a heap that stays: ${JSON.stringify([before, after])}`);
    expect(after.nodes <= before.nodes * 1.1 + 200, `as many nodes of documents as before: ${JSON.stringify([before, after])}`);
    await main(page, 'Topology');
    await heading(page, 'Topology');
    await change(SECONDS / 6);
    print('largest process of pages, topology under changes', (await rendererMemory()) / 1048576, 'MiB', 200);
    await page.close();
  },
};

expect(address.startsWith('http'), 'an address');
await session(steps, process.argv[3]);
