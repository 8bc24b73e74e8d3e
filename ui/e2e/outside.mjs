// What lies between a user and an agent: TLS with HTTP/2, proxies, versions, the policy of the page, themes:
// node outside.mjs ADDRESS CERTIFICATE. The address is https; the agent runs the job `web`. Prints `the session is over`.

import { address, api, browser, context, expect, heading, live, main, open, session, takeTroubles, until, watch } from './browser.mjs';
import { balanced, prefixed } from './proxy.mjs';

const table = (page) => page.getByRole('table', { name: 'Jobs' });
const job = (page, name) => table(page).getByRole('link', { name, exact: true });

/** Registers a job that does nothing. */
async function register(id) {
  const task = { Name: 't', Driver: 'raw_exec', Config: { command: '/bin/sleep', args: ['3600'] }, Resources: { CPU: 20, MemoryMB: 16 } };
  const body = JSON.stringify({ Job: { ID: id, Name: id, Type: 'service', Datacenters: ['*'], TaskGroups: [{ Name: 'g', Tasks: [task] }] } });
  const answer = await fetch(`${address}/v1/jobs`, { method: 'POST', body });
  expect(answer.ok, `the job to be registered: ${await answer.clone().text()}`);
}

/** Runs a command in a terminal. */
async function terminal(page) {
  await page.getByRole('button', { name: 'Open terminal' }).click();
  await page.getByRole('status', { name: 'Session' }).filter({ hasText: 'Connected' }).waitFor();
  await page.keyboard.type('echo $((40 + 2))-$((1 + 1))\n');
  await page.locator('.xterm-rows').getByText('42-2').waitFor();
  await page.keyboard.type('exit 3\n');
  await page.getByRole('status', { name: 'Session' }).filter({ hasText: 'code 3' }).waitFor();
}

