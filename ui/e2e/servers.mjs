// The page of servers: node servers.mjs ADDRESS NAME. The server NAME has left the cluster, and the members still name it.
// Prints `the session is over`.

import { accessible } from './accessible.mjs';
import { api, context, address, expect, heading, live, session, watch } from './browser.mjs';

const [, , , name] = process.argv;

const steps = {
  async 'the servers are followed without requests'() {
    const page = await context.newPage();
    watch(page);
    await page.clock.install();
    await page.goto(`${address}/ui/servers`);
    await heading(page, 'Servers');
    const table = page.getByRole('table', { name: 'Servers' });
    const row = table.getByRole('row').filter({ has: page.getByRole('link', { name, exact: true }) });
    await row.getByText('left').waitFor();
    await table.getByRole('cell', { name: 'leader', exact: true }).waitFor();
    await live(page);
    await accessible(page, 'the servers');
    // What the page reads once after its first content.
    await page.waitForLoadState('load');
    let calls = [];
    page.on('request', (request) => calls.push(new URL(request.url()).pathname));
    for (let round = 0; round < 20; round += 1) {
      calls = [];
      await page.waitForTimeout(500);
      if (calls.length === 0) break;
    }
    // Whatever asks from time to time asks now; a silence this long does not end the stream.
    await page.clock.fastForward(20_000);
    await page.clock.fastForward(20_000);
    await page.waitForTimeout(500);
    expect(calls.length === 0, `no requests at rest, there were ${calls.join(' ')}`);
    await api(`agent/force-leave?node=${encodeURIComponent(name)}&prune=true`, { method: 'PUT' }).catch(() => undefined);
    await row.waitFor({ state: 'detached' });
    expect(calls.length === 0, `no request for the change, there were ${calls.join(' ')}`);
    await page.close();
  },
};

await session(steps);
