// Moving between pages: node moves.mjs ADDRESS. The address is that of a small fleet with more than 100 jobs and nodes. Prints
// `the session is over`.

import { api, expect, heading, live, main, open, session } from './browser.mjs';
import { Changes, requestsAtRest } from './measure.mjs';

const rows = (page, name) => page.getByRole('table', { name, exact: true }).locator('tbody tr > td:first-child > a');

const steps = {
  async 'a page that was left is there at once, and is read again'() {
    const page = await open('clients');
    await live(page);
    await rows(page, 'Nodes').nth(99).waitFor();
    await main(page, 'Jobs');
    await rows(page, 'Jobs').nth(99).waitFor();
    // From now on the agent answers late.
    let asked = 0;
    let release;
    const late = new Promise((resolve) => (release = resolve));
    await page.route('**/v1/nodes?*', async (route) => {
      asked += 1;
      await late;
      await route.continue().catch(() => undefined);
    });
    await main(page, 'Nodes');
    await rows(page, 'Nodes').nth(99).waitFor();
    expect(asked > 0, 'the list to be read again meanwhile');
    release();
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.close();
  },

  async 'a change that was reported meanwhile is shown'() {
    const page = await open('clients');
    await live(page);
    const first = rows(page, 'Nodes').first();
    await first.waitFor();
    const id = new URL(await first.evaluate((link) => link.href)).pathname.split('/').pop();
    await main(page, 'Jobs');
    await rows(page, 'Jobs').first().waitFor();
    const changes = new Changes([id]);
    await changes.set(id, false);
    // The change has reached the page when another list that depends on it has it.
    await main(page, 'Overview');
    await heading(page, 'Overview');
    await page.getByText('ineligible').first().waitFor();
    await main(page, 'Nodes');
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody tr').filter({ hasText: 'ineligible' }).first().waitFor();
    await changes.set(id, true);
    await page.close();
  },

  async 'going back returns to the scroll position and the link'() {
    const page = await open('jobs');
    await live(page);
    const link = rows(page, 'Jobs').nth(80);
    await link.scrollIntoViewIfNeeded();
    const name = await link.innerText();
    const before = await page.evaluate(() => scrollY);
    expect(before > 500, `a page that is scrolled, was ${before}`);
    await link.click();
    await heading(page, name);
    expect((await page.evaluate(() => scrollY)) === 0, 'the top of the next page');
    await page.goBack();
    await heading(page, 'Jobs');
    await page.waitForFunction((wanted) => Math.abs(scrollY - wanted) < 3, before);
    await page.waitForFunction((wanted) => document.activeElement?.textContent?.trim() === wanted, name);
    // Also if the list must be read first.
    await page.reload();
    await rows(page, 'Jobs').nth(80).click();
    await heading(page, name);
    const answer = await fetch(new URL('/v1/system/gc', page.url()), { method: 'PUT' });
    expect(answer.ok, 'a collection');
    await page.goBack();
    await page.waitForFunction((wanted) => document.activeElement?.textContent?.trim() === wanted, name);
    await page.waitForFunction(() => scrollY > 500);
    await page.close();
  },

  async 'each move sets the focus on the heading, also on a page that loads first'() {
    const page = await open('jobs');
    await rows(page, 'Jobs').first().waitFor();
    const isFocused = () => page.waitForFunction(() => document.activeElement?.tagName === 'H1' && document.querySelectorAll('h1').length === 1);
    for (const name of ['Topology', 'Nodes', 'Administration', 'Overview', 'Topology']) {
      await main(page, name);
      await heading(page, name);
      await isFocused();
      expect((await page.evaluate(() => document.activeElement.textContent)).includes(name), `the focus on the heading of ${name}`);
    }
    await main(page, 'Nodes');
    const node = await rows(page, 'Nodes').first().innerText();
    await rows(page, 'Nodes').first().click();
    await heading(page, node);
    await isFocused();
    await page.close();
  },

  async 'the pages of objects load before they are needed'() {
    const page = await open('jobs');
    await live(page);
    const calls = await requestsAtRest(page);
    expect(calls.length === 0, `no requests at rest, were ${calls}`);
    const files = [];
    page.on('request', (request) => request.url().includes('/assets/') && files.push(request.url()));
    const name = (await api('jobs?per_page=1&namespace=*'))[0].ID;
    await rows(page, 'Jobs').first().click();
    await page.getByRole('tab', { name: 'Definition' }).waitFor();
    expect(files.length === 0, `no file of the page to be requested for a job such as ${name}, were ${files}`);
    await page.close();
  },
};

await session(steps, process.argv[3]);
