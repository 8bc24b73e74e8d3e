// The rows of lists as they are shown: the rows that fit the window at once, the others after the browser has drawn these; of
// long lists only what the window shows; and no row moves away under the pointer or the focus.

import { tick, untrack } from 'svelte';
import { hold, span } from '../lib/hold';
import { later } from '../lib/later';
import { nav } from '../nav.svelte';

/** The longest pause before the second step, in milliseconds: a window that is not visible draws nothing. */
const PAUSE = 200;
/** Lists with more rows are drawn in part. */
const LONG = 200;
/** The rows that are drawn before and after those in the window. */
const MARGIN = 40;
/** The height of a row until one is measured, in pixels. */
const HEIGHT = 34;
/** The rows of the first step in a window without a height, such as one that the browser prepares. */
const FEW = 20;
/** Returns the rows of the first step: as many as a window shows that has nothing else. */
const fitting = () => Math.max(FEW, Math.ceil(innerHeight / HEIGHT));

export interface Staged<T> {
  readonly rows: T[];
  /** The heights of what is left out before and after the rows, in pixels. */
  readonly before: number;
  readonly after: number;
  /** The number of rows for assistive technology, with that of the header; absent if all rows are drawn. */
  readonly count: number | undefined;
  /** The number of new rows that wait, so that no row moves under the pointer or the focus. */
  readonly fresh: number;
  /** The number of a row for assistive technology. */
  index(at: number): number | undefined;
  /** Shows the new rows. */
  release(): void;
  /** Attaches the list to the body of its table. */
  body(element: HTMLTableSectionElement): () => void;
}

/** Returns the rows that a list shows now. A page that was shown before has all of them at once, so that its scroll position
 * fits. `key` names a row; without it, rows may move at any time. */
export function staged<T>(rows: () => T[], key?: (row: T) => string): Staged<T> {
  let isWhole = $state(nav.isBack);
  const hasRows = $derived(rows().length > 0);
  $effect(() => {
    if (isWhole || !hasRows) return;
    return later(() => (isWhole = true), PAUSE);
  });

  // The order that the user sees, and the rows under the pointer and the focus.
  let order: string[] = [];
  let query = nav.query;
  let pointed = $state('');
  let focused = $state('');
  let released = $state(0);
  const held = $derived.by(() => {
    void released;
    const next = rows();
    if (!key) return { rows: next, fresh: 0 };
    // Another page or order of the list begins anew.
    if (query !== nav.query) {
      query = nav.query;
      order = [];
    }
    const found = hold(order, next, key, focused || pointed);
    order = found.rows.map(key);
    return found;
  });

  let height = $state(HEIGHT);
  let view = $state.raw({ first: 0, until: fitting() });
  let element: HTMLTableSectionElement | undefined;
  const isLong = $derived(held.rows.length > LONG);
  function look() {
    if (!element) return;
    const next = span(held.rows.length, height, element.getBoundingClientRect().top, innerHeight, MARGIN);
    if (next.first !== view.first || next.until !== view.until) view = next;
  }
  $effect(() => {
    if (!isLong || !isWhole) return;
    void held.rows;
    untrack(look);
    void tick().then(() => {
      // Rows are of one height as long as their texts are short.
      const drawn = [...(element?.rows ?? [])].filter((row) => !row.hidden && !row.classList.contains('gap'));
      const all = drawn.reduce((sum, row) => sum + row.offsetHeight, 0);
      if (height === HEIGHT && drawn.length > 0 && all > 0) height = all / drawn.length;
      look();
    });
    addEventListener('scroll', look, { passive: true });
    addEventListener('resize', look);
    return () => {
      removeEventListener('scroll', look);
      removeEventListener('resize', look);
    };
  });
  const first = $derived(isLong ? Math.min(view.first, held.rows.length) : 0);
  const shown = $derived(
    isLong ? held.rows.slice(first, view.until) : isWhole ? held.rows : held.rows.slice(0, view.until),
  );

  /** Returns the key of the row of an element. */
  function keyOf(target: EventTarget | null): string {
    const row = (target as Element | null)?.closest('tr');
    if (!row || row.parentElement !== element || !key) return '';
    const found = shown[row.sectionRowIndex - (first > 0 ? 1 : 0)];
    return found === undefined ? '' : key(found);
  }
  return {
    get rows() {
      return shown;
    },
    get before() {
      return first * height;
    },
    get after() {
      return isLong ? Math.max(0, held.rows.length - view.until) * height : 0;
    },
    get count() {
      return isLong ? held.rows.length + 1 : undefined;
    },
    get fresh() {
      return held.fresh;
    },
    index: (at) => (isLong ? first + at + 2 : undefined),
    release() {
      order = [];
      released += 1;
    },
    body(section) {
      element = section;
      const stop = new AbortController();
      const { signal } = stop;
      // A row that is removed under the pointer or the focus reports that while the list is drawn: the state changes after it.
      const on = (name: string, change: (key: string) => void) =>
        section.addEventListener(name, (event) => queueMicrotask(() => change(name.endsWith('leave') || name === 'focusout' ? '' : keyOf(event.target))), { signal });
      on('pointerover', (found) => (pointed = found));
      on('pointerleave', (found) => (pointed = found));
      on('focusin', (found) => (focused = found));
      on('focusout', (found) => (focused = found));
      return () => stop.abort();
    },
  };
}
