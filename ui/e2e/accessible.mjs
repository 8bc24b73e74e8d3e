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

/** Fails if the text of a button has too little contrast in the light or the dark theme, with and without the pointer over it. */
export async function readable(page, button, name) {
  await button.waitFor();
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    for (const hover of [false, true]) {
      if (hover) await button.hover();
      else await page.mouse.move(0, 0);
      const contrast = await button.evaluate((element) => {
        const paint = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        // The canvas knows every notation of colours. The share of light is that of WCAG.
        const light = (colour) => {
          paint.fillStyle = colour;
          paint.fillRect(0, 0, 1, 1);
          const parts = [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
          const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
          return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
        };
        const style = getComputedStyle(element);
        const both = [light(style.color), light(style.backgroundColor)].sort((one, two) => two - one);
        return { ratio: (both[0] + 0.05) / (both[1] + 0.05), isOver: element.matches(':hover') };
      });
      expect(contrast.isOver === hover, `the pointer ${hover ? 'over' : 'beside'} ${name}`);
      expect(contrast.ratio >= 4.5, `a contrast of 4.5 in ${name} (${colorScheme}${hover ? ', hovered' : ''}), was ${contrast.ratio.toFixed(2)}`);
    }
  }
  await page.emulateMedia({ colorScheme: null });
}
