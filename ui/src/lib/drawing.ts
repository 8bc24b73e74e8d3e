// Where the things of the storage map are, the lines between them, and the way of the arrow keys.

import type { Picture, Thing } from './picture';

/** The height of a row and of a box, in pixels. */
export const ROW = 50;
export const BOX = 44;
/** The titles of the columns, and their shares of the width. */
const SHARES: readonly [title: string, share: number][] = [
  ['Plugins', 0.19],
  ['Nodes', 0.175],
  ['Volumes', 0.265],
  ['Claims', 0.37],
];
/** The space between two columns, in pixels. */
const GAP = 30;
/** The space of the arrows to the right of the claims. */
const LANE = 10;
const LANES = 6;
/** A picture that is narrower than this scrolls. */
const NARROW = 860;
const WIDE = 1500;

export interface Column {
  title: string;
  left: number;
  width: number;
}

/** A picture with the places of its columns. */
export interface Drawing extends Picture {
  columns: Column[];
  width: number;
  height: number;
}

/** Places the columns of a picture within a width, in pixels. */
export function drawing(picture: Picture, space: number): Drawing {
  const width = Math.min(WIDE, Math.max(NARROW, Math.floor(space)));
  const lanes = picture.arrows.length > 0 ? LANE * (LANES + 1) : 0;
  const usable = width - lanes - GAP * (SHARES.length - 1);
  let left = 0;
  const columns = SHARES.map(([title, share]) => {
    const column = { title, left, width: Math.floor(usable * share) };
    left += column.width + GAP;
    return column;
  });
  return { ...picture, columns, width, height: Math.ceil(picture.rows * ROW) };
}

/** How far a lane stands to the right of its plugin, in pixels. */
const INDENT = 18;
const indent = (thing: Thing) => (thing.kind === 'lane' ? INDENT : 0);

/** Returns the left edge of a thing. */
export function left(of: Drawing, thing: Thing): number {
  return (of.columns[thing.column]?.left ?? 0) + indent(thing);
}
/** Returns the width of a thing. */
export function width(of: Drawing, thing: Thing): number {
  return (of.columns[thing.column]?.width ?? 0) - indent(thing);
}
/** Returns the right edge of a thing. */
function right(of: Drawing, thing: Thing): number {
  const column = of.columns[thing.column];
  return column ? column.left + column.width : 0;
}
export function top(thing: Thing): number {
  return Math.round(thing.row * ROW);
}
const middle = (thing: Thing) => top(thing) + BOX / 2;

/** Returns the lines from all things to their parts, as one path of SVG. */
export function lines(of: Drawing): string {
  const by = new Map(of.things.map((thing) => [thing.key, thing]));
  const parts: string[] = [];
  for (const thing of of.things) {
    const parent = by.get(thing.parent);
    if (!parent) continue;
    if (parent.column === thing.column) {
      parts.push(`M${left(of, parent) + INDENT / 2} ${top(parent) + BOX}V${middle(thing)}H${left(of, thing)}`);
      continue;
    }
    const from = right(of, parent);
    const bend = Math.round((from + left(of, thing)) / 2);
    parts.push(`M${from} ${middle(parent)}H${bend}V${middle(thing)}H${left(of, thing)}`);
  }
  return parts.join('');
}

/** Returns the arrows from claims in the way to the claims that wait for them, each a path of SVG. Arrows beside each other do
 * not overlap while there is space. */
export function arrows(of: Drawing): string[] {
  const by = new Map(of.things.map((thing) => [thing.key, thing]));
  const ends: number[] = [];
  const out: string[] = [];
  const known = of.arrows
    .map(({ from, to }) => [by.get(from), by.get(to)] as const)
    .filter((pair): pair is [Thing, Thing] => pair[0] !== undefined && pair[1] !== undefined)
    .toSorted((one, two) => Math.min(one[0].row, one[1].row) - Math.min(two[0].row, two[1].row));
  for (const [from, to] of known) {
    const begin = Math.min(from.row, to.row);
    let lane = ends.findIndex((end) => end < begin);
    if (lane < 0) lane = Math.min(ends.length, LANES - 1);
    ends[lane] = Math.max(ends[lane] ?? -1, from.row, to.row);
    const edge = right(of, from);
    out.push(`M${edge} ${middle(from) + 6}H${edge + LANE * (lane + 1)}V${middle(to) - 6}H${edge + 4}`);
  }
  return out;
}

export type Direction = 'ArrowUp' | 'ArrowDown' | 'ArrowLeft' | 'ArrowRight';

/** Returns the thing to which an arrow key leads: up and down within the column, left to the whole, right to the first part in another column. */
export function neighbour(picture: Picture, key: string, direction: Direction): Thing | undefined {
  const { things } = picture;
  const at = things.findIndex((thing) => thing.key === key);
  const thing = things[at];
  if (!thing) return things[0];
  if (direction === 'ArrowLeft') return things.find((other) => other.key === thing.parent);
  if (direction === 'ArrowRight') return things.find((other) => other.parent === key && other.column > thing.column);
  const step = direction === 'ArrowDown' ? 1 : -1;
  for (let next = at + step; next >= 0 && next < things.length; next += step) {
    if (things[next]?.column === thing.column) return things[next];
  }
  return undefined;
}
