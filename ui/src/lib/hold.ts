// Lists that change while somebody points at one of their rows.

/** Rows as they are shown, and the number of those that wait to be shown. */
export interface Held<T> {
  rows: T[];
  fresh: number;
}

/** Returns the rows to show instead of `next`, so that the row `anchor` stays where `shown` has it. Rows that vanished go, rows that
 * changed change at their places, and new rows wait. Without an anchor, or if the anchor stays at its place, `next` is shown. */
export function hold<T>(shown: readonly string[], next: T[], key: (row: T) => string, anchor: string): Held<T> {
  const at = shown.indexOf(anchor);
  if (!anchor || at < 0) return { rows: next, fresh: 0 };
  const keys = next.map(key);
  const moved = keys.indexOf(anchor);
  // Without the anchor, nothing has to stay.
  if (moved < 0 || moved === at) return { rows: next, fresh: 0 };
  const byKey = new Map(next.map((row, index) => [keys[index] ?? '', row]));
  const before = new Set(shown);
  return {
    rows: shown.flatMap((one) => {
      const row = byKey.get(one);
      return row === undefined ? [] : [row];
    }),
    fresh: keys.filter((one) => !before.has(one)).length,
  };
}

/** The part of a long list that is drawn. */
export interface Span {
  first: number;
  until: number;
}

/** Returns the rows that a window shows of a list whose upper edge is `top` pixels below the upper edge of the window, and some
 * before and after them. A list outside of the window has some rows too: assistive technology and keys reach them. */
export function span(count: number, height: number, top: number, space: number, margin: number): Span {
  const first = Math.max(0, Math.min(count - margin, Math.floor(-top / height) - margin));
  return { first, until: Math.min(count, Math.max(first + margin, Math.ceil((space - top) / height) + margin)) };
}
