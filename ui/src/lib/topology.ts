// The picture of all nodes: groups of cells in rows, and the fill of each cell.

import type { NodeColumns } from '../api/types';

export type Measure = 'cpu' | 'memory' | 'disk' | 'allocations';
/** `meta.` with a key groups by that key of the nodes' metadata. */
export type GroupBy = 'datacenter' | 'pool' | 'class' | 'status' | `meta.${string}`;
const META = 'meta.';
const GROUPS = ['datacenter', 'pool', 'class', 'status'];

/** Returns the grouping that an address names. */
export function grouping(text: string | null): GroupBy {
  return text && (GROUPS.includes(text) || (text.startsWith(META) && text.length > META.length)) ? (text as GroupBy) : 'datacenter';
}

/** Returns the key of metadata of a grouping; empty for other groupings. */
export function metaKey(by: GroupBy): string {
  return by.startsWith(META) ? by.slice(META.length) : '';
}

/** The side of a cell with its gap, and the height of a group's title, in CSS pixels. */
export const CELL = 16;
export const TITLE = 24;

export interface Group {
  name: string;
  /** Positions in the columns. */
  nodes: number[];
  /** The upper edge of the first row of cells. */
  top: number;
}

export interface Layout {
  groups: Group[];
  /** The left upper corner of each node's cell; absent for nodes that do not fit. */
  places: Map<number, { x: number; y: number }>;
  columns: number;
  height: number;
}

function groupOf(nodes: NodeColumns, at: number, by: GroupBy): string {
  switch (by) {
    case 'datacenter':
      return nodes.Datacenter[at] ?? '';
    case 'pool':
      return nodes.NodePool[at] ?? '';
    case 'class':
      return nodes.NodeClass[at] || 'no class';
    case 'status':
      return state(nodes, at);
    default:
      return nodes.Meta?.[at] || `no ${metaKey(by)}`;
  }
}

/** Returns the position of a node that an address names by its name, its id or the beginning of its id; -1 for none. */
export function nodeOf(nodes: NodeColumns, named: string): number {
  if (!named) return -1;
  const exact = nodes.ID.indexOf(named);
  if (exact >= 0) return exact;
  const byName = nodes.Name.indexOf(named);
  return byName >= 0 ? byName : nodes.ID.findIndex((id) => id.startsWith(named));
}

/** Returns the state of a node as one word. */
export function state(nodes: NodeColumns, at: number): string {
  const status = nodes.Status[at] ?? '';
  if (status !== 'ready') return status;
  if (nodes.Draining[at]) return 'draining';
  return nodes.Eligible[at] ? 'ready' : 'ineligible';
}

/** The columns that select nodes. */
type Selecting = 'Datacenter' | 'NodePool' | 'NodeClass' | 'Status' | 'Version';

/** Returns the test of a node: it has a text in its names, and for each column that selects nodes one of its values. */
export function chooser(nodes: NodeColumns, search: string, selected: Partial<Record<Selecting, string[]>>): (at: number) => boolean {
  const columns = (Object.entries(selected) as [Selecting, string[]][]).filter(([, values]) => values.length > 0);
  const isFound = (at: number) => [nodes.Name[at], nodes.ID[at], nodes.NodeClass[at]].some((word) => word?.toLowerCase().includes(search));
  return (at) =>
    (search === '' || isFound(at)) &&
    // An agent of an older version does not know the versions.
    columns.every(([column, values]) => values.includes(nodes[column]?.[at] ?? ''));
}

/** Compares by code units: the rules of a language take tens of milliseconds for 10,000 names. */
function order(one: string, two: string): number {
  if (one === two) return 0;
  return one < two ? -1 : 1;
}

/** Returns whether two layouts place the same nodes at the same places. */
export function isSame(one: Layout, two: Layout): boolean {
  return (
    one.columns === two.columns &&
    one.groups.length === two.groups.length &&
    one.groups.every((group, at) => {
      const other = two.groups[at];
      return (
        group.name === other?.name &&
        group.nodes.length === other.nodes.length &&
        group.nodes.every((node, index) => node === other.nodes[index])
      );
    })
  );
}

