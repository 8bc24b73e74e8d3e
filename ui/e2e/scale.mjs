// The budgets of the page over a large state: node scale.mjs ADDRESS. What a busy machine changes (times) is printed; what it does
// not change (requests, elements, bytes) must hold. Prints one JSON object a line, then `the session is over`.

import { address, context, expect, heading, open, session } from './browser.mjs';

const print = (name, value, unit) => console.log(JSON.stringify({ bench: 'ui', case: name, value: Math.round(value), unit }));
const elements = (page) => page.evaluate(() => document.querySelectorAll('*').length);

/** Opens a page in a fresh tab and counts its requests until a locator is there. */
async function measured(path, locate) {
  const page = await context.newPage();
  const calls = [];
  page.on('request', (request) => calls.push(new URL(request.url()).pathname));
  const begun = performance.now();
  await page.goto(`${address}/ui/${path}`);
  await locate(page).first().waitFor();
  return { page, calls, took: performance.now() - begun };
}
const rows = (name) => (page) => page.getByRole('table', { name, exact: true }).locator('tbody a');

const steps = {
  async 'the first load is small'() {
    const page = await context.newPage();
    let bytes = 0;
    const sizes = [];
    page.on('response', (response) => {
      if (response.url().includes('/ui/')) sizes.push(response.request().sizes().then((size) => (bytes += size.responseBodySize)));
    });
    const calls = [];
    page.on('request', (request) => calls.push(new URL(request.url()).pathname));
    await page.goto(`${address}/ui/`);
    await page.getByRole('region', { name: 'Attention' }).waitFor();
    const before = calls.filter((path) => path.startsWith('/v1/') && !path.endsWith('/event/stream')).length;
    await Promise.all(sizes);
    print('first load, packed', bytes / 1024, 'KiB');
    print('requests of /v1 at the first load', before, '');
    expect(bytes <= 120 * 1024, `at most 120 KiB, were ${bytes}`);
    expect(before <= 6, `few requests, were ${calls.join(' ')}`);
    await page.close();
  },

  async 'lists show their first rows'() {
    for (const [path, name] of [
      ['jobs', 'Jobs'],
      ['allocations', 'Allocations'],
      ['clients', 'Nodes'],
      ['storage', 'Volumes'],
    ]) {
      const { page, took } = await measured(path, rows(name));
      const number = await elements(page);
      print(`${name}: first rows`, took, 'ms');
      print(`${name}: elements`, number, '');
      // 100 rows of the widest table, and the frame.
      expect(number <= (name === 'Volumes' ? 4000 : 2500), `at most 2500 elements on ${path}, were ${number}`);
      await page.close();
    }
  },

  async 'the topology is drawn once, and moves'() {
    const { page, took } = await measured('topology', (at) => at.locator('canvas[style*="height"]'));
    print('topology: first picture', took, 'ms');
    await page.locator('canvas').focus();
    const times = await page.evaluate(async () => {
      const canvas = document.querySelector('canvas');
      const out = [];
      for (let at = 0; at < 30; at += 1) {
        const begun = performance.now();
        canvas.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
        await new Promise((resolve) => requestAnimationFrame(resolve));
        out.push(performance.now() - begun);
      }
      return out.sort((one, two) => one - two);
    });
    print('topology: frame, 95 of 100', times[28], 'ms');
    const number = await elements(page);
    print('topology: elements', number, '');
    expect(number <= 2500, `at most 2500 elements, were ${number}`);
    await page.close();
  },

  async 'rest is quiet'() {
    const page = await open('jobs');
    await heading(page, 'Jobs');
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Live' }).waitFor();
    let calls = 0;
    page.on('request', () => (calls += 1));
    await page.waitForTimeout(3000);
    print('requests in three seconds at rest', calls, '');
    expect(calls <= 1, `no requests at rest, were ${calls}`);
    await page.close();
  },
};

await session(steps, process.argv[3]);
