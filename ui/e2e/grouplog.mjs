// The log of a group: node grouplog.mjs ADDRESS. The job `web` has the groups `front`, two allocations with the tasks `server` and
// `helper`, and `back`, one allocation with the task `server`. The job `many` has 9 allocations. Each task writes a line to each
// output, then ticks with numbers. Prints `the session is over`.

import { readFileSync } from 'node:fs';
import { accessible } from './accessible.mjs';
import { address, api, expect, heading, open, session, takeTroubles, until } from './browser.mjs';
import { fragile } from './proxy.mjs';

const log = (page) => page.getByRole('log', { name: 'Log' });
const followed = (page) => page.getByRole('status', { name: 'Followed outputs' });
const allocs = async (job, group) =>
  (await api(`job/${job}/allocations`)).filter((row) => row.TaskGroup === group && row.ClientStatus === 'running');
const has = (page, text) => log(page).getByText(text).first().waitFor();
/** Shows the lines that contain a text, of all that are kept. */
async function search(page, text) {
  await page.getByRole('textbox', { name: 'Search in log' }).fill(text);
  const only = page.getByRole('checkbox', { name: 'only these' });
  await only.check();
}

/** Returns the lines that the page keeps, without colours. */
async function kept(page) {
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download', exact: true }).click();
  return readFileSync(await (await download).path(), 'utf8').split('\n');
}

/** Waits until the log has a tick of at least this number, and returns the numbers of the ticks by their labels. */
async function ticks(page, least) {
  return until(`tick ${least}`, async () => {
    const found = new Map();
    for (const line of await kept(page)) {
      const [, label, number] = /^(.*?)tick (\d+)$/.exec(line) ?? [];
      if (label !== undefined) found.set(label, [...(found.get(label) ?? []), Number(number)]);
    }
    return found.size > 0 && [...found.values()].every((numbers) => numbers.at(-1) >= least) && found;
  });
}

/** Returns the number of the newest tick of a task, as the agent itself serves it. */
async function newestTick() {
  const [row] = await allocs('web', 'front');
  const log = `${address}/v1/client/fs/logs/${row.ID}?task=server&type=stdout&plain=true`;
  return Number(/.*tick (\d+)/s.exec(await (await fetch(log)).text())?.[1] ?? 0);
}

/** Expects that each label has each tick once, in order. */
function whole(found) {
  for (const [label, numbers] of found) {
    const first = numbers[0];
    expect(numbers.every((number, at) => number === first + at), `each tick of "${label}" once, were ${numbers}`);
  }
}

/** Cuts the connections of a page again and again; its log goes on without gaps and repetitions. */
async function survives(path) {
  const proxy = await fragile(address);
  const page = await open(`${proxy.address}/ui/${path}`);
  let last = 0;
  for (let round = 0; round < 3; round += 1) {
    const before = await ticks(page, last + 5);
    whole(before);
    last = Math.max(...[...before.values()].map((numbers) => numbers.at(-1)));
    proxy.cut();
    await page.getByText('The page tries to go on.').waitFor();
    const missed = await newestTick();
    await until('ticks that the page misses', async () => (await newestTick()) > missed);
    proxy.mend();
  }
  const after = await ticks(page, last + 8);
  whole(after);
  await page.getByText('The page tries to go on.').waitFor({ state: 'detached' });
  const others = takeTroubles().filter((text) => !/ERR_|Failed to load resource/.test(text));
  expect(others.length === 0, `no other trouble, were ${others}`);
  await page.close();
  proxy.close();
  return after;
}

