// Writes pictures of the page: node shots.mjs ADDRESS FOLDER [PATH=NAME...].

import { chromium } from 'playwright-core';

const [address, folder, ...shots] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
for (const scheme of ['light', 'dark']) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width: 1100, height: 620 } });
  for (const shot of shots) {
    const [path, name] = shot.split('=');
    const page = await context.newPage();
    await page.goto(`${address}/ui/${path}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.waitForFunction(() => !document.querySelector('[aria-busy]'));
    await page.waitForTimeout(500);
    await page.screenshot({ path: `${folder}/${name}-${scheme}.png` });
    await page.close();
  }
  await context.close();
}
await browser.close();
