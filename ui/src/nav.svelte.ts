// The current address, and moving between addresses.

import { tick } from 'svelte';
import { useRegion } from './api/client';
import { rawPath, uiRoot } from './api/places';
import { link, parse, type Page, type Route } from './lib/route';

/** Parameters that stay in the address when the page changes. */
const KEPT = ['namespace', 'region'];

class Nav {
  route = $state.raw(parse(rawPath(), new URLSearchParams(location.search).get('namespace') ?? ''));
  query = $state.raw(new URLSearchParams(location.search));
  /** Whether the user came to the address by the history. */
  isBack = false;

  /** The namespace of lists; `*` for all of them. */
  get namespace(): string {
    return this.query.get('namespace') || '*';
  }

  /** The parameters that links keep. */
  kept = $derived(
    KEPT.flatMap((name): [string, string][] => {
      const value = this.query.get(name);
      return value ? [[name, value]] : [];
    }),
  );
}

export const nav = new Nav();

/** Returns the address of these pages. While another page loads, their last address stays, and with it their data. */
export function own(...pages: Page[]): { readonly route: Route } {
  let last = nav.route;
  return {
    get route() {
      if (pages.includes(nav.route.page)) last = nav.route;
      return last;
    },
  };
}

/** Returns the link to a path below `/ui/`, with the namespace and the region of the current address. */
export function href(path: string): string {
  return link(uiRoot, path, nav.kept);
}

function show(): void {
  nav.query = new URLSearchParams(location.search);
  nav.route = parse(rawPath(), nav.query.get('namespace') ?? '');
  useRegion(nav.query.get('region') ?? '');
}

/** Moves to a path below `/ui/`. `instead`: the history does not keep the current address. */
export function go(path: string, instead = false): void {
  move(href(path), instead);
}

/** Replaces the current address by a more exact one of the same place. */
export function complete(path: string): void {
  move(href(path) + location.hash, true);
}

/** What the history keeps of a page that was left. */
interface Kept {
  scroll?: number;
  /** The link that led away, as its attribute is written. */
  link?: string;
}

function move(to: string, instead = false): void {
  if (!instead) {
    const link = document.activeElement instanceof HTMLAnchorElement ? (document.activeElement.getAttribute('href') ?? '') : '';
    history.replaceState({ ...history.state, scroll: scrollY, link } satisfies Kept, '');
  }
  const before = location.pathname;
  const from = location.href.slice(uiRoot.href.length);
  const state = new URL(to, location.href).pathname.endsWith('/settings/tokens') ? { from } : {};
  if (instead) history.replaceState(state, '', to);
  else history.pushState(state, '', to);
  endRestoring();
  nav.isBack = false;
  show();
  if (location.pathname !== before) {
    scrollTo(0, 0);
    isFocusDue = true;
    // The browser places the whole page if the focused element is removed.
    if (document.activeElement instanceof HTMLElement && document.activeElement.matches('main h1, main a')) document.activeElement.blur();
  }
}

/** Whether the page of the last move has not got the focus so far. */
let isFocusDue = false;

/** Sets the focus on the heading after a move, once the page is there: its part may load first. */
export function focusHeading(): void {
  if (!isFocusDue) return;
  void tick().then(() => {
    const heading = document.querySelector('h1');
    if (!isFocusDue || !heading) return;
    isFocusDue = false;
    heading.focus({ preventScroll: true });
  });
}

/** How long a page may take until it is as long as it was, in milliseconds. */
const RESTORING = 3000;
let endRestoring: () => void = () => {};

/** Returns to the scroll position and the link of a page, as soon as the page has them. What the user does meanwhile counts more. */
function restore({ scroll = 0, link = '' }: Kept): void {
  endRestoring();
  const until = performance.now() + RESTORING;
  let isOver = false;
  const stop = new AbortController();
  endRestoring = () => {
    isOver = true;
    stop.abort();
  };
  for (const name of ['wheel', 'touchstart', 'pointerdown', 'keydown']) addEventListener(name, endRestoring, { signal: stop.signal, passive: true });
  let isAt = false;
  let isFocused = link === '';
  const step = () => {
    if (isOver) return;
    const most = document.documentElement.scrollHeight - innerHeight;
    const isLate = performance.now() > until;
    if (!isAt && (most >= scroll || isLate)) {
      isAt = true;
      scrollTo(0, scroll);
    }
    if (!isFocused) {
      const found = document.querySelector<HTMLElement>(`main a[href="${CSS.escape(link)}"]`);
      found?.focus({ preventScroll: true });
      isFocused = found !== null || isLate;
    }
    if (isAt && isFocused) endRestoring();
    else requestAnimationFrame(step);
  };
  void tick().then(() => requestAnimationFrame(step));
}

/** Changes parameters of the address; an empty value removes one. */
export function setQuery(values: Record<string, string>, keep = false, state: object = {}): void {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  const to = url.pathname + url.search + url.hash;
  if (keep) history.pushState(state, '', to);
  else history.replaceState(history.state, '', to);
  show();
}

/** Makes links within the page change the address without loading. */
export function start(): void {
  history.scrollRestoration = 'manual';
  useRegion(nav.query.get('region') ?? '');
  addEventListener('popstate', () => {
    nav.isBack = true;
    show();
    restore((history.state ?? {}) as Kept);
  });
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest('a');
    if (!link || link.target || link.hasAttribute('download')) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || !url.pathname.startsWith(uiRoot.pathname)) return;
    if (url.hash && url.pathname === location.pathname) return;
    event.preventDefault();
    move(url.pathname + url.search);
  });
}
