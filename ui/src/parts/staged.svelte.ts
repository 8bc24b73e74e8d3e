// Long lists in two steps: the rows that fit the window at once, the others after the browser has drawn these.

import { nav } from '../nav.svelte';

/** The rows of the first step: more than a window shows. */
const FIRST = 40;
/** The longest pause before the second step, in milliseconds: a window that is not visible draws nothing. */
const PAUSE = 200;

/** Returns the rows that a list shows now. A page that was shown before has all of them at once, so that its scroll position fits. */
export function staged<T>(rows: () => T[]): { readonly rows: T[] } {
  let isWhole = $state(nav.isBack);
  const hasRows = $derived(rows().length > 0);
  $effect(() => {
    if (isWhole || !hasRows) return;
    const whole = () => (isWhole = true);
    const late = setTimeout(whole, PAUSE);
    let soon: ReturnType<typeof setTimeout> | undefined;
    const frame = requestAnimationFrame(() => (soon = setTimeout(whole)));
    return () => {
      clearTimeout(late);
      clearTimeout(soon);
      cancelAnimationFrame(frame);
    };
  });
  return {
    get rows() {
      const all = rows();
      return isWhole || all.length <= FIRST ? all : all.slice(0, FIRST);
    },
  };
}
