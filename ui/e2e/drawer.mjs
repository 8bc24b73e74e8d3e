// Terminals in the drawer: node drawer.mjs ADDRESS. The agent runs the job `writer`. Prints `the session is over`.

import { accessible } from './accessible.mjs';
import { api, expect, heading, main, open, session } from './browser.mjs';

const drawer = (page) => page.getByRole('region', { name: 'Terminals' });
const rows = (page) => page.locator('.xterm-rows');
const running = async () => (await api('job/writer/allocations')).find((row) => row.ClientStatus === 'running').ID;
const connected = (page, name) => page.getByRole('status', { name, exact: true }).filter({ hasText: 'Connected' }).waitFor();
const inTerminal = (page) => page.waitForFunction(() => document.activeElement?.closest('.xterm') !== null);

const steps = {
  async 'the terminal loads when it is needed'() {
    const page = await open(`allocations/${await running()}`);
    await page.getByRole('button', { name: 'Terminal drawer' }).waitFor();
    await page.waitForTimeout(3000);
    expect((await drawer(page).count()) === 0, 'no drawer without a terminal');
    const largest = () =>
      page.evaluate(() => Math.max(...performance.getEntriesByType('resource').map((entry) => (entry.name.includes('/assets/') ? entry.decodedBodySize : 0))));
    const before = await largest();
    expect(before < 250_000, `no file of the size of the terminal, were ${before} bytes`);
    await page.getByRole('button', { name: 'Terminal drawer' }).click();
    await drawer(page).getByRole('button', { name: 'Open terminal' }).waitFor();
    expect((await largest()) > 300_000, 'the terminal to be loaded now');
    await accessible(page, 'the drawer before a session');
    await drawer(page).getByRole('button', { name: 'Cancel' }).click();
    await drawer(page).waitFor({ state: 'detached' });
    const name = await page.evaluate(() => document.activeElement?.textContent?.trim());
    expect(name === 'Terminal drawer', `the focus to return, was at ${name}`);
    await page.close();
  },

  async 'a session goes on while other pages are looked at'() {
    const page = await open(`allocations/${await running()}`);
    await page.getByRole('button', { name: 'Terminal drawer' }).click();
    await drawer(page).getByRole('button', { name: 'Open terminal' }).click();
    await connected(page, 'Drawer');
    await inTerminal(page);
    await page.keyboard.type('kept=$((40 + 2)); echo $kept-$((1 + 1))\n');
    await rows(page).getByText('42-2').waitFor();
    await accessible(page, 'a terminal in the drawer');
    await main(page, 'Nodes');
    await heading(page, 'Nodes');
    await drawer(page).getByRole('button', { name: /^writer of writer/ }).click();
    await inTerminal(page);
    await page.keyboard.type('echo again-$kept\n');
    await rows(page).getByText('again-42').waitFor();
    // The keyboard leaves the terminal, which uses Tab and Escape itself.
    await page.keyboard.press('Control+Shift+ArrowUp');
    expect((await page.evaluate(() => document.activeElement?.textContent?.trim())) === 'Minimise', 'the focus at the controls');
    await page.keyboard.press('Escape');
    await drawer(page).getByRole('button', { name: 'Show terminals' }).waitFor();
    expect(await rows(page).isHidden(), 'a small drawer');
    await page.setViewportSize({ width: 320, height: 640 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide <= 321, `no sideways scrolling, the page is ${wide} px wide`);
    await page.setViewportSize({ width: 1280, height: 720 });
    await page.keyboard.press('g');
    await page.keyboard.press('d');
    await inTerminal(page);
    await page.keyboard.press('Control+Shift+ArrowDown');
    await drawer(page).getByRole('button', { name: 'Show terminals' }).click();
    await inTerminal(page);
    await page.keyboard.type('exit 5\n');
    await page.getByRole('status', { name: 'Drawer', exact: true }).filter({ hasText: 'code 5' }).waitFor();
    await drawer(page).getByRole('button', { name: 'Close terminal' }).click();
    await drawer(page).waitFor({ state: 'detached' });
    await page.close();
  },

  async 'a session of the page of terminals moves to the drawer'() {
    const page = await open('exec/writer@default');
    await page.getByRole('button', { name: 'Open terminal' }).click();
    await connected(page, 'Session');
    await page.keyboard.type('kept=$((50 + 5)); echo first-$kept\n');
    await rows(page).getByText('first-55').waitFor();
    await main(page, 'Jobs');
    await heading(page, 'Jobs');
    await drawer(page).getByRole('button', { name: 'Show terminals' }).click();
    await inTerminal(page);
    await rows(page).getByText('first-55').waitFor();
    await page.keyboard.type('echo second-$kept\n');
    await rows(page).getByText('second-55').waitFor();
    // Another session beside the first one.
    await page.goto(page.url().replace(/jobs.*/, 'jobs/writer@default'));
    await page.getByRole('button', { name: 'Terminal drawer' }).click();
    await drawer(page).getByRole('button', { name: 'Open terminal' }).click();
    await connected(page, 'Drawer');
    await main(page, 'Jobs');
    await page.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'writer', exact: true }).click();
    await page.getByRole('button', { name: 'Terminal drawer' }).click();
    await drawer(page).getByRole('button', { name: 'Open terminal' }).click();
    await drawer(page).getByRole('button', { name: /^writer of writer/ }).nth(1).waitFor();
    await connected(page, 'Drawer');
    await drawer(page).getByRole('button', { name: 'Close terminal' }).click();
    await connected(page, 'Drawer');
    await drawer(page).getByRole('button', { name: 'Close terminal' }).click();
    await drawer(page).waitFor({ state: 'detached' });
    await page.close();
  },
};

await session(steps, process.argv[3]);
