// The check of WCAG 2.2 A and AA.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect } from './browser.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Fails on violations in the light or the dark theme. The theme is the system's. */
export async function accessible(page, name) {
  // The script runs as a debugger's, which the policy of the page does not concern.
  await page.evaluate(axe);
  const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    const [found, back] = await page.evaluate(
      (values) =>
        window.axe
          .run(document, { runOnly: { type: 'tag', values } })
          .then((result) => [result.violations, getComputedStyle(document.documentElement).backgroundColor]),
      rules,
    );
    const summary = found.map((rule) => `${rule.id}: ${rule.nodes.map((node) => node.html.slice(0, 120)).join(' | ')}`);
    expect(found.length === 0, `no violations on ${name} (${colorScheme}), found ${summary.join('\n')}`);
    const isDark = Math.max(...back.match(/\d+/g).map(Number).slice(0, 3)) < 128;
    expect(isDark === (colorScheme === 'dark'), `the ${colorScheme} theme on ${name}, the background was ${back}`);
  }
  await page.emulateMedia({ colorScheme: null });
}
