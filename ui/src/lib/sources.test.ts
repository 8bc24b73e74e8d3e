import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

function sources(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name);
    return statSync(path).isDirectory() ? sources(path) : [path];
  });
}

const files = sources(join(import.meta.dirname, '..')).filter((path) => /\.(svelte|ts)$/.test(path) && !path.endsWith('.test.ts'));

it('makes no markup from text and uses no inline styles', () => {
  expect(files.length).toBeGreaterThan(20);
  for (const path of files) {
    const text = readFileSync(path, 'utf8');
    expect(text, path).not.toMatch(/\{@html|innerHTML|insertAdjacentHTML|document\.write/);
    expect(text, path).not.toMatch(/\sstyle="/);
  }
});
