// Sessions with and without rights: node rights.mjs ADDRESS MANAGEMENT-SECRET LIMITED-SECRET. The limited token may read the
// jobs of the namespace `default`, in which the job `web` runs. Prints `the session is over`.

import { address, api, browser, expect, heading, open, session } from './browser.mjs';

const [management, limited] = process.argv.slice(3);
const live = (page) => page.getByRole('status', { name: 'Connection' }).filter({ hasText: /^\W*Live$/ }).waitFor();
const asManager = (method) => ({ method, headers: { 'X-Nomad-Token': management } });

async function signIn(page, secret) {
  await page.goto(`${address}/ui/settings/tokens`);
  await page.getByRole('textbox', { name: 'Token' }).fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

const steps = {
  async 'a missing right costs a panel and is named'() {
    const page = await open('');
    await heading(page, 'Overview');
    await page.getByText('Objects that need these rights are missing').waitFor();
    await page.goto(`${address}/ui/clients`);
    await page.getByText('node:read').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'Sign in' }).click();
    await heading(page, 'Sign in');
    await signIn(page, '00000000-0000-0000-0000-000000000000');
    await page.getByRole('alert').getByText('does not know').waitFor();
    await page.close();
  },

  async 'a limited token sees its namespace, live'() {
    const context = await browser.newContext();
    const page = await open('settings/tokens', context);
    await signIn(page, limited);
    await page.getByText('limited', { exact: true }).first().waitFor();
    expect(!(await page.content()).includes(limited), 'the secret to be hidden');
    const other = await open('jobs', context);
    await other.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'web', exact: true }).click();
    await heading(other, 'web');
    await live(other);
    const stop = other.getByRole('button', { name: 'Stop' });
    await other.locator('button[disabled]', { hasText: 'Stop' }).waitFor();
    expect(/submit-job|deregister-job/.test(await stop.getAttribute('title')), 'the missing right as the reason');
    await api('job/web', asManager('DELETE'));
    await other.getByText('stopped').waitFor();
    await other.goto(`${address}/ui/clients`);
    await other.getByText('node:read').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await other.getByRole('link', { name: 'Sign in' }).first().waitFor();
    await context.close();
  },

  async 'a one-time token signs in and leaves the address'() {
    const context = await browser.newContext();
    const once = (await api('acl/token/onetime', asManager('POST'))).OneTimeToken.OneTimeSecretID;
    const page = await open(`clients?ott=${once}`, context);
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    expect(!page.url().includes('ott'), `no token in ${page.url()}`);
    await context.close();
  },
};

await session(steps);
