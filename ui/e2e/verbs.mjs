// What a user does with jobs, files, agents and volumes: node verbs.mjs ADDRESS. The agent runs the plugin `hostpath` and the
// job `writer` with its volume `data`. Prints `the session is over`.

import { readFileSync } from 'node:fs';
import { address, api, expect, heading, main, open, session, until } from './browser.mjs';
import { accessible } from './accessible.mjs';

/** Registers a job file. */
async function run(text) {
  const parsed = await api('jobs/parse', { method: 'POST', body: JSON.stringify({ JobHCL: text, Canonicalize: true }) });
  const answer = await fetch(`${address}/v1/jobs`, { method: 'POST', body: JSON.stringify({ Job: parsed }) });
  expect(answer.ok, `the job to be registered: ${await answer.clone().text()}`);
}

const steps = {
  async 'a parameterized job is dispatched'() {
    await run(`job "mail" {
      type = "batch"
      parameterized {
        payload = "required"
        meta_required = ["to"]
      }
      group "g" {
        task "t" {
          driver = "raw_exec"
          config {
            command = "/bin/sh"
            args = ["-c", "cat local/in; echo to $NOMAD_META_to; sleep 1"]
          }
          dispatch_payload { file = "in" }
        }
      }
    }`);
    const page = await open('jobs/mail@default');
    await page.getByRole('button', { name: 'Dispatch', exact: true }).click();
    const panel = page.getByRole('region', { name: 'Dispatch mail' });
    await panel.getByRole('textbox', { name: 'to (required)' }).fill('ada');
    await panel.getByRole('textbox', { name: 'Payload (required)' }).fill('grün');
    await accessible(page, 'dispatch');
    await panel.getByRole('button', { name: 'Dispatch' }).click();
    await page.getByRole('heading', { level: 1, name: /^mail\/dispatch-/ }).waitFor();
    await page.getByRole('table', { name: 'Allocations' }).locator('tbody a').first().click();
    await page.getByRole('table', { name: 'Tasks' }).getByRole('link', { name: 'Log' }).click();
    await page.getByRole('log', { name: 'Log' }).getByText('grünto ada').waitFor();
    await page.goto(`${address}/ui/jobs/mail@default`);
    await page.getByRole('table', { name: 'Dispatched jobs' }).getByRole('link').first().waitFor();
    // The list of jobs has children only if the filter asks for them.
    await page.goto(`${address}/ui/jobs?filter=${encodeURIComponent('ParentID == "mail"')}`);
    await page.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: /^mail\/dispatch-/ }).waitFor();
    await page.close();
  },

  async 'a periodic job is launched now'() {
    await run(`job "nightly" {
      type = "batch"
      periodic { crons = ["0 0 1 1 *"] }
      group "g" {
        task "t" {
          driver = "raw_exec"
          config { command = "true" }
        }
      }
    }`);
    const page = await open('jobs/nightly@default');
    await page.getByRole('button', { name: 'Launch now' }).click();
    await page.getByRole('dialog').getByText('Launch the periodic job nightly now?').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Launch it' }).click();
    await page.getByRole('table', { name: 'Launches' }).getByRole('link', { name: /nightly\/periodic-/ }).waitFor();
    await page.close();
  },

  async 'an action runs in a task'() {
    await run(`job "acts" {
      group "g" {
        task "t" {
          driver = "raw_exec"
          config {
            command = "sleep"
            args = ["3600"]
          }
          action "greet" {
            command = "/bin/sh"
            args = ["-c", "echo hello from the action; exit 4"]
          }
        }
      }
    }`);
    await until('the task', async () => (await api('job/acts/allocations')).some((row) => row.ClientStatus === 'running'));
    const page = await open('jobs/acts@default');
    await page.getByRole('table', { name: 'Actions' }).getByRole('button', { name: 'Run greet' }).click();
    await heading(page, 'Action greet');
    await page.getByRole('button', { name: 'Run the action' }).click();
    await page.locator('.xterm-rows').getByText('hello from the action').waitFor();
    await page.getByRole('status', { name: 'Session' }).filter({ hasText: 'code 4' }).waitFor();
    await page.close();
  },

  async 'a deployment is paused, promoted and failed on the page of its job'() {
    // A deployment with a canary goes on only when the user acts.
    const version = (seconds) =>
      run(`job "rolling" {
      update {
        canary = 1
        min_healthy_time = "0s"
      }
      group "g" {
        task "t" {
          driver = "raw_exec"
          config {
            command = "sleep"
            args = ["${seconds}"]
          }
        }
      }
    }`);
    const newest = (status, count) =>
      until(`deployment ${count} to be ${status}`, async () => {
        const all = await api('job/rolling/deployments');
        return all.length === count && all.some((row) => row.JobVersion === count - 1 && row.Status === status);
      });
    const healthy = () =>
      until('a healthy canary', async () => (await api('job/rolling/deployment')).TaskGroups.g.HealthyAllocs === 1);
    await version(3600);
    await newest('successful', 1);
    const page = await open('jobs/rolling@default');
    const panel = page.getByRole('region', { name: 'Active deployment' });
    const dialog = page.getByRole('dialog');
    const act = async (word) => {
      await panel.getByRole('button', { name: word, exact: true }).click();
      await dialog.getByText(/the deployment .* of rolling\?/).waitFor();
      await dialog.getByRole('button', { name: word, exact: true }).click();
      await dialog.waitFor({ state: 'hidden' });
    };
    await version(3601);
    await newest('running', 2);
    await healthy();
    await panel.getByText('1 of 1 placed, not promoted').waitFor();
    await act('Pause');
    await panel.getByText('paused').first().waitFor();
    await accessible(page, 'an active deployment');
    await act('Resume');
    await panel.getByRole('button', { name: 'Pause' }).waitFor();
    await act('Promote');
    await newest('successful', 2);
    await panel.waitFor({ state: 'detached' });
    await version(3602);
    await newest('running', 3);
    await act('Fail');
    await panel.waitFor({ state: 'detached' });
    // Each deployment has an address, with the allocations that it placed.
    const old = (await api('job/rolling/deployments')).find((row) => row.JobVersion === 0).ID;
    await page.getByRole('tab', { name: 'Deployments' }).click();
    await page.getByRole('link', { name: old.slice(0, 8) }).click();
    expect(page.url().endsWith(`/ui/jobs/rolling@default/deployments/${old}`), `the address of the deployment, not ${page.url()}`);
    const placed = page.getByRole('region', { name: 'Allocations of the deployment' });
    await placed.getByText('1–1 of 1 allocations').waitFor();
    await accessible(page, 'a deployment');
    await placed.getByRole('table').locator('tbody a').first().click();
    await page.getByRole('table', { name: 'Tasks' }).waitFor();
    await page.close();
  },

  async 'a job that ended starts again, or is purged'() {
    await run(`job "once" {
      type = "batch"
      group "g" {
        task "t" {
          driver = "raw_exec"
          config { command = "true" }
        }
      }
    }`);
    await until('the end of the job', async () => (await api('job/once')).Status === 'dead');
    const page = await open('jobs/once@default');
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'Start', exact: true }).waitFor();
    expect((await page.getByRole('button', { name: 'Stop', exact: true }).count()) === 0, 'nothing to stop');
    await api('job/once', { method: 'DELETE' });
    await page.getByText('stopped').first().waitFor();
    await page.getByRole('button', { name: 'Start', exact: true }).click();
    await dialog.getByRole('button', { name: 'Start the job' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await until('the job to be registered', async () => (await api('job/once')).Stop === false);
    await until('the second end of the job', async () => (await api('job/once')).Status === 'dead');
    await page.getByRole('button', { name: 'Purge' }).click();
    const purge = dialog.getByRole('button', { name: 'Purge the job' });
    expect(await purge.isDisabled(), 'the name to be typed first');
    await dialog.getByRole('textbox').fill('once');
    await purge.click();
    await heading(page, 'Jobs');
    await until('the job to be gone', async () => !(await api('jobs')).some((row) => row.ID === 'once'));
    await page.close();
  },

  async 'a key copies the address of the row, else of the page'() {
    const page = await open('jobs');
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    const table = page.getByRole('table', { name: 'Jobs' });
    await table.getByRole('link', { name: 'acts', exact: true }).waitFor();
    const copied = () => page.evaluate(() => navigator.clipboard.readText());
    await page.locator('h1').focus();
    await page.keyboard.press('y');
    await until('the address of the page', async () => (await copied()) === `${address}/ui/jobs`);
    await table.getByRole('link', { name: 'acts', exact: true }).focus();
    await page.keyboard.press('y');
    await until('the address of the row', async () => (await copied()) === `${address}/ui/jobs/acts@default`);
    await page.close();
  },

  async 'files are seen and downloaded'() {
    const alloc = (await api('job/acts/allocations'))[0].ID;
    const page = await open(`allocations/${alloc}`);
    await page.getByRole('link', { name: 'Files of the allocation' }).click();
    const files = page.getByRole('table', { name: 'Files' });
    await files.getByRole('link', { name: 'alloc/' }).click();
    await files.getByRole('link', { name: 'logs/' }).click();
    await files.getByRole('link', { name: 't.stdout.0' }).waitFor();
    await accessible(page, 'files');
    expect(page.url().endsWith('/fs/alloc/logs'), `the path in ${page.url()}`);
    const writer = (await api('job/writer/allocations')).find((row) => row.ClientStatus === 'running').ID;
    await page.goto(`${address}/ui/allocations/${writer}/fs/alloc/logs/writer.stdout.0`);
    await page.getByText('written by allocation').first().waitFor();
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Download' }).click()]);
    expect(readFileSync(await download.path(), 'utf8').includes('written by allocation'), 'the content of the file');
    await page.goto(`${address}/ui/allocations/${writer}/fs/no/such`);
    await page.getByRole('button', { name: 'Try again' }).waitFor();
    await page.close();
  },

  async 'a log has both outputs, earlier lines, and lines with an address'() {
    await run(`job "noisy" {
      type = "batch"
      group "g" {
        task "t" {
          driver = "raw_exec"
          config {
            command = "/bin/sh"
            args = ["-c", "i=0; while [ $i -lt 9000 ]; do i=$((i + 1)); echo line $i of the output; done; echo trouble >&2; sleep 3600"]
          }
        }
      }
    }`);
    const { ID: alloc } = await until('the task', async () => (await api('job/noisy/allocations')).find((row) => row.ClientStatus === 'running'));
    const page = await open(`allocations/${alloc}/t/logs`);
    const log = page.getByRole('log', { name: 'Log' });
    await log.getByText('line 9000 of the output').waitFor();
    // The page reads the end first.
    await page.getByRole('textbox', { name: 'Search in log' }).fill('line 1 of');
    await page.getByText('0 found').waitFor();
    await page.getByRole('button', { name: 'Earlier lines' }).click();
    await page.getByText('1 found').waitFor();
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Whole log' }).click()]);
    expect(readFileSync(await download.path(), 'utf8').startsWith('line 1 of the output'), 'the whole log');
    await page.getByRole('textbox', { name: 'Search in log' }).fill('stderr trouble');
    await page.getByRole('combobox', { name: 'Output' }).selectOption('both');
    await page.getByText('1 found').waitFor();
    await page.getByRole('textbox', { name: 'Search in log' }).fill('stdout line 9000');
    await page.getByText('1 found').waitFor();
    await accessible(page, 'both outputs of a log');
    await page.getByRole('textbox', { name: 'Search in log' }).fill('');
    await page.getByRole('combobox', { name: 'Output' }).selectOption('stdout');
    await log.getByText('line 9000 of the output').waitFor();
    const last = log.locator('.line', { hasText: 'line 8999 of' }).locator('.number');
    const number = await last.innerText();
    await last.click();
    expect(page.url().endsWith(`/t/logs#L${number}`), `the line in ${page.url()}`);
    await page.goto(page.url().replace(/#.*/, '#L7'));
    await page.reload();
    await log.locator('.line.linked').waitFor();
    expect((await log.locator('.line.linked .number').innerText()) === '7', 'the line of the address');
    await page.close();
  },

  async 'a log keeps its place, and hits are reached where lines wrap'() {
    const { ID: alloc } = (await api('job/noisy/allocations'))[0];
    const page = await open(`allocations/${alloc}/t/logs`);
    const log = page.getByRole('log', { name: 'Log' });
    await log.getByText('line 9000 of the output').waitFor();
    /** Returns the line on top of the view. */
    const onTop = () =>
      log.evaluate((box) => {
        const edge = box.getBoundingClientRect().top + box.clientTop;
        const line = [...box.querySelectorAll('.line')].find((row) => row.getBoundingClientRect().bottom > edge + 1);
        return line?.textContent.replace(/^\d+/, '') ?? '';
      });
    await log.evaluate((box) => (box.scrollTop = 18 * 500 + 5));
    await page.getByRole('button', { name: 'Follow', pressed: false }).waitFor();
    await until('the lines of this place', async () => (await onTop()) !== '');
    const before = await onTop();
    await page.getByRole('button', { name: 'Earlier lines' }).click();
    await page.getByText('9,000 lines').waitFor();
    await until(`the line on top to stay "${before}"`, async () => (await onTop()) === before);
    await page.getByRole('button', { name: 'Wrap' }).click();
    await until(`the line on top to stay "${before}" with Wrap`, async () => (await onTop()) === before);
    await page.getByRole('textbox', { name: 'Search in log' }).fill('/line (2|4|8999) of/');
    await page.getByText('3 found').waitFor();
    /** Goes on to a hit, and expects to see it. */
    const goes = async (button, number) => {
      await page.getByRole('button', { name: button, exact: true }).click();
      const hit = log.locator('.line[aria-current]').getByText(`line ${number} of`);
      await until(`the hit in line ${number} to be in view`, () =>
        hit.evaluate((row) => {
          const line = row.getBoundingClientRect();
          const view = row.closest('.log').getBoundingClientRect();
          return line.top >= view.top && line.bottom <= view.bottom;
        }),
      );
    };
    for (const number of [2, 4, 8999, 2]) await goes('Next', number);
    await goes('Previous', 8999);
    // The lines around the view are drawn while one scrolls away from a hit.
    await goes('Next', 2);
    await until('the end of the log', async () => {
      await log.evaluate((box) => (box.scrollTop = box.scrollHeight));
      return log.getByText('line 9000 of').isVisible();
    });
    await page.getByRole('button', { name: 'Wrap' }).click();
    for (const number of [4, 8999]) await goes('Next', number);
    await page.close();
  },

  async 'the log of an agent is followed'() {
    const node = (await api('nodes'))[0].ID;
    const page = await open(`clients/${node}`);
    await page.getByRole('link', { name: 'Log of the agent' }).click();
    await page.getByRole('combobox', { name: 'Level' }).selectOption('debug');
    await page.getByRole('log', { name: 'Log' }).getByText(/DEBUG/).first().waitFor();
    await main(page, 'Servers');
    await page.getByRole('table', { name: 'Servers' }).getByRole('link', { name: 'Log' }).click();
    await page.getByRole('region', { name: 'Log of the agent' }).waitFor();
    await page.close();
  },

  async 'a drain shows first what it moves'() {
    const page = await open('clients');
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().click();
    await page.getByRole('region', { name: 'Usage' }).getByRole('img', { name: /^CPU: now/ }).waitFor();
    await page.getByRole('button', { name: 'Drain' }).click();
    const dialog = page.getByRole('dialog');
    const moves = dialog.getByRole('list', { name: 'Moves' });
    await moves.getByText(/writer.*finds no place/).waitFor();
    await dialog.getByText(/would find no place and wait/).waitFor();
    await accessible(page, 'the preview of a drain');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await until('the focus on the button', () => page.evaluate(() => document.activeElement?.textContent === 'Drain'));
    await page.close();
  },

  async 'a volume is created, grown, copied and deleted'() {
    const page = await open('storage');
    await page.getByRole('button', { name: 'New volume' }).click();
    await heading(page, 'New volume');
    await page.getByRole('textbox', { name: 'Name' }).fill('scratch');
    await page.getByRole('combobox', { name: 'Plugin' }).fill('hostpath');
    await page.getByRole('textbox', { name: 'Least capacity' }).fill('big');
    await page.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('alert').getByText('Least capacity "big"').waitFor();
    await page.getByRole('textbox', { name: 'Least capacity' }).fill('1MiB');
    await accessible(page, 'a new volume');
    await page.getByRole('button', { name: 'Create' }).click();
    await heading(page, 'scratch');
    const dialog = page.getByRole('dialog');
    await page.getByRole('button', { name: 'Grow' }).click();
    await dialog.getByRole('textbox', { name: 'New capacity' }).fill('1 MiB');
    await dialog.getByRole('button', { name: 'Grow it' }).click();
    await dialog.getByRole('alert').getByText('cannot shrink').waitFor();
    await dialog.getByRole('textbox', { name: 'New capacity' }).fill('2 MiB');
    await dialog.getByRole('button', { name: 'Grow it' }).click();
    await page.getByRole('region', { name: 'State' }).getByText('2.0 MiB').waitFor();
    await page.getByRole('button', { name: 'New snapshot' }).click();
    await dialog.getByRole('button', { name: 'Make it' }).click();
    const snapshots = page.getByRole('table', { name: 'Snapshots' });
    await snapshots.getByRole('cell', { name: 'ready', exact: true }).waitFor();
    const name = await snapshots.locator('tbody td').first().innerText();
    await snapshots.getByRole('button', { name: 'Delete' }).click();
    await dialog.getByText(`Delete the snapshot ${name}?`).waitFor();
    await dialog.getByRole('textbox').fill(name);
    await dialog.getByRole('button', { name: 'Delete the snapshot' }).click();
    await snapshots.getByText('None.').waitFor();
    // The button that opened the dialog is gone, and the focus is not lost with it.
    await until('the focus on the heading', () => page.evaluate(() => document.activeElement?.tagName === 'H1'));
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await dialog.getByRole('textbox').fill('scratch');
    await dialog.getByRole('button', { name: 'Delete the volume' }).click();
    await until('the volume to be gone', async () => !(await api('volumes?type=csi')).some((row) => row.ID === 'scratch'));
    await page.close();
  },

  async 'a host volume is created and deleted'() {
    const page = await open('storage/volumes/new?type=host');
    await heading(page, 'New host volume');
    await page.getByRole('textbox', { name: 'Name' }).fill('cache');
    await page.getByRole('textbox', { name: 'Plugin' }).fill('mkdir');
    await page.getByRole('button', { name: 'Create' }).click();
    await heading(page, 'cache');
    await page.getByText('no allocation uses it').waitFor();
    await page.getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('Delete the host volume cache?').waitFor();
    await dialog.getByRole('textbox').fill('cache');
    await dialog.getByRole('button', { name: 'Delete the volume' }).click();
    await heading(page, 'Storage');
    await page.close();
  },

  async 'a plugin explains itself'() {
    const page = await open('storage/plugins/hostpath');
    await page.getByText('1 of 1 nodes are healthy').waitFor();
    await page.getByRole('table', { name: 'Calls under way' }).waitFor();
    await accessible(page, 'a plugin');
    await page.close();
  },

  async 'a wrong file is marked, and a template is kept'() {
    const page = await open('jobs/run');
    await page.getByRole('textbox', { name: 'Job file' }).fill('job "x" {\n  priority = \n}\n');
    await page.getByRole('button', { name: 'Plan' }).click();
    const problems = page.getByRole('list', { name: 'Problems of Job file' });
    await problems.getByRole('button', { name: /^Line 2/ }).click();
    expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')) === 'Job file', 'the focus in the file');
    await accessible(page, 'a wrong file');
    // What the servers find stands at its line too.
    const bad = 'job "wrong" {\n  priority = 500\n  group "g" {\n    task "t" {\n      driver = "raw_exec"\n      config { command = "true" }\n      resources { cpu = 0 }\n    }\n  }\n}\n';
    // The check that follows the last key by itself is due after the plan, and must not remove what the plan found.
    await page.clock.install();
    await page.clock.pauseAt(Date.now() + 1000);
    await page.getByRole('textbox', { name: 'Job file' }).fill(bad);
    const parsed = [];
    page.on('request', (request) => request.url().includes('jobs/parse') && parsed.push(request.url()));
    await page.getByRole('button', { name: 'Plan' }).click();
    await problems.getByRole('button', { name: 'Line 2, column 3' }).waitFor();
    await problems.getByRole('button', { name: /^Line 7/ }).waitFor();
    await page.clock.fastForward(2000);
    expect(parsed.length === 1, `one reading of the file, were ${parsed.length}`);
    await page.clock.resume();
    const place = () => page.evaluate(() => {
      const area = document.activeElement;
      return area instanceof HTMLTextAreaElement ? area.value.slice(area.selectionStart, area.selectionEnd) : '';
    });
    await page.getByRole('textbox', { name: 'Job file' }).press('Control+Home');
    await page.keyboard.press('F8');
    expect((await place()) === 'priority = 500', `the first problem to be selected, not ${await place()}`);
    await page.keyboard.press('F8');
    expect((await place()).startsWith('cpu = 0'), `the second problem to be selected, not ${await place()}`);
    await page.keyboard.press('Shift+F8');
    expect((await place()) === 'priority = 500', 'the first problem again');
    await accessible(page, 'problems of the servers');
    const json = JSON.stringify({ Job: { ID: 'wrong', Priority: 500, TaskGroups: [{ Name: 'g', Tasks: [{ Name: 't', Driver: 'raw_exec' }] }] } }, null, 2);
    await page.getByRole('textbox', { name: 'Job file' }).fill(json);
    await page.getByRole('button', { name: 'Plan' }).click();
    await problems.getByRole('button', { name: /^Line 4/ }).waitFor();
    const text = 'job "made" {\n  group "g" {\n    task "t" {\n      driver = "raw_exec"\n      config { command = "true" }\n    }\n  }\n}\n';
    await page.getByRole('textbox', { name: 'Job file' }).fill(text);
    await page.getByRole('button', { name: 'Keep as template' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Name' }).fill('a b');
    await dialog.getByRole('button', { name: 'Keep it' }).click();
    await dialog.getByRole('alert').getByText('A name has').waitFor();
    await dialog.getByRole('textbox', { name: 'Name' }).fill('basic');
    await dialog.getByRole('button', { name: 'Keep it' }).click();
    await dialog.waitFor({ state: 'hidden' });
    await page.getByRole('textbox', { name: 'Job file' }).fill('job "other" {}');
    await page.getByRole('combobox', { name: 'Template' }).selectOption('basic@default');
    await until('the file of the template', async () => (await page.getByRole('textbox', { name: 'Job file' }).inputValue()) === text);
    await page.getByRole('combobox', { name: 'Node' }).selectOption({ index: 1 });
    await page.getByRole('button', { name: 'What if' }).click();
    await page.getByRole('region', { name: 'Plan result' }).getByRole('heading', { name: 'What if' }).waitFor();
    await page.getByRole('button', { name: 'Remove template' }).click();
    await dialog.getByText('Remove the template basic?').waitFor();
    await dialog.getByRole('button', { name: 'Remove it' }).click();
    await page.getByRole('button', { name: 'Remove template' }).waitFor({ state: 'detached' });
    await page.close();
  },

  async 'a namespace is made, changed and deleted'() {
    const page = await open('administration/namespaces');
    await page.getByRole('button', { name: 'New namespace' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('team');
    await page.getByRole('textbox', { name: 'Metadata' }).fill('owner=ada');
    await accessible(page, 'a new namespace');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { level: 1, name: 'team' }).waitFor();
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByRole('textbox', { name: 'Description' }).fill('of the team');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('table', { name: 'Namespaces' }).getByText('of the team').waitFor();
    expect((await api('namespace/team')).Meta.owner === 'ada', 'the metadata to stay');
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByText('Delete the namespace team?').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete it' }).click();
    await page.getByRole('table', { name: 'Namespaces' }).getByRole('link', { name: 'team' }).waitFor({ state: 'detached' });
    await main(page, 'Administration');
    await page.getByRole('tab', { name: 'Node pools' }).click();
    await page.getByRole('button', { name: 'New node pool' }).click();
    await page.getByRole('textbox', { name: 'Name' }).fill('fast');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { level: 1, name: 'fast' }).waitFor();
    await page.close();
  },
};

await session(steps, process.argv[3]);
