// The storage map and the verbs of its rows: node storage.mjs ADDRESS. The agent runs the plugin `hostpath`, and the job `writer`
// with its volume `data`; the job `reader` waits for the same volume. Prints `the session is over`.

import { accessible } from './accessible.mjs';
import { address, api, expect, heading, live, open, session, until } from './browser.mjs';

const map = (page) => page.getByRole('region', { name: 'Storage map' });
const picture = (page) => map(page).getByRole('group', { name: 'Plugins, nodes, volumes and claims' });
const focused = (page) => page.evaluate(() => document.activeElement?.textContent?.trim() ?? '');

const steps = {
  async 'the map is a picture with what waits, and an arrow from what is in the way'() {
    const page = await open('storage');
    await heading(page, 'Storage');
    await picture(page).getByRole('link', { name: 'hostpath', exact: true }).waitFor();
    await picture(page).getByRole('link', { name: 'data', exact: true }).waitFor();
    await picture(page).getByRole('link', { name: /^writer / }).waitFor();
    await picture(page).getByRole('link', { name: 'reader', exact: true }).waitFor();
    await picture(page).getByText('blocked · waits for a claim').waitFor();
    await picture(page).getByText(/mounted · write/).waitFor();
    expect((await picture(page).locator('path.way').count()) === 1, 'an arrow from the claim in the way');
    await accessible(page, 'the picture of the storage map');
    await page.setViewportSize({ width: 320, height: 640 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide <= 321, `no sideways scrolling of the page, which is ${wide} px wide`);
    await page.setViewportSize({ width: 1280, height: 720 });
    await page.close();
  },

  async 'a plugin has lanes for its parts and its calls'() {
    const page = await open('storage');
    const lane = picture(page).getByRole('link', { name: 'Nodes', exact: true });
    await lane.waitFor();
    for (const part of ['Controllers', 'Nodes']) await picture(page).locator('.thing.lane').filter({ hasText: `${part} healthy · 1 of 1` }).waitFor();
    await lane.focus();
    await page.keyboard.press('ArrowLeft');
    expect((await focused(page)) === 'hostpath', `the plugin, not ${await focused(page)}`);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await heading(page, 'hostpath');
    const lanes = page.getByRole('table', { name: 'Lanes' });
    for (const name of ['attach', 'detach', 'grow', 'manage']) await lanes.getByRole('cell', { name, exact: true }).waitFor();
    await accessible(page, 'the lanes of a plugin');
    await page.goto(`${address}/ui/storage?view=tree`);
    await map(page).getByText(/Nodes: 1 of 1/).waitFor();
    await page.close();
  },

  async 'the keyboard moves along the picture'() {
    const page = await open('storage');
    await picture(page).getByRole('link', { name: 'hostpath', exact: true }).focus();
    await page.keyboard.press('ArrowRight');
    const node = await focused(page);
    expect((await api('nodes')).some((row) => row.Name === node), `the node, not ${node}`);
    await page.keyboard.press('ArrowRight');
    expect((await focused(page)) === 'data', `the volume, not ${await focused(page)}`);
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowDown');
    expect((await focused(page)) === 'reader', `the job that waits, not ${await focused(page)}`);
    await page.keyboard.press('ArrowLeft');
    // The verbs of the volume come after its link.
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Verbs of the volume data' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    await picture(page).getByRole('link', { name: 'reader', exact: true }).focus();
    await page.keyboard.press('Enter');
    await heading(page, 'reader');
    await page.goBack();
    await heading(page, 'Storage');
    await page.close();
  },

  async 'filters and the view are in the address'() {
    const page = await open('storage?show=waits');
    await picture(page).getByRole('link', { name: 'data', exact: true }).waitFor();
    await page.getByRole('combobox', { name: 'Show' }).selectOption('failed');
    await map(page).getByText('No plugins and no volumes match.').waitFor();
    expect(page.url().includes('show=failed'), `the filter in ${page.url()}`);
    await page.getByRole('combobox', { name: 'Show' }).selectOption('');
    await page.getByRole('radio', { name: 'Tree' }).check();
    await map(page).getByRole('link', { name: 'data', exact: true }).waitFor();
    await map(page).getByText('waits for a claim').waitFor();
    expect(page.url().includes('view=tree'), `the view in ${page.url()}`);
    await accessible(page, 'the tree of the storage map');
    await page.getByRole('radio', { name: 'Table' }).check();
    await page.getByRole('table', { name: 'Volumes' }).getByRole('link', { name: 'data', exact: true }).waitFor();
    expect((await picture(page).count()) === 0 && page.url().includes('view=table'), 'the table alone');
    await page.goBack();
    await page.getByRole('radio', { name: 'Tree' }).and(page.locator(':checked')).waitFor();
    await page.close();
  },

  async 'rows have verbs'() {
    const page = await open('storage');
    await live(page);
    const row = page.getByRole('table', { name: 'Volumes' }).getByRole('button', { name: 'Verbs of data' });
    await row.click();
    const verbs = page.getByRole('dialog', { name: 'Verbs of the volume data' });
    await verbs.getByRole('button', { name: /^Detach from / }).waitFor();
    await accessible(page, 'the verbs of a volume');
    await verbs.getByRole('button', { name: 'Cancel' }).click();
    expect(await row.evaluate((button) => button === document.activeElement), 'the focus to return to the row');
    await row.click();
    await verbs.getByRole('button', { name: 'Grow' }).click();
    const dialog = page.getByRole('dialog', { name: 'Grow the volume data?' });
    await dialog.getByText('caravan volume create volume.hcl').waitFor();
    await dialog.getByRole('textbox', { name: 'New capacity' }).fill('big');
    await dialog.getByRole('button', { name: 'Grow it' }).click();
    await dialog.getByRole('alert').getByText('"big"').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await row.click();
    await verbs.getByRole('button', { name: /^Detach from / }).click();
    const detach = page.getByRole('dialog', { name: /^Detach data from / });
    await detach.getByText('caravan volume detach -namespace default data').waitFor();
    expect(await detach.getByRole('button', { name: 'Detach it' }).isDisabled(), 'the name of the node to be typed first');
    await detach.getByRole('button', { name: 'Cancel' }).click();
    await row.click();
    await verbs.getByRole('button', { name: 'New snapshot' }).click();
    const snapshot = page.getByRole('dialog', { name: 'Make a snapshot of data?' });
    await snapshot.getByRole('textbox', { name: 'Name' }).fill('before');
    await snapshot.getByText('caravan volume snapshot create -namespace default data before').waitFor();
    await snapshot.getByRole('button', { name: 'Make it' }).click();
    await snapshot.waitFor({ state: 'hidden' });
    await until('the snapshot', async () => ((await api('volumes/snapshot?plugin_id=hostpath')).Snapshots ?? []).length === 1);
    await page.close();
  },

  async 'a host volume hangs below its node, and a row deletes it'() {
    const node = (await api('nodes'))[0];
    await api('volume/host/create', { method: 'PUT', body: JSON.stringify({ Volume: { Name: 'cache', PluginID: 'mkdir', NodeID: node.ID } }) });
    const page = await open('storage');
    await picture(page).getByRole('link', { name: 'cache', exact: true }).waitFor();
    await picture(page).getByText('Host volumes').waitFor();
    await page.goto(`${address}/ui/storage?view=tree`);
    const tree = map(page).locator('.tree');
    await tree.getByText('host volumes', { exact: true }).waitFor();
    await tree.getByRole('link', { name: 'cache', exact: true }).waitFor();
    await tree.getByRole('button', { name: 'Verbs of cache' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await accessible(page, 'the tree with host volumes');
    await page.goto(`${address}/ui/storage?view=table&search=nothing`);
    await page.getByRole('table', { name: 'Host volumes' }).getByText('No host volume matches.').waitFor();
    await page.goto(`${address}/ui/storage?view=table`);
    await page.getByRole('table', { name: 'Host volumes' }).getByRole('button', { name: 'Verbs of cache' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete the host volume cache?' });
    await dialog.getByText('caravan volume delete -type host -namespace default').waitFor();
    await dialog.getByRole('textbox').fill('cache');
    await dialog.getByRole('button', { name: 'Delete the volume' }).click();
    await page.getByRole('table', { name: 'Host volumes' }).getByRole('link', { name: 'cache' }).waitFor({ state: 'detached' });
    await page.close();
  },

  async 'host volumes have pages, an order and filters'() {
    const node = (await api('nodes'))[0];
    for (const Name of ['alpha', 'Beta', 'gamma']) {
      await api('volume/host/create', { method: 'PUT', body: JSON.stringify({ Volume: { Name, PluginID: 'mkdir', NodeID: node.ID } }) });
    }
    const page = await open('storage?view=table&pageSize=2&dhvSortProperty=name&dhvSortDescending=true');
    const table = page.getByRole('table', { name: 'Host volumes' });
    const names = () => table.locator('tbody tr > td:first-child').allInnerTexts();
    const pages = page.getByRole('navigation', { name: 'Pages of host volumes' });
    await pages.getByText('1–2 of 3 host volumes').waitFor();
    expect((await names()).join() === 'gamma,alpha', `the last ones first, were ${await names()}`);
    await pages.getByRole('button', { name: 'Next page' }).click();
    await pages.getByText('3–3 of 3 host volumes').waitFor();
    expect((await names()).join() === 'Beta', `the second page, was ${await names()}`);
    await page.reload();
    await table.getByRole('link', { name: 'Beta' }).waitFor();
    await pages.getByRole('button', { name: 'Previous page' }).click();
    await table.getByRole('link', { name: 'gamma' }).waitFor();
    await page.getByRole('searchbox', { name: 'Find' }).fill('beta');
    await pages.getByText('1–1 of 1 host volumes').waitFor();
    expect((await names()).join() === 'Beta', `any case, were ${await names()}`);
    await page.goto(`${address}/ui/storage?view=tree&node=${node.Name.slice(0, 4)}`);
    await map(page).locator('.tree').getByRole('link', { name: 'gamma', exact: true }).waitFor();
    for (const row of (await api('volumes?type=host')).filter((one) => one.Name !== 'cache')) await fetch(`${address}/v1/volume/host/${row.ID}`, { method: 'DELETE' });
    await page.close();
  },

  async 'the picture leads to each of more volumes than it draws'() {
    const RequestedCapabilities = [{ AccessMode: 'single-node-writer', AttachmentMode: 'file-system' }];
    const Volumes = Array.from({ length: 350 }, (_, at) => {
      const ID = `bulk${String(at).padStart(3, '0')}`;
      return { ID, Name: ID, Namespace: 'default', PluginID: 'hostpath', RequestedCapacityMin: 1048576, RequestedCapabilities };
    });
    await api('volume/csi/bulk/create', { method: 'PUT', body: JSON.stringify({ Volumes }) });
    await until('the volumes', async () => (await api('volumes?type=csi&plugin_id=hostpath')).length >= 351);
    const page = await open('storage');
    const drawn = async () => {
      const number = await picture(page).locator('.thing').count();
      expect(number <= 300, `at most 300 things, were ${number}`);
    };
    // What waits comes first, the others are a group.
    await picture(page).getByRole('link', { name: 'data', exact: true }).waitFor();
    await picture(page).getByRole('link', { name: 'bulk000', exact: true }).waitFor();
    await drawn();
    await picture(page).getByRole('link', { name: '342 more volumes without trouble' }).focus();
    await page.keyboard.press('Enter');
    await picture(page).getByRole('link', { name: 'bulk200', exact: true }).waitFor();
    await until('the focus within the picture', async () => (await focused(page)) !== '' && page.evaluate(() => document.activeElement !== document.body));
    await drawn();
    await accessible(page, 'an open group of the picture');
    await picture(page).getByRole('link', { name: /more volumes without trouble$/ }).click();
    await map(page).getByText('The picture shows the volumes on no node.').waitFor();
    await drawn();
    expect(page.url().includes('home=none'), `the node in ${page.url()}`);
    await picture(page).getByRole('link', { name: /^\d+ more volumes$/ }).click();
    await picture(page).getByRole('link', { name: 'bulk349', exact: true }).waitFor();
    await drawn();
    await map(page).getByText(/It begins after the first \d+ volumes of 350/).waitFor();
    const shared = await open(page.url());
    await picture(shared).getByRole('link', { name: 'bulk349', exact: true }).waitFor();
    await shared.close();
    await map(page).getByRole('link', { name: 'Begin with the worst' }).click();
    await picture(page).getByRole('link', { name: 'bulk000', exact: true }).waitFor();
    await map(page).getByRole('link', { name: 'All nodes' }).click();
    await picture(page).getByRole('link', { name: 'data', exact: true }).waitFor();
    await page.close();
  },
};

await session(steps, process.argv[3]);
