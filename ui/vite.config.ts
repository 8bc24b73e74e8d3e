import { svelte } from '@sveltejs/vite-plugin-svelte';
import { existsSync, readFileSync } from 'node:fs';
import { defineConfig, type Plugin } from 'vite';

/** Packages whose code becomes part of the page. */
const IN_THE_PAGE = ['svelte', '@xterm/xterm', '@xterm/addon-fit'];

/** Files of the folder `public`, which are copied as they are. */
const COPIED = ['boot.js'];

/** What a first load needs: the frame of the page, and the pages with lists. */
const FIRST = /src[\\/]main\.ts$/;

/** Pages of one object. */
const OBJECTS = /src[\\/]pages[\\/](Job|Allocation|Node|Volume|HostVolume|NewVolume|Plugin|Variable)\.svelte$/;

interface Modules {
  getModuleInfo(id: string): { importers: readonly string[] } | null;
}

/** Reports whether a module is, or is imported by, one of the modules of a pattern. Imports at run time do not count. */
function serves(id: string, modules: Modules, pattern: RegExp, seen = new Set<string>()): boolean {
  if (pattern.test(id)) return true;
  if (seen.has(id)) return false;
  seen.add(id);
  return modules.getModuleInfo(id)?.importers.some((importer) => serves(importer, modules, pattern, seen)) ?? false;
}

/**
 * Returns the file of a module. The files are few: each one is a request, and a balancer of agents of two versions has few to
 * mix up. The terminal, the editor, the topology and the administration stay files of their own.
 */
function part(id: string, modules: Modules): string | null {
  if (/node_modules[\\/](svelte|esm-env|clsx)[\\/]/.test(id)) return 'page';
  if (!/[\\/]src[\\/]/.test(id) || id.endsWith('.css')) return null;
  if (serves(id, modules, FIRST)) return 'page';
  return serves(id, modules, OBJECTS) ? 'objects' : null;
}

/** Adds the table of files, which the crate includes, and the licences of the packages in the page. */
function listed(): Plugin {
  return {
    name: 'caravan-files',
    enforce: 'post',
    generateBundle(_, bundle) {
      const texts = IN_THE_PAGE.map((name) => {
        const folder = new URL(`node_modules/${name}/`, import.meta.url);
        const { version } = JSON.parse(readFileSync(new URL('package.json', folder), 'utf8')) as { version: string };
        return `${name} ${version}\n\n${readFileSync(new URL(['LICENSE.md', 'LICENSE'].find((file) => existsSync(new URL(file, folder))) ?? 'LICENSE', folder), 'utf8')}`;
      });
      this.emitFile({ type: 'asset', fileName: 'licenses.txt', source: texts.join('\n') });
      const names = [...Object.keys(bundle), ...COPIED, 'index.html', 'licenses.txt'];
      const lines = [...new Set(names)].sort().map((name) => `    ("${name}", include_bytes!("${name}")),`);
      this.emitFile({ type: 'asset', fileName: 'files.rs', source: `&[\n${lines.join('\n')}\n]\n` });
    },
  };
}

const agent = process.env.CARAVAN_ADDR ?? 'http://127.0.0.1:4646';

export default defineConfig({
  // Addresses of assets are relative, so that the page works below any prefix of a proxy.
  base: './',
  plugins: [svelte(), listed()],
  build: {
    outDir: process.env.CARAVAN_UI_OUT ?? '../crates/edge/ui/dist',
    emptyOutDir: true,
    sourcemap: false,
    target: 'es2022',
    modulePreload: { polyfill: false },
    // An inlined file would be a `data:` address, which the policy refuses.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: { output: { codeSplitting: { includeDependenciesRecursively: false, groups: [{ name: part, debugName: 'parts' }] } } },
  },
  worker: { format: 'es' },
  server: { port: 5173, proxy: { '/v1': { target: agent, ws: true } } },
  // Unit tests run beside builds and browsers: a limit ends a hung test, and measures nothing.
  test: { environment: 'node', include: ['src/**/*.test.ts'], testTimeout: 120_000 },
} as Parameters<typeof defineConfig>[0]);
