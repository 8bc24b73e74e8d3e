// Figures of a page: what it loads before its first content, its elements, its requests and its memory.

import { address, browser, context, expect, watch } from './browser.mjs';

/** The budgets of docs/design/web-page.md that no busy machine changes. */
export const LIMITS = { firstLoad: 120 * 1024, requests: 6, calls: 4, elements: 2000 };

/** Calls that wait for the first content. On a busy machine they begin before the frame that shows it. */
const AFTERWARDS = ['/v1/regions'];

/**
 * Opens a page in a tab of its own context and waits for its first content, an element of the selector. Returns the tab, the
 * requests that began before the content, and the milliseconds until then as the browser measured them.
 */
export async function firstContent(path, selector, within = context) {
  const page = await within.newPage();
  watch(page);
  // The time of the content is taken in the page: calls over the debugger take longer than the page itself.
  await page.addInitScript((wanted) => {
    window.firstContent = new Promise((resolve) => {
      const look = () => document.querySelector(wanted) && requestAnimationFrame(() => resolve(performance.now()));
      new MutationObserver((_, observer) => look() && observer.disconnect()).observe(document, { childList: true, subtree: true });
    });
  }, selector);
  await page.goto(`${address}/ui/${path}`);
  const at = await page.evaluate(() => window.firstContent);
  const entries = await page.evaluate(
    (end) =>
      [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
        .filter((entry) => entry.startTime <= end)
        .map((entry) => ({ url: entry.name, bytes: entry.encodedBodySize, start: entry.startTime, end: entry.responseEnd })),
    at,
  );
  // Data in the address of the icon is no request.
  const requests = entries.filter((entry) => entry.url.startsWith('http') && !AFTERWARDS.some((path) => entry.url.endsWith(path)));
  return { page, took: at, requests, calls: requests.filter((entry) => new URL(entry.url).pathname.startsWith('/v1/')) };
}

/**
 * Opens a page in a context of its own and holds the answers of all calls until every one of `urls` has been made. Returns the
 * addresses that the page did not call within the deadline: these calls wait for the answer of another call.
 */
export async function callsAfterAnswers(path, urls, timeout = 20_000) {
  const own = await browser.newContext();
  const page = await own.newPage();
  const missing = new Set(urls);
  let release;
  const complete = new Promise((resolve) => (release = resolve));
  await page.route('**/v1/**', async (route) => {
    missing.delete(route.request().url());
    if (missing.size === 0) release();
    await complete;
    // The context can be closed before the page needs the answer.
    await route.continue().catch(() => {});
  });
  await page.goto(`${address}/ui/${path}`);
  const deadline = setTimeout(release, timeout);
  await complete;
  clearTimeout(deadline);
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await own.close();
  return [...missing];
}

export const elements = (page) => page.evaluate(() => document.querySelectorAll('*').length);

/** The first content of the lists: their heading, address and a selector of their rows. */
export const LISTS = [
  ['jobs', 'Jobs', 'table[aria-label="Jobs"] tbody a'],
  ['allocations', 'Allocations', 'table[aria-label="Allocations"] tbody a'],
  ['clients', 'Nodes', 'table[aria-label="Nodes"] tbody a'],
  ['storage', 'Volumes', 'table[aria-label="Volumes"] tbody a'],
  ['evaluations', 'Evaluations', 'table[aria-label="Evaluations"] tbody a'],
];

/**
 * Returns the requests of a page within a time in milliseconds, after the page has had none for a second. The parts of the page
 * that load ahead do not count: each is loaded once, when a busy browser has time.
 */
export async function requestsAtRest(page, time = 3000) {
  let calls = [];
  const count = (request) => {
    const { pathname } = new URL(request.url());
    if (!pathname.includes('/ui/assets/')) calls.push(pathname);
  };
  page.on('request', count);
  // What the page reads once after its first content.
  for (let round = 0; round < 20; round += 1) {
    calls = [];
    await page.waitForTimeout(1000);
    if (calls.length === 0) break;
  }
  await page.waitForTimeout(time);
  page.off('request', count);
  return calls;
}

/** Returns the memory of a page after a collection of garbage: bytes of its heap, nodes of its documents, listeners. */
export async function memory(page) {
  const debug = await page.context().newCDPSession(page);
  await debug.send('HeapProfiler.enable');
  for (let round = 0; round < 2; round += 1) await debug.send('HeapProfiler.collectGarbage');
  const { nodes, jsEventListeners } = await debug.send('Memory.getDOMCounters');
  const { usedSize } = await debug.send('Runtime.getHeapUsage');
  await debug.detach();
  return { heap: usedSize, nodes, listeners: jsEventListeners };
}

/** Makes changes of nodes: each request changes whether a node accepts allocations. */
export class Changes {
  number = 0;
  constructor(nodes) {
    this.nodes = nodes;
    this.eligible = new Map(nodes.map((id) => [id, true]));
  }

  /** Changes the next node. */
  async one() {
    const id = this.nodes[this.number % this.nodes.length];
    this.number += 1;
    return this.set(id, !this.eligible.get(id));
  }

  async set(id, eligible) {
    this.eligible.set(id, eligible);
    const body = JSON.stringify({ Eligibility: eligible ? 'eligible' : 'ineligible' });
    const answer = await fetch(`${address}/v1/node/${id}/eligibility`, { method: 'PUT', body });
    expect(answer.ok, `the node to be changed: ${answer.status}`);
    await answer.arrayBuffer();
  }
}

/** Registers jobs that wait for their dispatch: each request changes one of a hundred. No evaluation follows. */
export class Registrations {
  number = 0;

  async one() {
    const id = `changed-${this.number % 100}`;
    this.number += 1;
    const task = { Name: 't', Driver: 'raw_exec', Config: { command: '/bin/true' } };
    const job = { ID: id, Type: 'batch', Datacenters: ['*'], ParameterizedJob: {}, Meta: { number: String(this.number) } };
    const body = JSON.stringify({ Job: { ...job, TaskGroups: [{ Name: 'g', Count: 1, Tasks: [task] }] } });
    const answer = await fetch(`${address}/v1/jobs`, { method: 'POST', body });
    expect(answer.ok, `the job to be registered: ${answer.status}`);
    await answer.arrayBuffer();
  }
}