const protocols = (page) =>
  page.evaluate(() =>
    [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
      .filter((entry) => entry.name.startsWith('http') && entry.responseEnd > 0)
      .map((entry) => [entry.name, entry.nextHopProtocol]),
  );

/** Follows a link of the navigation to its page. A page that misses files of its version loads itself again, and a click just
 * before that has no effect: the link is followed again, as a user does. */
async function reach(page, name) {
  await until(`the page ${name}`, async () => {
    await main(page, name);
    const title = page.getByRole('heading', { level: 1, name, exact: true });
    return title.waitFor({ timeout: 5000 }).then(() => true, () => false);
  });
}

const steps = {
  async 'TLS agrees on HTTP/2'() {
    const page = await open('jobs');
    await job(page, 'web').waitFor();
    await live(page);
    const found = await protocols(page);
    const other = found.filter(([, protocol]) => protocol !== 'h2');
    expect(found.length > 4 && other.length === 0, `HTTP/2 everywhere, found ${JSON.stringify(other)}`);
    await page.close();
  },

  async 'tabs with a stream each load and stay current'() {
    // A browser without shared workers: over HTTP/1.1 the seventh tab would wait for a connection.
    const own = await browser.newContext();
    await own.addInitScript(() => delete window.SharedWorker);
    const tabs = [];
    for (let at = 0; at < 8; at += 1) tabs.push(await open('jobs', own));
    for (const tab of tabs) {
      await job(tab, 'web').waitFor();
      await live(tab);
      expect(await tab.evaluate(() => !document.hidden && !('SharedWorker' in window)), 'a visible tab with its own stream');
    }
    await register('seen');
    for (const tab of tabs) await job(tab, 'seen').waitFor();
    await own.close();
  },

  async 'tabs with one stream load and stay current'() {
    const tabs = [];
    for (let at = 0; at < 7; at += 1) tabs.push(await open('jobs'));
    for (const tab of tabs) await live(tab);
    await register('shared');
    for (const tab of tabs) await job(tab, 'shared').waitFor();
    for (const tab of tabs) await tab.close();
  },

  async 'a terminal works over TLS'() {
    const page = await open('exec/web@default');
    await heading(page, 'Terminal');
    const socket = page.waitForEvent('websocket');
    await terminal(page);
    expect((await socket).url().startsWith('wss://'), 'an encrypted websocket');
    await page.close();
  },

  async 'any prefix works without a setting'() {
    for (const prefix of ['/tools', '/a/b/c%20d/caravan']) {
      const proxy = await prefixed(address, prefix);
      const root = `${proxy.address}${prefix}/ui/`;
      const page = await open(`${root}jobs/web@default/definition`);
      await page.getByText('job "web"').waitFor();
      await live(page);
      await main(page, 'Nodes');
      await heading(page, 'Nodes');
      expect(page.url() === `${root}clients`, `the prefix in ${page.url()}`);
      await page.goto(`${root}exec/web@default`);
      await terminal(page);
      await page.goto(`${root}jobs/no%2Fsuch@default/versions`);
      await heading(page, 'no/such');
      await page.goto(`${root}jobs`);
      await live(page);
      const id = `below${prefix.length}`;
      await register(id);
      await job(page, id).waitFor();
      await page.close();
      proxy.close();
    }
    // The address without a page leads to the page, also there.
    const answer = await fetch(`${address}/`, { redirect: 'manual' });
    expect(answer.status === 307 && answer.headers.get('location') === '/ui/', `a redirection, was ${answer.status}`);
  },

  async 'an older page loads the newer one, at the same address'() {
    let isOlder = true;
    const balancer = await balanced(address, () => isOlder);
    const visit = async () => {
      isOlder = true;
      const own = await browser.newContext();
      const page = await own.newPage();
      watch(page);
      await page.goto(`${balancer.address}/ui/clients?search=x`);
      await heading(page, 'Nodes');
      expect((await page.content()).includes('OLDER000'), 'a page of the older version');
      isOlder = false;
      // A page that is a file of its own.
      await reach(page, 'Topology');
      if (balancer.missing.length > 0) return { own, page };
      // On a busy machine, the older page may have loaded the file ahead. It goes on with its own files then.
      await own.close();
      return undefined;
    };
    const { own, page } = await until('files of the older version to be missing', visit);
    expect(new URL(page.url()).pathname === '/ui/topology', `the same address, was ${page.url()}`);
    expect(!(await page.content()).includes('OLDER000'), 'a page of the newer version');
    // Once more in the same tab: agents may be updated often.
    isOlder = true;
    await page.reload();
    isOlder = false;
    await heading(page, 'Topology');
    await reach(page, 'Administration');
    takeTroubles();
    await own.close();
    balancer.close();
  },

  async 'two versions behind one balancer work'() {
    // Each request goes to the other agent.
    let turn = 0;
    const balancer = await balanced(address, () => (turn += 1) % 2 === 0);
    for (let visit = 0; visit < 4; visit += 1) {
      const own = await browser.newContext();
      const page = await own.newPage();
      await page.goto(`${balancer.address}/ui/jobs`);
      await job(page, 'web').waitFor();
      for (const name of ['Nodes', 'Topology', 'Administration', 'Servers']) {
        await reach(page, name);
      }
      await own.close();
    }
    expect(balancer.missing.length > 0, 'files of the other version to be missing');
    balancer.close();
  },

  async 'a part that cannot be loaded changes nothing until it is needed, and then until an agent answers'() {
    const own = await browser.newContext();
    const page = await own.newPage();
    let loads = 0;
    page.on('load', () => (loads += 1));
    const part = /\/assets\/Topology-/;
    await own.route(part, (route) => route.abort());
    const ahead = page.waitForEvent('requestfailed', (request) => part.test(request.url()));
    await page.goto(`${address}/ui/clients`);
    await heading(page, 'Nodes');
    await ahead;
    await reach(page, 'Servers');
    expect(loads === 1, `one page, were ${loads}`);
    // No agent answers: the browser would show its own error in place of the page.
    const probe = /\/boot\.js$/;
    await own.route(probe, (route) => route.abort());
    const silent = page.waitForEvent('requestfailed', (request) => probe.test(request.url()));
    await main(page, 'Topology');
    await page.getByRole('alert').getByText('The page loads again as soon as its agent answers.').waitFor();
    await silent;
    expect(loads === 1 && new URL(page.url()).pathname === '/ui/topology', `the page to stay, is at ${page.url()} after ${loads}`);
    await own.unroute(part);
    await own.unroute(probe);
    await heading(page, 'Topology');
    expect(loads === 2, `the page to be loaded again once, was ${loads}`);
    await own.close();
  },

  async 'the policy is strict and in force'() {
    const page = await context.newPage();
    const response = await page.goto(`${address}/ui/jobs`);
    await heading(page, 'Jobs');
    const policy = response.headers()['content-security-policy'] ?? '';
    const directives = new Map(policy.split('; ').map((text) => [text.split(' ')[0], text.split(' ').slice(1).join(' ')]));
    for (const [name, sources] of [
      ['default-src', "'none'"],
      ['connect-src', "'self'"],
      ['script-src', "'self'"],
      ['style-src', "'self'"],
      ['form-action', "'none'"],
      ['frame-ancestors', "'none'"],
      ['require-trusted-types-for', "'script'"],
    ]) {
      expect(directives.get(name) === sources, `${name} ${sources} in ${policy}`);
    }
    expect(!/unsafe|\*|https?:/.test(policy), `nothing unsafe in ${policy}`);
    const outcome = await page.evaluate(async () => {
      const violations = [];
      addEventListener('securitypolicyviolation', (event) => violations.push(event.effectiveDirective));
      const refused = (run) => {
        try {
          run();
          return false;
        } catch (error) {
          return error instanceof TypeError;
        }
      };
      const element = document.createElement('div');
      document.body.append(element);
      const markup = refused(() => (element.innerHTML = '<b>x</b>'));
      const script = refused(() => (document.createElement('script').src = 'data:,1'));
      const worker = refused(() => new SharedWorker('./other.js'));
      const policies = refused(() => trustedTypes.createPolicy('mine', { createHTML: (text) => text }));
      element.setAttribute('style', 'color: red');
      const call = await fetch('http://127.0.0.1:9/').then(
        () => false,
        () => true,
      );
      await new Promise((resolve) => setTimeout(resolve));
      return { markup, script, worker, policies, call, violations };
    });
    for (const name of ['markup', 'script', 'worker', 'policies', 'call']) expect(outcome[name], `${name} to be refused`);
    for (const name of ['style-src-attr', 'connect-src', 'require-trusted-types-for']) {
      expect(outcome.violations.includes(name), `${name} among ${outcome.violations}`);
    }
    await page.close();
  },

  async 'light, dark, and as the system has it'() {
    const page = await open('jobs');
    await heading(page, 'Jobs');
    const back = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const choose = async (label) => {
      const radio = page.getByRole('radio', { name: label, exact: true });
      await ((await radio.count()) ? radio.check() : page.getByRole('combobox', { name: 'Theme' }).selectOption({ label }));
    };
    const system = (colorScheme) => page.emulateMedia({ colorScheme });
    await system('light');
    const light = await back();
    await system('dark');
    const dark = await back();
    expect(light !== dark, `the colours of the system, both were ${light}`);
    await choose('Light');
    expect((await back()) === light, 'light in a dark system');
    await page.reload();
    await heading(page, 'Jobs');
    expect((await back()) === light, 'the choice to stay');
    await choose('Dark');
    await system('light');
    expect((await back()) === dark, 'dark in a light system');
    await choose('System');
    expect((await back()) === light, 'the colours of the system again');
    await page.close();
  },
};

expect(address.startsWith('https:'), 'an address with https');
await until('the job', async () => (await api('jobs')).some((row) => row.ID === 'web' && row.Status === 'running'));
await session(steps, process.argv[4]);
