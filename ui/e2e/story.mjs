// A session of a user in Chromium against a real agent: node story.mjs ADDRESS. The agent runs the jobs `writer` and
// `reader`, which want the same volume `data` of the plugin `hostpath`; `reader` waits. Prints `the session is over`.

import { createServer, request } from 'node:http';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const address = process.argv[2];
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
});
const context = await browser.newContext();
const troubles = [];
const foreign = new Set();

function watch(page) {
  page.on('console', (message) => {
    // A panel that is refused shows the reason; the browser reports the status besides.
    if (message.type() === 'error' && !/status of 40[34]/.test(message.text())) troubles.push(message.text());
  });
  page.on('pageerror', (error) => troubles.push(String(error)));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.hostname !== '127.0.0.1') foreign.add(url.href);
  });
}

async function open(path, within = context) {
  const page = await within.newPage();
  watch(page);
  await page.goto(new URL(path, `${address}/ui/`).href);
  return page;
}

function expect(condition, what) {
  if (!condition) throw new Error(`expected ${what}`);
}

const heading = (page, name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
const main = (page, name) => page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }).click();
const api = async (path, options) => (await fetch(`${address}/v1/${path}`, options)).json();

/** Fails on violations of WCAG 2.2 A and AA. */
async function accessible(page, name) {
  // The script runs as a debugger's, which the policy of the page does not concern.
  await page.evaluate(axe);
  const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
  const found = await page.evaluate(
    (values) => window.axe.run(document, { runOnly: { type: 'tag', values } }).then((result) => result.violations),
    rules,
  );
  const told = found.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`);
  expect(found.length === 0, `no violations on ${name}, found ${told.join('\n')}`);
}

const steps = {
  async 'the overview names what waits and why'() {
    const page = await open('');
    await heading(page, 'Overview');
    const attention = page.getByRole('region', { name: 'Attention' });
    await attention.getByRole('link', { name: 'reader', exact: true }).waitFor();
    expect(/volume data/.test(await attention.innerText()), 'the reason');
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Live' }).waitFor();
    await attention.getByRole('link', { name: 'reader', exact: true }).click();
    await heading(page, 'reader');
    await page.getByRole('region', { name: 'Why it waits' }).getByText(/waits for a claim on volume/i).waitFor();
    await page.goBack();
    await heading(page, 'Overview');
    await page.close();
  },

  async 'lists lead to objects and objects to their parts'() {
    const page = await open('jobs');
    await page.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'writer', exact: true }).click();
    await heading(page, 'writer');
    await page.getByRole('tab', { name: 'Definition' }).click();
    await page.getByText('job "writer"').waitFor();
    expect(page.url().endsWith('/ui/jobs/writer@default/definition'), `the address of the tab, not ${page.url()}`);
    await page.getByRole('tab', { name: 'Allocations' }).click();
    await page.getByRole('table', { name: 'Allocations' }).locator('tbody a').first().click();
    await page.getByRole('table', { name: 'Timeline' }).getByText('mounted').waitFor();
    await page.getByRole('table', { name: 'Tasks' }).getByRole('link', { name: 'Log' }).click();
    await page.getByRole('log', { name: 'Log' }).getByText('written by allocation').first().waitFor();
    await page.getByRole('searchbox', { name: 'Search in log' }).fill('written by');
    await page.getByText(/^\d+ found$/).waitFor();
    await page.getByRole('button', { name: 'Wrap' }).click();
    await page.close();
  },

  async 'a deep address opens as it is'() {
    const page = await open('storage/volumes/csi/data@default');
    await heading(page, 'data');
    await page.getByRole('region', { name: 'Claims' }).getByRole('link', { name: 'writer' }).first().waitFor();
    await main(page, 'Storage');
    await heading(page, 'Storage');
    await page.getByRole('region', { name: 'Storage map' }).getByRole('link', { name: 'hostpath' }).waitFor();
    await page.goto(`${address}/ui/csi/plugins/hostpath`);
    await heading(page, 'hostpath');
    await page.goto(`${address}/ui/jobs/no%2Fsuch@default/versions`);
    await heading(page, 'no/such');
    await page.close();
  },

  async 'it works below a prefix'() {
    const target = new URL(address);
    const proxy = createServer((from, to) => {
      const path = from.url.replace('/tools/cluster', '');
      const onward = request({ host: target.hostname, port: target.port, path, method: from.method, headers: from.headers });
      onward.on('response', (answer) => {
        to.writeHead(answer.statusCode, answer.headers);
        answer.pipe(to);
      });
      onward.on('error', () => to.destroy());
      to.on('close', () => onward.destroy());
      from.pipe(onward);
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const root = `http://127.0.0.1:${proxy.address().port}/tools/cluster/ui/`;
    const page = await open(`${root}jobs/writer@default/definition`);
    await page.getByText('job "writer"').waitFor();
    await main(page, 'Nodes');
    await heading(page, 'Nodes');
    expect(page.url() === `${root}clients`, `the prefix in ${page.url()}`);
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Live' }).waitFor();
    await page.close();
    proxy.closeAllConnections();
    proxy.close();
  },

  async 'nine tabs share one stream'() {
    const tabs = [];
    for (let at = 0; at < 9; at += 1) tabs.push(await open('jobs'));
    for (const tab of tabs) {
      await tab.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'writer', exact: true }).waitFor();
    }
    for (const tab of tabs) await tab.close();
  },

  async 'every page can be used by everyone'() {
    const node = (await api('nodes'))[0].ID;
    const alloc = (await api('job/writer/allocations'))[0].ID;
    const paths = [
      ['', 'Overview'],
      ['jobs', 'Jobs'],
      ['jobs/writer@default', 'writer'],
      ['jobs/writer@default/definition', 'writer'],
      ['allocations', 'Allocations'],
      [`allocations/${alloc}`, alloc.slice(0, 8)],
      [`allocations/${alloc}/writer/logs`, alloc.slice(0, 8)],
      ['clients', 'Nodes'],
      [`clients/${node}`, undefined],
      ['storage', 'Storage'],
      ['storage/volumes/csi/data@default', 'data'],
      ['storage/plugins/hostpath', 'hostpath'],
      ['evaluations', 'Evaluations'],
      ['servers', 'Servers'],
      ['settings/tokens', 'Sign in'],
      ...(process.env.CARAVAN_UI_MORE ?? '').split(',').filter(Boolean).map((path) => [path, undefined]),
    ];
    const page = await open('');
    for (const [path, name] of paths) {
      await page.goto(`${address}/ui/${path}`);
      if (name) await heading(page, name);
      await page.waitForFunction(() => !document.querySelector('[aria-busy]') && document.querySelector('h1'));
      for (const scheme of ['light', 'dark']) {
        await page.getByRole('combobox', { name: 'Theme' }).selectOption(scheme);
        await accessible(page, `${path} (${scheme})`);
      }
      await page.setViewportSize({ width: 320, height: 640 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide <= 321, `no sideways scrolling at 320 px on ${path}, the page is ${wide} px wide`);
      await page.setViewportSize({ width: 1280, height: 720 });
    }
    await page.getByRole('combobox', { name: 'Theme' }).selectOption('system');
    await page.close();
  },

  async 'verbs ask first'() {
    const page = await open('clients');
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().click();
    await page.getByRole('button', { name: 'Drain' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Deadline' }).fill('soon');
    await dialog.getByRole('button', { name: 'Drain it' }).click();
    await dialog.getByRole('alert').getByText('no span').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Make ineligible' }).click();
    await dialog.getByRole('button', { name: 'Make it ineligible' }).click();
    await page.getByRole('button', { name: 'Make eligible' }).waitFor();
    await page.getByRole('button', { name: 'Make eligible' }).click();
    await dialog.getByRole('button', { name: 'Make it eligible' }).click();
    await page.getByRole('button', { name: 'Make ineligible' }).waitFor();
    await page.close();
  },

  async 'a change is seen without loading, and rest is quiet'() {
    const page = await open('jobs/writer@default');
    await heading(page, 'writer');
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Live' }).waitFor();
    const overview = await open('');
    await overview.getByRole('region', { name: 'Attention' }).getByRole('link', { name: 'reader', exact: true }).waitFor();
    let calls = 0;
    page.on('request', () => (calls += 1));
    await page.waitForTimeout(3000);
    expect(calls <= 1, `no requests at rest, there were ${calls}`);
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Stop the job' }).click();
    await page.getByRole('button', { name: 'Purge' }).waitFor();
    await overview.bringToFront();
    await overview
      .getByRole('region', { name: 'Attention' })
      .getByRole('link', { name: 'reader', exact: true })
      .waitFor({ state: 'detached' });
    await page.close();
    await overview.close();
  },
};

try {
  for (const [name, step] of Object.entries(steps)) {
    if (process.argv[3] && !name.includes(process.argv[3])) continue;
    try {
      await step();
    } catch (error) {
      throw new Error(`${name}: ${error.message}\n${troubles.join('\n')}`);
    }
    expect(troubles.length === 0, `no trouble in "${name}", found ${troubles.join('\n')}`);
    console.error(`ok: ${name}`);
  }
  expect(foreign.size === 0, `no foreign requests, found ${[...foreign].join(' ')}`);
  console.log('the session is over');
} finally {
  await browser.close();
}