/** Places all nodes in groups below each other. */
export function layout(nodes: NodeColumns, by: GroupBy, width: number, fits: (at: number) => boolean): Layout {
  const found = new Map<string, number[]>();
  nodes.ID.forEach((_, at) => {
    if (!fits(at)) return;
    const name = groupOf(nodes, at, by);
    const list = found.get(name);
    if (list) list.push(at);
    else found.set(name, [at]);
  });
  const columns = Math.max(1, Math.floor(width / CELL));
  const places: Layout['places'] = new Map();
  let top = 0;
  const groups = [...found.entries()]
    .sort(([one], [two]) => order(one, two))
    .map(([name, list]) => {
      list.sort((one, two) => order(nodes.Name[one] ?? '', nodes.Name[two] ?? ''));
      const group = { name, nodes: list, top: top + TITLE };
      list.forEach((at, index) => {
        places.set(at, { x: (index % columns) * CELL, y: group.top + Math.floor(index / columns) * CELL });
      });
      top += TITLE + Math.ceil(list.length / columns) * CELL + 8;
      return group;
    });
  return { groups, places, columns, height: top };
}

/** What a cell shows. Equal looks need no drawing. */
export interface Look {
  state: string;
  /** The height of the fill, in CSS pixels. */
  full: number;
  chosen: boolean;
  /** Whether other nodes are highlighted. */
  dim: boolean;
}

/** The cells that are drawn, and those whose look has changed since. */
export class Cells {
  private drawn = new Map<number, Look>();
  private waiting = new Set<number>();

  /** Drops everything: the picture is empty. */
  clear(): void {
    this.drawn.clear();
    this.waiting.clear();
  }

  /** Returns whether cells wait to be drawn. */
  get isDirty(): boolean {
    return this.waiting.size > 0;
  }

  /** Notes cells that may look different. */
  touch(nodes: Iterable<number>): void {
    for (const at of nodes) this.waiting.add(at);
  }

  /** Draws waiting cells whose look has changed, until the time is over. The rest waits for the next frame. `paint` gets the look
   * that the cell has; without one, its place is empty. */
  draw(look: (at: number) => Look, paint: (at: number, look: Look, old: Look | undefined) => void, isOver: () => boolean): void {
    let number = 0;
    for (const at of this.waiting) {
      if (number % 64 === 63 && isOver()) return;
      number += 1;
      this.waiting.delete(at);
      const [old, now] = [this.drawn.get(at), look(at)];
      if (old && old.state === now.state && old.full === now.full && old.chosen === now.chosen && old.dim === now.dim) continue;
      this.drawn.set(at, now);
      paint(at, now, old);
    }
  }
}

/** Returns the highest number of allocations of a node, at least 1. */
export function mostAllocations(nodes: NodeColumns): number {
  return nodes.Allocations.reduce((most, number) => Math.max(most, number), 1);
}

/** Returns the share of a node that is used, from 0 to 1. */
export function fill(nodes: NodeColumns, at: number, measure: Measure, most: number): number {
  return Math.min(1, Math.max(0, used(nodes, at, measure, most)));
}

function used(nodes: NodeColumns, at: number, measure: Measure, most: number): number {
  const share = (part: number[], all: number[]) => (part[at] ?? 0) / Math.max(1, all[at] ?? 1);
  switch (measure) {
    case 'memory':
      return share(nodes.MemoryMBUsed, nodes.MemoryMB);
    // An agent of an older version does not know the disks.
    case 'disk':
      return share(nodes.DiskMBUsed ?? [], nodes.DiskMB ?? []);
    case 'allocations':
      return (nodes.Allocations[at] ?? 0) / Math.max(1, most);
    default:
      return share(nodes.CPUUsed, nodes.CPU);
  }
}

/** Returns the node at a point; -1 for none. */
export function hit(shape: Layout, x: number, y: number): number {
  const column = Math.floor(x / CELL);
  if (column < 0 || column >= shape.columns) return -1;
  for (const group of shape.groups) {
    const row = Math.floor((y - group.top) / CELL);
    if (y >= group.top && row * shape.columns + column < group.nodes.length && y < group.top + Math.ceil(group.nodes.length / shape.columns) * CELL) {
      return group.nodes[row * shape.columns + column] ?? -1;
    }
  }
  return -1;
}

/** Returns the node that an arrow key leads to. */
export function moved(shape: Layout, from: number, key: string): number {
  const all = shape.groups.flatMap((group) => group.nodes);
  const at = all.indexOf(from);
  if (at < 0) return all[0] ?? -1;
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -shape.columns, ArrowDown: shape.columns }[key] ?? 0;
  return all[Math.min(all.length - 1, Math.max(0, at + step))] ?? -1;
}
