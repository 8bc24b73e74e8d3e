// What the sessions share: the browser, and the list of troubles of its pages.

import { chromium } from 'playwright-core';

export const address = process.argv[2];

export const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
});
export const context = await browser.newContext();
const troubles = [];
const foreign = new Set();

function watch(page) {
  page.on('console', (message) => {
    // The page shows the reason of a refusal; the browser reports the status besides.
    if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) troubles.push(message.text());
  });
  page.on('pageerror', (error) => troubles.push(String(error)));
  page.on('response', async (response) => {
    if (response.status() >= 500) troubles.push(`${response.status()} ${response.url()} ${await response.text().catch(() => '')}`);
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && url.hostname !== '127.0.0.1') foreign.add(url.href);
  });
}

/** Opens a path below `/ui/`, or another address. */
export async function open(path, within = context) {
  const page = await within.newPage();
  watch(page);
  await page.goto(new URL(path, `${address}/ui/`).href);
  return page;
}

export function expect(condition, what) {
  if (!condition) throw new Error(`expected ${what}`);
}

/** Waits until a page has this heading. */
export const heading = (page, name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();

/** Calls the API. */
export const api = async (path, options) => (await fetch(`${address}/v1/${path}`, options)).json();

/** Runs the steps whose names contain the last argument, or all of them, and reports the end. */
export async function session(steps, only) {
  try {
    for (const [name, step] of Object.entries(steps)) {
      if (only && !name.includes(only)) continue;
      try {
        await step();
      } catch (error) {
        throw new Error(`${name}: ${error.message}\n${troubles.join('\n')}`);
      }
      expect(troubles.length === 0, `no trouble in "${name}", found ${troubles.join('\n')}`);
      console.error(`ok: ${name}`);
    }
    expect(foreign.size === 0, `no foreign requests, found ${[...foreign].join(' ')}`);
    console.log('the session is over');
  } finally {
    await browser.close();
  }
}