const steps = {
  async 'a group leads to one log of all its tasks, with labels'() {
    const page = await open('jobs/web@default/front');
    await heading(page, 'web');
    await page.getByRole('link', { name: 'Log of the group', exact: true }).click();
    await heading(page, 'web');
    await page.getByRole('tab', { name: 'Logs', selected: true }).waitFor();
    expect(page.url().includes('/allocations/logs?taskGroup=front'), `the group in ${page.url()}`);
    const rows = await allocs('web', 'front');
    expect(rows.length === 2, `two allocations, were ${rows.length}`);
    await search(page, 'hello');
    for (const row of rows) {
      const index = /\[\d+\]$/.exec(row.Name)[0];
      for (const task of ['server', 'helper']) await has(page, `${row.ID.slice(0, 8)}${index} ${task} stdout`);
    }
    await search(page, 'warning');
    await has(page, ' stderr');
    expect((await log(page).getByText('of back').count()) === 0, 'nothing of the other group');
    await followed(page).getByText('8 outputs followed.').waitFor();
    const colours = await log(page).locator('.line .bold').evaluateAll((all) => new Set(all.map((one) => one.className)).size);
    expect(colours > 1, `labels of different colours, were ${colours}`);
    await page.getByText('8 outputs', { exact: true }).click();
    const outputs = page.getByRole('list', { name: 'Outputs' });
    await outputs.getByRole('link', { name: / helper stderr$/ }).first().waitFor();
    await accessible(page, 'the log of a group');
    await page.setViewportSize({ width: 320, height: 640 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide <= 321, `no sideways scrolling of the page, which is ${wide} px wide`);
    await page.setViewportSize({ width: 1280, height: 720 });
    await outputs.getByRole('link', { name: / helper stderr$/ }).first().click();
    await page.getByRole('log', { name: 'Log' }).getByText('warning').first().waitFor();
    await page.close();
  },

  async 'what is shown is in the address, and one connection brings it'() {
    const page = await open('jobs/web@default/allocations/logs');
    const calls = [];
    page.on('request', (request) => /\/v1\/(caravan|client)/.test(request.url()) && calls.push(request.url()));
    await followed(page).getByText('10 outputs followed.').waitFor();
    await page.getByRole('combobox', { name: 'Group' }).selectOption('front');
    await page.getByRole('combobox', { name: 'Task' }).selectOption('helper');
    await page.getByRole('combobox', { name: 'Output' }).selectOption('stderr');
    await followed(page).getByText('2 outputs followed.').waitFor();
    await has(page, 'warning of helper');
    expect(!calls.some((call) => call.includes('client/fs/logs')), `one stream for all outputs, were ${calls}`);
    const other = await open(page.url());
    await has(other, 'warning of helper');
    expect((await log(other).getByText('hello').count()) === 0, 'only one output');
    await other.close();
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download' }).focus();
    await page.keyboard.press('Enter');
    const text = readFileSync(await (await download).path(), 'utf8');
    expect(/^[0-9a-f]{8}\[\d\] helper warning/m.test(text) && !text.includes('\u001b'), `plain lines with labels, were ${text}`);
    await page.close();
  },

  async 'new allocations join, and the lines of ended ones stay'() {
    const page = await open('jobs/web@default/allocations/logs?taskGroup=back&type=stdout');
    await followed(page).getByText('1 output followed.').waitFor();
    const [first] = await allocs('web', 'back');
    await search(page, 'hello');
    await has(page, first.ID.slice(0, 8));
    await api(`allocation/${first.ID}/stop`, { method: 'PUT' });
    const second = await until('the replacement', async () => (await allocs('web', 'back')).find((row) => row.ID !== first.ID));
    await has(page, second.ID.slice(0, 8));
    await followed(page).getByText('1 output followed, 1 ended.').waitFor();
    await has(page, first.ID.slice(0, 8));
    await page.close();
  },

  async 'the log of a group goes on after a broken connection'() {
    const found = await survives('jobs/web@default/allocations/logs?taskGroup=front&type=stdout');
    expect(found.size === 4, `the ticks of four tasks, were ${[...found.keys()]}`);
  },

  async 'the log of a task goes on after a broken connection'() {
    const [row] = await allocs('web', 'front');
    await survives(`allocations/${row.ID}/server/logs`);
    await survives(`allocations/${row.ID}/server/logs?type=both`);
  },

  async 'too many outputs are counted in a sentence'() {
    const page = await open('jobs/many@default/allocations/logs');
    await followed(page).getByText('16 outputs followed. 2 running outputs are left out: at most 16 are followed at once.').waitFor();
    await page.getByRole('combobox', { name: 'Output' }).selectOption('stdout');
    await followed(page).getByText('9 outputs followed.').waitFor();
    await page.close();
  },
};

await session(steps, process.argv[3]);
