// What the sessions share: the browser, and the list of troubles of its pages.

import { createHash, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

export const address = process.argv[2];

/** Returns the flag that makes the browser trust one certificate, besides those of the system. */
function trusting(file) {
  const key = new X509Certificate(readFileSync(file)).publicKey.export({ type: 'spki', format: 'der' });
  return `--ignore-certificate-errors-spki-list=${createHash('sha256').update(key).digest('base64')}`;
}

/** Starts the browser. It resolves no names, so that a call of another host fails. `certificate`: a file to trust. */
export const launch = (certificate) =>
  chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-dev-shm-usage',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
      ...(certificate ? [trusting(certificate)] : []),
    ],
  });

export const browser = await launch(address.startsWith('https:') ? process.argv[3] : undefined);
export const context = await browser.newContext();
const troubles = [];
const foreign = new Set();

/** Returns the troubles since the last call, and drops them: a step that expects some reads them. */
export const takeTroubles = () => troubles.splice(0);

// The page shows the reason of a refusal; the browser reports the status besides. Other tests create network interfaces; the
// browser then aborts its requests, and the page sends them again.
const expected = /status of 4\d\d|net::ERR_NETWORK_CHANGED/;

/** Collects what goes wrong on a page. */
export function watch(page) {
  page.on('console', (message) => {
    if (message.type() === 'error' && !expected.test(message.text())) troubles.push(message.text());
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

/** Opens a path below `/ui/`, or another address. Tries again if the browser aborts the request, see `expected`. */
export async function open(path, within = context) {
  const page = await within.newPage();
  watch(page);
  const { href } = new URL(path, `${address}/ui/`);
  for (let tries = 1; ; tries += 1) {
    try {
      await page.goto(href);
      return page;
    } catch (error) {
      if (tries === 5 || !error.message.includes('net::ERR_NETWORK_CHANGED')) throw error;
    }
  }
}

export function expect(condition, what) {
  if (!condition) throw new Error(`expected ${what}`);
}

/** Waits until a page has this heading. */
export const heading = (page, name) => page.getByRole('heading', { level: 1, name, exact: true }).waitFor();

/** Waits until the page follows the event stream. */
export const live = (page) => page.getByRole('status', { name: 'Connection' }).filter({ hasText: /^\W*Live$/ }).waitFor();

/** Follows a link of the navigation. */
export const main = (page, name) => page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name, exact: true }).click();

/** Calls the API. */
export const api = async (path, options) => (await fetch(`${address}/v1/${path}`, options)).json();

/** Returns the first result of a function that is not empty. */
export async function until(what, look) {
  for (let at = 0; at < 300; at += 1) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`waited in vain for ${what}`);
}

/** The end of a page's text that a failed step prints, in characters. */
const PRINTED = 1500;

/** Returns the addresses of the open pages with the end of their texts. */
async function texts() {
  const pages = browser.contexts().flatMap((one) => one.pages());
  const text = (page) => page.locator('body').innerText({ timeout: 2000 }).catch(String);
  const all = pages.map(async (page) => `${page.url()} shows:\n${(await text(page)).slice(-PRINTED)}`);
  return (await Promise.all(all)).join('\n');
}

/** Runs the steps whose names contain the last argument, or all of them, and reports the end. */
export async function session(steps, only) {
  try {
    for (const [name, step] of Object.entries(steps)) {
      if (only && !name.includes(only)) continue;
      try {
        await step();
      } catch (error) {
        throw new Error(`${name}: ${error.message}\n${troubles.join('\n')}\n${await texts()}`);
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
