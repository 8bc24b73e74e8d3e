// What outsiders rely on: names, texts, keys, and what the page says when things change: node names.mjs ADDRESS. The agent runs
// the jobs `writer` and `reader`, which want the same volume `data`; `reader` waits. Prints `the session is over`.

import { address, api, context, expect, heading, live, main, open, session, takeTroubles, until } from './browser.mjs';

/** Registers a job of one group that sleeps. */
const run = (id, count = 1) =>
  api('jobs', {
    method: 'POST',
    body: JSON.stringify({
      Job: {
        ID: id, Name: id, Type: 'service', Datacenters: ['*'],
        TaskGroups: [{ Name: 'g', Count: count, Tasks: [{ Name: 't', Driver: 'raw_exec', Config: { command: 'sleep', args: ['3600'] }, Resources: { CPU: 20, MemoryMB: 16 } }] }],
      },
    }),
  });

/** Creates a namespace. */
const namespace = (name) => fetch(`${address}/v1/namespace/${name}`, { method: 'PUT', body: JSON.stringify({ Name: name }) });

const steps = {
  async 'each list has its field, its pages and its table'() {
    const page = await open('');
    for (const [link, table] of [
      ['Jobs', 'Jobs'],
      ['Allocations', 'Allocations'],
      ['Nodes', 'Nodes'],
      ['Evaluations', 'Evaluations'],
      ['Variables', 'Variables'],
    ]) {
      await main(page, link);
      await heading(page, link);
      await page.getByRole('searchbox', { name: 'Find' }).waitFor();
      await page.getByRole('textbox', { name: 'Filter' }).waitFor();
      await page.getByRole('table', { name: table }).or(page.getByText('No variables')).first().waitFor();
      await page.getByRole('button', { name: 'Next page' }).waitFor();
      await page.getByRole('button', { name: 'Previous page' }).waitFor();
    }
    for (const link of ['Servers', 'Administration']) {
      await main(page, link);
      await heading(page, link);
      await page.getByRole('searchbox', { name: 'Find' }).fill('zzz');
      await page.getByText(/No server matches|None matches/).waitFor();
    }
    await page.getByRole('searchbox', { name: 'Find' }).fill('def');
    await page.getByRole('table', { name: 'Namespaces' }).getByRole('link', { name: 'default' }).click();
    await heading(page, 'default');
    await page.goto(`${address}/ui/settings/user-settings`);
    for (const name of ['Light', 'Dark', 'System']) expect((await page.getByRole('radio', { name }).count()) === 1, `one choice ${name}`);
    await page.close();
  },

  async 'the keyboard skips the navigation and moves along tabs'() {
    const page = await open('jobs');
    await heading(page, 'Jobs');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await until('the focus in the content', () => page.evaluate(() => document.activeElement?.id === 'content'));
    expect(page.url().endsWith('/ui/jobs'), `the same page, not ${page.url()}`);
    await page.goto(`${address}/ui/jobs/writer`);
    await page.getByRole('tab', { name: 'Status' }).focus();
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await page.getByRole('tab', { name: 'Volumes', selected: true }).waitFor();
    // Closed dialogs have no text that a search could find.
    for (const text of ['Nothing found', 'Sign in again', 'Verbs of']) expect((await page.getByText(text).count()) === 0, `no text "${text}"`);
    await page.close();
  },

  async 'a definition is edited, planned and run in its place'() {
    await run('edited');
    const page = await open('jobs/edited@default/definition');
    const file = page.getByRole('textbox', { name: 'Job file' });
    await file.waitFor();
    const text = await file.inputValue();
    expect(JSON.parse(text).Job.ID === 'edited', 'the stored job');
    await file.fill(text.replace('"3600"', '"3601"'));
    await page.getByRole('button', { name: 'Plan', exact: true }).click();
    await page.getByRole('region', { name: 'Plan result' }).getByText('3601').first().waitFor();
    await page.getByRole('button', { name: 'Submit' }).click();
    await page.getByRole('tab', { name: 'Status', selected: true }).waitFor();
    expect((await api('job/edited')).Version === 1, 'a new version');
    await page.goto(`${address}/ui/jobs/writer@default/definition`);
    await page.getByText('job "writer"').waitFor();
    await page.goto(`${address}/ui/jobs/run`);
    await file.fill('job "x" {\n  priority = \n}\n');
    await page.getByRole('button', { name: 'Plan', exact: true }).click();
    const code = page.getByRole('list', { name: 'Problems of Job file' }).getByRole('link', { name: 'E0110' });
    await page.goto(await code.evaluate((link) => link.href));
    await heading(page, 'E0110: Expression expected');
    await page.close();
  },

  async 'the storage is in tables, and a wait has one explanation'() {
    const page = await open('storage');
    await page.getByRole('table', { name: 'Plugins' }).getByRole('link', { name: 'hostpath' }).waitFor();
    const claims = page.getByRole('table', { name: 'Claims' });
    await claims.getByRole('row').filter({ hasText: 'reader' }).getByText('waits for a claim').waitFor();
    await claims.getByRole('row').filter({ hasText: 'writer' }).getByText('mounted').waitFor();
    await page.goto(`${address}/ui/storage/volumes/csi/data@default`);
    const why = page.getByRole('region', { name: 'Why it waits' });
    await why.getByRole('heading', { name: 'in use by 1 allocation' }).waitFor();
    await why.getByRole('link', { name: 'reader' }).waitFor();
    await why.getByRole('link', { name: 'writer' }).waitFor();
    await page.getByRole('region', { name: 'Timeline' }).getByText(/\d\d:\d\d:\d\d, .* ago/).first().waitFor();
    await page.goto(`${address}/ui/jobs/reader`);
    await page.getByRole('region', { name: 'Why it waits' }).getByRole('link', { name: 'volume data' }).waitFor();
    await page.close();
  },

  async 'a drain is shown first, also of allocations with one name'() {
    await namespace('other');
    await run('twin');
    const twin = { ...(await api('job/twin')), Namespace: 'other' };
    await api('jobs?namespace=other', { method: 'POST', body: JSON.stringify({ Job: twin }) });
    await until('both jobs to run', async () => (await api('allocations?namespace=*')).filter((row) => row.JobID === 'twin' && row.ClientStatus === 'running').length === 2);
    const node = (await api('nodes'))[0].ID;
    const page = await open(`clients/${node}`);
    await page.getByRole('button', { name: 'Drain', exact: true }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('list', { name: 'Moves' }).getByRole('link', { name: 'twin.g[0]' }).nth(1).waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await page.close();
  },

  async 'new rows wait while somebody points at a row'() {
    const page = await open('jobs');
    await live(page);
    const table = page.getByRole('table', { name: 'Jobs' });
    const first = table.getByRole('link').first();
    await first.focus();
    const name = await first.innerText();
    await run('later');
    await page.getByRole('button', { name: '1 new' }).waitFor();
    expect((await first.innerText()) === name, 'the row to stay');
    await page.getByRole('button', { name: '1 new' }).click();
    await table.getByRole('link', { name: 'later', exact: true }).waitFor();
    await page.close();
  },

  async 'a browser without a network says so'() {
    const page = await open('jobs');
    await live(page);
    await context.setOffline(true);
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Offline' }).waitFor();
    await context.setOffline(false);
    await live(page);
    // The browser reports what it could not send.
    expect(takeTroubles().every((text) => text.includes('ERR_INTERNET_DISCONNECTED')), 'no other trouble');
    await page.close();
  },

  async 'both sides of a conflict are shown'() {
    await api('var/qa/both', { method: 'PUT', body: JSON.stringify({ Path: 'qa/both', Namespace: 'default', Items: { colour: 'red' } }) });
    const page = await open(`variables?filter=${encodeURIComponent('VariableMetadata.Path contains "qa/"')}`);
    await page.getByRole('table', { name: 'Variables' }).getByRole('link', { name: 'qa/both' }).click();
    await heading(page, 'qa/both');
    await page.getByRole('button', { name: 'Edit' }).click();
    await api('var/qa/both', { method: 'PUT', body: JSON.stringify({ Path: 'qa/both', Namespace: 'default', Items: { colour: 'blue' } }) });
    await page.getByRole('textbox', { name: 'Value 1' }).fill('green');
    await page.getByRole('button', { name: 'Save' }).click();
    const both = page.getByRole('table', { name: 'Both versions' }).getByRole('row').filter({ hasText: 'colour' });
    await both.getByText('green').waitFor();
    await both.getByText('blue').waitFor();
    await page.getByRole('button', { name: 'Edit theirs instead' }).click();
    expect((await page.getByRole('textbox', { name: 'Value 1' }).inputValue()) === 'blue', 'the newer value');
    await page.close();
  },

  async 'a host volume of another namespace is found from its node'() {
    await namespace('team');
    const node = (await api('nodes'))[0].ID;
    const body = JSON.stringify({ Volume: { Name: 'kept', Namespace: 'team', PluginID: 'mkdir', NodeID: node } });
    await api('volume/host/create?namespace=team', { method: 'PUT', body });
    const page = await open(`clients/${node}`);
    const link = page.getByRole('table', { name: 'Host volumes' }).getByRole('link', { name: 'kept' });
    await until('the namespace in the link', async () => (await link.getAttribute('href'))?.includes('@team'));
    await link.click();
    await heading(page, 'kept');
    await page.close();
  },
};

await session(steps, process.argv[3]);
