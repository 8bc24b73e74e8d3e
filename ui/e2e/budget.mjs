// The budgets of the page that no busy machine changes: bytes, requests, elements, and memory that stays: node budget.mjs ADDRESS.
// The address is that of a small fleet with more than 100 objects of each kind. Prints `the session is over`.

import { address, api, browser, context, expect, heading, live, main, open, session } from './browser.mjs';
import { callsAfterAnswers, Changes, elements, firstContent, LIMITS, LISTS, memory, requestsAtRest } from './measure.mjs';

/** Milliseconds after which the page makes all its calls, with or without its first content (`First` in `live.svelte.ts`). */
const REST = 500;
const MAX_LOADS = 5;

/** Loads a page until the first content comes before the rest of the calls, or for the last time. A busy machine takes longer. */
async function undisturbed(path, selector) {
  for (let load = 1; ; load += 1) {
    const own = await browser.newContext();
    const loaded = await firstContent(path, selector, own);
    if (loaded.took < REST || load === MAX_LOADS) return { ...loaded, own };
    await own.close();
  }
}

const steps = {
  async 'the first load is small and asks little'() {
    for (const [path, selector] of [['', 'section .attention, section p .status'], ...LISTS.map(([path, , selector]) => [path, selector])]) {
      const { page, requests, calls, own } = await undisturbed(path, selector);
      const names = requests.map((entry) => new URL(entry.url).pathname);
      const bytes = requests.filter((entry) => !entry.url.includes('/v1/')).reduce((sum, entry) => sum + entry.bytes, 0);
      expect(bytes > 10_000 && bytes <= LIMITS.firstLoad, `at most ${LIMITS.firstLoad} bytes on ${path}, were ${bytes}: ${names.join(' ')}`);
      // Lists come with the first load, and ask for their rows and namespaces beside the overview's call.
      const most = LIMITS.requests + (path ? 3 : 0);
      expect(names.length <= most, `at most ${most} requests on ${path}, were ${names.join(' ')}`);
      expect(calls.length > 0 && calls.length <= LIMITS.calls, `at most ${LIMITS.calls} calls on ${path}, were ${names.join(' ')}`);
      expect(page.url().startsWith(address), 'the page');
      await own.close();
      // Times of the calls depend on the machine, so a second load shows that no call needs the answer of another one.
      const urls = new Set(calls.map((entry) => entry.url));
      const missing = await callsAfterAnswers(path, [...urls]);
      expect(missing.length === 0, `calls beside each other on ${path}, waited for an answer: ${missing.join(' ')}`);
    }
    // The check finds a call that is not made before the answers.
    const never = `${address}/v1/caravan/never`;
    expect((await callsAfterAnswers('', [never], 1000)).join() === never, 'a planted call that waits');
  },

  async 'lists of any length have few elements'() {
    for (const [path, name, selector] of LISTS) {
      const page = await open(path);
      await page.locator(selector).nth(99).waitFor();
      const number = await elements(page);
      expect(number <= LIMITS.elements, `at most ${LIMITS.elements} elements on ${name}, were ${number}`);
      await page.close();
    }
    const page = await open('topology');
    await page.getByRole('application', { name: /nodes. Arrow keys/ }).waitFor();
    const number = await elements(page);
    expect(number <= LIMITS.elements, `a picture and a table of nodes without an element for each, were ${number}`);
    await page.close();
  },

  async 'at rest nothing is requested'() {
    for (const path of ['', 'jobs', 'allocations', 'clients', 'topology']) {
      const page = await open(path);
      await live(page);
      const calls = await requestsAtRest(page);
      expect(calls.length === 0, `no requests at rest on /${path}, were ${calls.join(' ')}`);
      await page.close();
    }
  },

  async 'changes that go on are shown, and leave nothing behind'() {
    const page = await open('clients');
    await live(page);
    const table = page.getByRole('table', { name: 'Nodes' });
    await table.locator('tbody a').nth(99).waitFor();
    const nodes = (await api('nodes?per_page=20')).map((row) => row.ID);
    const changes = new Changes(nodes);
    const burst = async (number) => {
      for (let at = 0; at < number; at += 4) await Promise.all([0, 1, 2, 3].map(() => changes.one()));
    };
    const settled = async (words) => {
      for (const id of nodes) await changes.set(id, false);
      await table.locator('tbody tr').filter({ hasText: 'ineligible' }).nth(nodes.length - 1).waitFor();
      for (const id of nodes) await changes.set(id, true);
      await table.locator('tbody tr').filter({ hasText: 'ineligible' }).first().waitFor({ state: 'detached' });
      return { ...(await memory(page)), words };
    };
    let calls = 0;
    page.on('request', () => (calls += 1));
    await burst(200);
    const before = await settled('before');
    await burst(800);
    const after = await settled('after');
    expect(after.nodes <= before.nodes * 1.1 + 200, `as many nodes of documents as before: ${JSON.stringify([before, after])}`);
    expect(after.listeners <= before.listeners * 1.1 + 50, `as many listeners as before: ${JSON.stringify([before, after])}`);
    expect(after.heap <= before.heap + 3 * 1024 * 1024, `a heap that stays: ${JSON.stringify([before, after])}`);
    expect(calls < changes.number, `fewer reads than changes, were ${calls}`);
    await page.close();
  },

  async 'pages that are left release their data'() {
    const page = await open('');
    await heading(page, 'Overview');
    const round = async () => {
      for (const name of ['Jobs', 'Allocations', 'Nodes', 'Storage', 'Topology', 'Overview']) {
        await main(page, name);
        await heading(page, name);
        await page.waitForFunction(() => !document.querySelector('[aria-busy]'));
      }
      return memory(page);
    };
    await round();
    const before = await round();
    for (let at = 0; at < 4; at += 1) await round();
    const after = await round();
    expect(after.nodes <= before.nodes * 1.1 + 200, `as many nodes of documents as before: ${JSON.stringify([before, after])}`);
    expect(after.listeners <= before.listeners * 1.1 + 50, `as many listeners as before: ${JSON.stringify([before, after])}`);
    expect(after.heap <= before.heap + 3 * 1024 * 1024, `a heap that stays: ${JSON.stringify([before, after])}`);
    expect((await context.pages()).length === 1, 'one tab');
    await page.close();
  },
};

await session(steps, process.argv[3]);
