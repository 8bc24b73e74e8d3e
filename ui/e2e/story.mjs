// A session of a user in Chromium against a real agent: node story.mjs ADDRESS. The agent runs the jobs `writer` and
// `reader`, which want the same volume `data` of the plugin `hostpath`; `reader` waits. Prints `the session is over`.

import { readFileSync } from 'node:fs';
import { accessible, readable } from './accessible.mjs';
import { address, api, expect, heading, live, main, open, session } from './browser.mjs';
import { requestsAtRest } from './measure.mjs';

/** Reads the versions of a job page by page. */
async function versions() {
  const job = await api('job/zebra');
  await api('jobs', { method: 'POST', body: JSON.stringify({ Job: { ...job, Priority: 60 } }) });
  const page = await open('jobs/zebra@default/versions?pageSize=1');
  const pages = page.getByRole('navigation', { name: 'Pages' });
  await page.getByRole('heading', { name: 'Version 1' }).waitFor();
  await pages.getByText('1–1 of 2 versions').waitFor();
  await page.getByText('Priority').first().waitFor();
  await page.getByRole('button', { name: 'Next page' }).click();
  await page.getByRole('heading', { name: 'Version 0' }).waitFor();
  await page.getByText('The oldest version that is kept.').waitFor();
  await page.getByRole('combobox', { name: 'Compare with' }).selectOption('0');
  await page.getByRole('button', { name: 'First page' }).click();
  await page.getByRole('heading', { name: 'Version 1' }).waitFor();
  expect(page.url().includes('diffVersion=0'), `the version to compare with in ${page.url()}`);
  await page.close();
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
    const why = page.getByRole('region', { name: 'Why it waits' });
    await why.getByText(/waits for a claim on volume/i).waitFor();
    // The sentence itself leads to what it names.
    await why.getByRole('listitem').getByRole('link', { name: 'data', exact: true }).click();
    await heading(page, 'data');
    await page.goBack();
    await heading(page, 'reader');
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
    await page.getByRole('textbox', { name: 'Search in log' }).fill('written by');
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

  async 'lists tell their totals, and the servers sort them'() {
    for (const name of ['zebra', 'ant']) {
      const job = { ID: name, Name: name, Type: 'batch', Stop: true, TaskGroups: [{ Name: 'g', Tasks: [{ Name: 't', Driver: 'raw_exec', Config: { command: 'true' } }] }] };
      await api('jobs', { method: 'POST', body: JSON.stringify({ Job: job }) });
    }
    const page = await open('jobs?pageSize=2');
    const table = page.getByRole('table', { name: 'Jobs' });
    const names = () => table.locator('tbody td:first-child').allInnerTexts();
    const pages = page.getByRole('navigation', { name: 'Pages' });
    const total = (await api('jobs?namespace=*')).length;
    await pages.getByText(`1–2 of ${total} jobs`).waitFor();
    await table.getByRole('columnheader', { name: 'Job' }).getByRole('button').click();
    await table.getByRole('columnheader', { name: 'Job' }).and(page.locator('[aria-sort="ascending"]')).waitFor();
    await table.getByRole('link', { name: 'ant', exact: true }).waitFor();
    expect(page.url().includes('sort=id'), `the order in ${page.url()}`);
    const seen = await names();
    for (let at = 1; at * 2 < total; at += 1) {
      await page.getByRole('button', { name: 'Next page' }).click();
      await pages.getByText(`${at * 2 + 1}–${Math.min(total, at * 2 + 2)} of ${total} jobs`).waitFor();
      seen.push(...(await names()));
    }
    expect(JSON.stringify(seen) === JSON.stringify([...seen].sort()) && seen.length === total, `all jobs in order, found ${seen}`);
    await page.getByRole('button', { name: 'Previous page' }).click();
    await page.getByRole('button', { name: 'First page' }).click();
    await table.getByRole('columnheader', { name: 'Job' }).getByRole('button').click();
    await table.getByRole('columnheader', { name: 'Job' }).and(page.locator('[aria-sort="descending"]')).waitFor();
    await table.getByRole('link', { name: 'zebra', exact: true }).waitFor();
    await page.getByRole('textbox', { name: 'Filter' }).fill('Name == "ant"');
    await page.getByRole('button', { name: 'Apply' }).click();
    await pages.getByText('1–1 of 1 jobs').waitFor();
    await accessible(page, 'a sorted list');
    await page.goto(`${address}/ui/clients?filter=${encodeURIComponent('Nme == 1')}`);
    await page.getByText(/Nme/).first().waitFor();
    await versions();
    for (const name of ['zebra', 'ant']) await api(`job/${name}?purge=true`, { method: 'DELETE' });
    await page.close();
  },

  async 'the addresses of other pages lead to the same objects'() {
    const alloc = (await api('job/writer/allocations'))[0];
    for (const [path, name] of [
      ['jobs/writer', 'writer'],
      ['jobs/writer@default/clients', 'writer'],
      ['jobs/writer@default/versions?diffVersion=0', 'writer'],
      ['jobs/writer@default/definition?view=full-definition', 'writer'],
      [`jobs/writer@default/${alloc.TaskGroup}`, 'writer'],
      ['jobs/writer@default/allocations?status=%5B%22running%22%5D', 'writer'],
      [`allocations/${alloc.ID}/writer`, alloc.ID.slice(0, 8)],
      ['clients?state_down=false&dc=%5B%22dc1%22%5D', 'Nodes'],
      ['evaluations?type=service&searchTerm=writer', 'Evaluations'],
      ['storage/volumes/csi/data?namespace=default', 'data'],
      ['csi/volumes/data', 'data'],
      ['storage/plugins/hostpath/allocations', 'hostpath'],
      ['variables/path/a/b', 'Variables'],
      ['administration/sentinel-policies', 'Administration'],
      ['optimize/x', 'Recommendations'],
      [`exec/writer@default/${alloc.TaskGroup}/writer`, 'Terminal'],
    ]) {
      const page = await open(path);
      await heading(page, name);
      expect(await page.locator('.command code').first().innerText(), `a command on ${path}`);
      await page.close();
    }
  },

  async 'an evaluation leads to those that it is linked with'() {
    const evals = await api('job/reader/evaluations');
    const waits = evals.find((row) => row.Status === 'blocked' && row.PreviousEval);
    const page = await open(`evaluations?currentEval=${waits.ID}`);
    const linked = page.getByRole('table', { name: 'Linked evaluations' });
    const row = linked.getByRole('row').filter({ hasText: 'previous' });
    await accessible(page, 'linked evaluations');
    await row.getByRole('link', { name: waits.PreviousEval.slice(0, 8) }).click();
    await page.getByRole('region', { name: `Evaluation ${waits.PreviousEval.slice(0, 8)}` }).waitFor();
    await linked.getByRole('row').filter({ hasText: 'blocked' }).getByRole('link', { name: waits.ID.slice(0, 8) }).waitFor();
    await page.close();
  },

  async 'the beginning of an id leads to the object'() {
    const alloc = (await api('job/writer/allocations'))[0];
    const evaluation = (await api('job/reader/evaluations'))[0].ID;
    const [node] = await api('nodes');
    const page = await open(`allocations/${alloc.ID.slice(0, 7)}`);
    await heading(page, alloc.ID.slice(0, 8));
    expect(page.url().endsWith(`/ui/allocations/${alloc.ID}`), `the whole id in ${page.url()}`);
    await page.goto(`${address}/ui/clients/${node.ID.slice(0, 8)}/monitor`);
    await heading(page, node.Name);
    expect(page.url().endsWith(`/ui/clients/${node.ID}/monitor`), `the rest of the address in ${page.url()}`);
    await page.goto(`${address}/ui/evaluations?status=blocked&currentEval=${evaluation.slice(0, 8)}`);
    await page.getByRole('region', { name: `Evaluation ${evaluation.slice(0, 8)}` }).waitFor();
    expect(page.url().includes(evaluation) && page.url().includes('status=blocked'), `the filter in ${page.url()}`);
    const none = alloc.ID.startsWith('0000') ? 'ffff0000' : '00000000';
    await page.goto(`${address}/ui/allocations/${none}`);
    await page.getByText(`No allocation that you may read has an id that begins with ${none}`).waitFor();
    await accessible(page, 'an id of nothing');
    // A deployment is found without its job.
    const [deployment] = await api('job/writer/deployments');
    await page.goto(`${address}/ui/deployments/${deployment.ID.slice(0, 8)}`);
    await heading(page, 'writer');
    expect(page.url().endsWith(`/ui/jobs/writer@default/deployments/${deployment.ID}`), `the address of the deployment, not ${page.url()}`);
    for (const [id, kind] of [[alloc.ID, 'allocation'], [node.ID, 'node'], [evaluation, 'evaluation'], [deployment.ID, 'deployment']]) {
      await page.keyboard.press('Control+k');
      await page.getByRole('searchbox', { name: 'Search everything' }).fill(id.slice(0, 8));
      const option = page.getByRole('option', { name: `${kind} ${id}` });
      await option.click();
      await page.waitForURL(new RegExp(id));
    }
    await page.close();
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
    const { ID: alloc, TaskGroup: group } = (await api('job/writer/allocations'))[0];
    const server = (await api('agent/members')).Members[0].Name;
    const blocked = (await api('job/reader/evaluations'))[0].ID;
    const body = JSON.stringify({ Volume: { Name: 'kept', PluginID: 'mkdir', NodeID: node } });
    const kept = (await api('volume/host/create', { method: 'PUT', body })).Volume.ID;
    // The page, an address of it, and its heading.
    const paths = [
      ['overview', '', 'Overview'],
      ['jobs', 'jobs', 'Jobs'],
      ['run', 'jobs/run', 'Run a job'],
      ...['', '/allocations', '/placement', '/definition', '/versions', '/deployments', '/evaluations', '/services', '/variables', '/volumes'].map(
        (tab) => ['job', `jobs/writer@default${tab}`, 'writer'],
      ),
      ['job', 'jobs/reader@default', 'reader'],
      ['deployment', 'deployments/00000000', '00000000'],
      ['group', `jobs/writer@default/${group}`, 'writer'],
      ['exec', 'exec/writer@default', 'Terminal'],
      ['allocations', 'allocations', 'Allocations'],
      ['allocation', `allocations/${alloc}`, alloc.slice(0, 8)],
      ['allocation', `allocations/${alloc}/writer`, alloc.slice(0, 8)],
      ['allocation', `allocations/${alloc}/writer/logs`, alloc.slice(0, 8)],
      ['allocation', `allocations/${alloc}/fs`, alloc.slice(0, 8)],
      ['nodes', 'clients', 'Nodes'],
      ['node', `clients/${node}`, undefined],
      ['node', `clients/${node}/monitor`, undefined],
      ['storage', 'storage', 'Storage'],
      ['volume', 'storage/volumes/csi/data@default', 'data'],
      ['host-volume', `storage/volumes/dynamic/${kept}@default`, 'kept'],
      ['new-volume', 'storage/volumes/new', 'New volume'],
      ['new-volume', 'storage/volumes/new?type=host', 'New host volume'],
      ['plugin', 'storage/plugins/hostpath', 'hostpath'],
      ['topology', 'topology', 'Topology'],
      ['evaluations', 'evaluations', 'Evaluations'],
      ['evaluations', `evaluations?currentEval=${blocked}`, 'Evaluations'],
      ['variables', 'variables', 'Variables'],
      ['variable', 'variables/new', undefined],
      ...['namespaces', 'policies', 'roles', 'tokens', 'auth-methods', 'binding-rules', 'pools'].map(
        (kind) => ['administration', `administration/${kind}`, 'Administration'],
      ),
      ['servers', 'servers', 'Servers'],
      ['server', `servers/${server}`, server],
      ['server', `servers/${server}/monitor`, server],
      ['settings', 'settings/user-settings', 'Settings'],
      ['sign-in', 'settings/tokens', 'Sign in'],
      ['error', 'errors/E0110', 'E0110: Expression expected'],
      ['missing', 'no/such/page', 'Nothing is here'],
      ...['/clients', '/dispatch'].map((tab) => ['job', `jobs/writer@default${tab}`, 'writer']),
      ['missing', 'optimize', 'Recommendations'],
    ];
    const source = readFileSync(new URL('../src/lib/route.ts', import.meta.url), 'utf8');
    const pages = source.slice(source.indexOf('export type Page ='), source.indexOf(';', source.indexOf('export type Page ='))).match(/'[\w-]+'/g);
    const left = pages.map((name) => name.slice(1, -1)).filter((name) => !paths.some(([page]) => page === name));
    expect(pages.length > 20 && left.length === 0, `an address of every page, missing: ${left}`);
    const page = await open('');
    for (const [, path, name] of paths) {
      await page.goto(`${address}/ui/${path}`);
      if (name) await heading(page, name);
      await page.waitForFunction(() => !document.querySelector('[aria-busy]') && document.querySelector('h1'));
      await accessible(page, path);
      await page.setViewportSize({ width: 320, height: 640 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide <= 321, `no sideways scrolling at 320 px on ${path}, the page is ${wide} px wide`);
      await page.setViewportSize({ width: 1280, height: 720 });
    }
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
    await readable(page, dialog.getByRole('button', { name: 'Cancel' }), 'a plain button');
    await dialog.getByRole('button', { name: 'Make it ineligible' }).click();
    await page.getByRole('button', { name: 'Make eligible' }).waitFor();
    await page.getByRole('button', { name: 'Make eligible' }).click();
    await dialog.getByRole('button', { name: 'Make it eligible' }).click();
    await page.getByRole('button', { name: 'Make ineligible' }).waitFor();
    await page.close();
  },

  async 'keys and the palette lead everywhere'() {
    const page = await open('');
    await heading(page, 'Overview');
    await page.keyboard.press('g');
    await page.keyboard.press('c');
    await heading(page, 'Nodes');
    await page.keyboard.press('Control+k');
    const dialog = page.getByRole('dialog', { name: 'Go to' });
    await dialog.getByRole('searchbox', { name: 'Search everything' }).fill('writer');
    await dialog.getByRole('option', { name: 'job writer' }).waitFor();
    await page.keyboard.press('Enter');
    await heading(page, 'writer');
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor({ state: 'hidden' });
    await page.keyboard.press('.');
    await dialog.getByRole('option', { name: 'verb Stop' }).click();
    await page.getByRole('dialog').getByText('caravan job stop -namespace default writer').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await page.keyboard.press('g');
    await page.keyboard.press('j');
    await heading(page, 'Jobs');
    await page.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'writer', exact: true }).focus();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowUp');
    await page.keyboard.press('.');
    await dialog.getByRole('option', { name: 'verb Stop' }).waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'hidden' });
    await page.keyboard.press('Control+k');
    await dialog.getByRole('searchbox', { name: 'Search everything' }).fill('theme dark');
    await dialog.getByRole('option', { name: 'setting Theme: dark' }).click();
    await page.getByRole('radio', { name: 'Dark' }).and(page.locator(':checked')).waitFor();
    await page.getByRole('radio', { name: 'System' }).check();
    await page.close();
  },

  async 'a job is planned, run, changed and reverted'() {
    const page = await open('jobs');
    await page.getByRole('button', { name: 'Run job' }).click();
    await heading(page, 'Run a job');
    const file = page.getByRole('textbox', { name: 'Job file' });
    const text = (seconds) =>
      ['job "hello" {', 'group "g" {', 'task "t" {', 'driver = "raw_exec"', 'config {', 'command = "sleep"']
        .concat([`args = ["${seconds}"]`, '}', '}', '}', '}'])
        .join('\n');
    await file.fill('job "hello" {');
    await page.getByRole('button', { name: 'Plan' }).click();
    await page.getByRole('alert').waitFor();
    for (const seconds of [3600, 3601]) {
      await file.fill(text(seconds));
      await page.getByRole('textbox', { name: 'What if' }).fill('');
      await page.getByRole('button', { name: 'Plan' }).click();
      const plan = page.getByRole('region', { name: 'Plan result' });
      await plan.getByText('Every allocation finds its place.').waitFor();
      await plan.getByRole('list', { name: 'Differences' }).getByText('job hello').waitFor();
      await page.getByRole('button', { name: 'Submit' }).click();
      await heading(page, 'hello');
      await page.getByRole('table', { name: 'Allocations' }).getByText('running').first().waitFor();
      if (seconds === 3600) await page.goBack();
    }
    await page.getByRole('tab', { name: 'Placement' }).click();
    await page.getByRole('table', { name: 'Scores of group g' }).waitFor();
    await page.getByRole('tab', { name: 'Versions' }).click();
    await page.getByText('"3600" → "3601"').waitFor();
    await page.getByRole('button', { name: 'Revert' }).first().click();
    await readable(page, page.locator('dialog[open] button.primary'), 'a filled button');
    await page.getByRole('dialog').getByRole('button', { name: 'Revert' }).click();
    await page.getByRole('heading', { name: 'Version 2' }).waitFor();
    await page.close();
  },

  async 'a terminal runs a command'() {
    const alloc = (await api('job/writer/allocations')).find((row) => row.ClientStatus === 'running').ID;
    const page = await open(`allocations/${alloc}`);
    await page.getByRole('button', { name: 'Open terminal' }).click();
    await heading(page, 'Terminal');
    await page.getByRole('button', { name: 'Open terminal' }).click();
    await page.getByRole('status', { name: 'Session' }).filter({ hasText: 'Connected' }).waitFor();
    await page.keyboard.type('echo $((40 + 2))-$((1 + 1))\n');
    await page.locator('.xterm-rows').getByText('42-2').waitFor();
    await page.keyboard.type('exit 3\n');
    await page.getByRole('status', { name: 'Session' }).filter({ hasText: 'code 3' }).waitFor();
    await page.close();
  },

  async 'variables are written, hidden, and guarded'() {
    const page = await open('variables/new');
    await page.getByRole('textbox', { name: 'Path' }).fill('app/settings');
    await page.getByRole('textbox', { name: 'Key 1' }).fill('colour');
    await page.getByRole('textbox', { name: 'Value 1' }).fill('orange');
    await page.getByRole('button', { name: 'Save' }).click();
    await heading(page, 'app/settings');
    expect(!(await page.locator('body').innerText()).includes('orange'), 'the value to be hidden');
    await page.getByRole('button', { name: 'Show colour' }).click();
    await page.getByText('orange').waitFor();
    await page.getByRole('button', { name: 'Edit' }).click();
    const body = JSON.stringify({ Namespace: 'default', Path: 'app/settings', Items: { colour: 'blue' } });
    await api('var/app/settings', { method: 'PUT', body });
    await page.getByRole('textbox', { name: 'Value 1' }).fill('green');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').getByText('Someone else').waitFor();
    // The address of the form is left without a change too.
    await page.goto(`${address}/ui/variables/var/app/settings@default/edit`);
    await page.getByRole('textbox', { name: 'Value 1' }).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Edit', exact: true }).waitFor();
    expect(page.url().endsWith('app/settings@default'), `the address of the variable, not ${page.url()}`);
    const lock = { Namespace: 'default', Path: 'app/lock', Items: { a: 'b' }, Lock: { TTL: '30s', LockDelay: '15s' } };
    await api('var/app/lock?lock-acquire', { method: 'PUT', body: JSON.stringify(lock) });
    await page.goto(`${address}/ui/variables/var/app/lock@default`);
    await page.getByText('A client holds a lock on the variable').waitFor();
    await page.close();
  },

  async 'the topology is a picture and words'() {
    const page = await open('topology');
    await heading(page, 'Topology');
    await page.locator('canvas').focus();
    await page.keyboard.press('ArrowRight');
    await page.getByRole('status', { name: 'Chosen node' }).getByText(/% of the CPU/).waitFor();
    // The first cell lies below the title of its group; its frame while it is chosen lies in the gap above.
    const picture = ([edge, frame]) =>
      page.waitForFunction(
        (expected) => {
          const paint = document.querySelector('canvas')?.getContext('2d');
          const isDrawn = (y) => paint.getImageData(6, y, 1, 1).data[3] > 0;
          return paint && isDrawn(24) === expected[0] && isDrawn(23) === expected[1];
        },
        [edge, frame],
      );
    await picture([true, true]);
    await page.locator('canvas').evaluate((canvas) => {
      canvas.isKept = true;
    });
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Drain' }).waitFor();
    await page.goBack();
    // The kept picture without the choice.
    await picture([true, false]);
    expect(await page.locator('canvas').evaluate((canvas) => canvas.isKept === true), 'the canvas of before');
    await page.getByRole('application', { name: /^1 node\b/ }).waitFor();
    await page.emulateMedia({ colorScheme: 'dark' });
    await picture([true, false]);
    await page.close();
  },

  async 'the topology highlights, groups by metadata, and shows a node'() {
    const [node] = await api('nodes');
    const long = `long-${'x'.repeat(150)}`;
    await api(`client/metadata?node_id=${node.ID}`, { method: 'PUT', body: JSON.stringify({ Meta: { rack: 'r7', [long]: 'a' } }) });
    const page = await open('topology?job=writer');
    const lit = page.getByRole('status', { name: 'Highlighted nodes' });
    await lit.getByText(`1 node highlighted: ${node.Name}.`).waitFor();
    await page.getByRole('searchbox', { name: 'Highlight job' }).fill('nothing');
    await lit.getByText('0 nodes highlighted.').waitFor();
    await page.getByRole('searchbox', { name: 'Highlight job' }).fill('');
    await page.getByRole('searchbox', { name: 'Highlight volume' }).fill('data');
    await lit.getByText(`1 node highlighted: ${node.Name}.`).waitFor();
    await page.getByRole('searchbox', { name: 'Highlight reason' }).fill('no such reason');
    await lit.getByText('0 nodes highlighted.').waitFor();
    expect(page.url().includes('volume=data') && page.url().includes('why='), `the highlights in ${page.url()}`);
    await page.goto(`${address}/ui/topology?node=${node.ID.slice(0, 8)}`);
    await page.getByRole('status', { name: 'Chosen node' }).getByText(node.Name).waitFor();
    await page.getByRole('region', { name: `Allocations on ${node.Name}` }).getByRole('link', { name: 'writer', exact: true }).waitFor();
    const groups = page.getByRole('combobox', { name: 'Group by' });
    await groups.locator('option[value="meta.rack"]').waitFor({ state: 'attached' });
    // A long option does not widen the bar.
    await groups.selectOption(`meta.${long}`);
    const { width } = await groups.boundingBox();
    expect(width <= 400, `a narrow choice, was ${width} px wide`);
    await groups.selectOption('meta.rack');
    await page.getByRole('region', { name: 'Nodes by meta.rack' }).waitFor();
    const version = page.getByRole('combobox', { name: 'Version' });
    await version.selectOption({ index: 1 });
    await page.getByRole('table', { name: 'Nodes' }).getByRole('link', { name: node.Name, exact: true }).waitFor();
    await accessible(page, 'a node in the topology');
    await page.goto(`${address}/ui/topology?version=0.0.1-none`);
    await page.getByRole('table', { name: 'Nodes' }).getByRole('link', { name: node.Name, exact: true }).waitFor({ state: 'detached' });
    await page.close();
  },

  async 'a change is seen without loading, and rest is quiet'() {
    const page = await open('jobs/writer@default');
    await heading(page, 'writer');
    await page.getByRole('status', { name: 'Connection' }).filter({ hasText: 'Live' }).waitFor();
    const overview = await open('');
    await overview.getByRole('region', { name: 'Attention' }).getByRole('link', { name: 'reader', exact: true }).waitFor();
    const calls = await requestsAtRest(page);
    expect(calls.length === 0, `no requests at rest, there were ${calls.join(' ')}`);
    // A wait that stands is no reason to ask again: its end is reported.
    const waits = [];
    for (const [path, name] of [['storage', 'Storage'], ['storage/volumes/csi/data@default', 'data'], ['jobs/reader@default', 'reader']]) {
      const waiting = await open(path);
      await heading(waiting, name);
      await waiting.getByText(/waits for a claim/i).first().waitFor();
      await live(waiting);
      const found = await requestsAtRest(waiting, 5000);
      expect(found.length === 0, `no requests at rest on ${path}, there were ${found.join(' ')}`);
      waits.push(waiting);
    }
    await page.getByRole('button', { name: 'Stop' }).click();
    await readable(page, page.locator('dialog[open] button.danger'), 'a button that destroys');
    await page.getByRole('dialog').getByRole('button', { name: 'Stop the job' }).click();
    await page.getByRole('button', { name: 'Purge' }).waitFor();
    await overview.bringToFront();
    await overview
      .getByRole('region', { name: 'Attention' })
      .getByRole('link', { name: 'reader', exact: true })
      .waitFor({ state: 'detached' });
    for (const waiting of waits) {
      await waiting.getByText(/waits for a claim/i).first().waitFor({ state: 'detached' });
      await waiting.close();
    }
    await page.close();
    await overview.close();
  },
};

await session(steps, process.argv[3]);
