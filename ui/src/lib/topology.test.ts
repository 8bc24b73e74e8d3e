import { expect, it } from 'vitest';
import type { NodeColumns } from '../api/types';
import { CELL, Cells, chooser, fill, grouping, hit, isSame, layout, metaKey, mostAllocations, moved, nodeOf, state, TITLE } from './topology';

const nodes = {
  ID: ['1', '2', '3', '4'],
  Name: ['d', 'c', 'b', 'a'],
  Datacenter: ['dc1', 'dc1', 'dc2', 'dc1'],
  NodePool: ['x', 'x', 'x', 'x'],
  NodeClass: ['', 'k', '', ''],
  Status: ['ready', 'ready', 'down', 'ready'],
  Draining: [false, true, false, false],
  Eligible: [true, false, true, false],
  Version: ['1.0.0', '1.0.0', '1.1.0', '1.0.0'],
  Meta: ['r2', '', 'r1', 'r2'],
  MetaKeys: ['rack'],
  CPU: [100, 100, 0, 100],
  CPUUsed: [50, 200, 10, 0],
  MemoryMB: [10, 10, 10, 10],
  MemoryMBUsed: [1, 2, 3, 4],
  DiskMB: [100, 100, 100, 0],
  DiskMBUsed: [25, 0, 0, 0],
  States: [{ running: 1 }, { running: 0 }, { running: 0 }, { running: 0 }],
  Total: 4,
  Allocations: [1, 2, 3, 4],
} satisfies NodeColumns;

it('groups and sorts the nodes', () => {
  const shape = layout(nodes, 'datacenter', 2 * CELL, () => true);
  expect(shape.groups.map((group) => [group.name, group.nodes])).toEqual([
    ['dc1', [3, 1, 0]],
    ['dc2', [2]],
  ]);
  expect(shape.columns).toBe(2);
  expect(shape.groups[0]?.top).toBe(TITLE);
  const some = layout(nodes, 'class', 200, (at) => at !== 0);
  expect(some.groups.map((group) => group.name)).toEqual(['k', 'no class']);
});

it('finds the node at a point', () => {
  const shape = layout(nodes, 'datacenter', 2 * CELL, () => true);
  expect(hit(shape, 1, TITLE + 1)).toBe(3);
  expect(hit(shape, CELL + 1, TITLE + 1)).toBe(1);
  expect(hit(shape, 1, TITLE + CELL + 1)).toBe(0);
  expect(hit(shape, CELL + 1, TITLE + CELL + 1)).toBe(-1);
  expect(hit(shape, 1, 1)).toBe(-1);
  expect(hit(shape, 1, shape.groups[1]!.top + 1)).toBe(2);
});

it('moves by arrow keys', () => {
  const shape = layout(nodes, 'datacenter', 2 * CELL, () => true);
  expect(moved(shape, -1, 'ArrowRight')).toBe(3);
  expect(moved(shape, 3, 'ArrowRight')).toBe(1);
  expect(moved(shape, 3, 'ArrowDown')).toBe(0);
  expect(moved(shape, 3, 'ArrowUp')).toBe(3);
});

it('fills within bounds', () => {
  expect(fill(nodes, 0, 'cpu', 4)).toBe(0.5);
  expect(fill(nodes, 1, 'cpu', 4)).toBe(1);
  expect(fill(nodes, 2, 'allocations', 4)).toBe(0.75);
  expect(mostAllocations(nodes)).toBe(4);
  expect(mostAllocations({ ...nodes, Allocations: [] })).toBe(1);
  // As many numbers as the arguments of a call cannot be.
  expect(mostAllocations({ ...nodes, Allocations: Array.from({ length: 200_000 }, (_, at) => at) })).toBe(199_999);
  expect([0, 1, 2, 3].map((at) => state(nodes, at))).toEqual(['ready', 'draining', 'down', 'ineligible']);
});

it('knows the place of each node', () => {
  const shape = layout(nodes, 'datacenter', 2 * CELL, (at) => at !== 2);
  expect(shape.places.get(0)).toEqual({ x: 0, y: TITLE + CELL });
  expect(shape.places.get(2)).toBeUndefined();
  for (const [at, { x, y }] of shape.places) expect(hit(shape, x + 1, y + 1)).toBe(at);
});

it('keeps the picture while the nodes stay', () => {
  const of = (all: typeof nodes, width = 100) => layout(all, 'status', width, () => true);
  expect(isSame(of(nodes), of({ ...nodes, CPUUsed: [1, 1, 1, 1] }))).toBe(true);
  expect(isSame(of(nodes), of({ ...nodes, Status: ['down', 'ready', 'down', 'ready'] }))).toBe(false);
  expect(isSame(of(nodes), of(nodes, 200))).toBe(false);
});

it('draws only cells that look different, within the time of a frame', () => {
  const cells = new Cells();
  let full = 1;
  let isDim = false;
  const painted: number[] = [];
  const draw = (isOver = () => false) => {
    painted.length = 0;
    cells.draw((at) => ({ state: 'ready', full: at === 5 ? full : 0, chosen: false, dim: isDim && at < 3 }), (at) => painted.push(at), isOver);
    return painted.length;
  };
  const all = Array.from({ length: 1000 }, (_, at) => at);
  cells.touch(all);
  const first = draw(() => true);
  expect(first).toBeLessThan(100);
  expect(cells.isDirty).toBe(true);
  expect(draw()).toBe(1000 - first);
  cells.touch(all);
  expect(draw()).toBe(0);
  full = 2;
  cells.touch(all);
  expect(draw()).toBe(1);
  isDim = true;
  cells.touch(all);
  expect(draw()).toBe(3);
  cells.clear();
  cells.touch([5]);
  expect(draw()).toBe(1);
});

it('selects nodes by text and by columns', () => {
  const chosen = (search: string, selected: Parameters<typeof chooser>[2]) => {
    const isChosen = chooser(nodes, search, selected);
    return nodes.ID.filter((_, at) => isChosen(at));
  };
  expect(chosen('', {})).toEqual(['1', '2', '3', '4']);
  expect(chosen('k', {})).toEqual(['2']);
  expect(chosen('', { Datacenter: ['dc1'], Status: ['ready'], NodePool: [] })).toEqual(['1', '2', '4']);
  expect(chosen('', { Version: ['1.1.0'] })).toEqual(['3']);
  expect(fill(nodes, 0, 'disk', 1)).toBe(0.25);
});

it('groups by metadata', () => {
  expect(['meta.rack', 'meta.', 'pool', 'other', null].map(grouping)).toEqual(['meta.rack', 'datacenter', 'pool', 'datacenter', 'datacenter']);
  expect([metaKey('meta.a.b'), metaKey('pool')]).toEqual(['a.b', '']);
  const shape = layout(nodes, 'meta.rack', 200, () => true);
  expect(shape.groups.map((group) => [group.name, group.nodes])).toEqual([
    ['no rack', [1]],
    ['r1', [2]],
    ['r2', [3, 0]],
  ]);
});

it('finds a node by its name and its id', () => {
  const named = { ...nodes, ID: ['ab1', 'ab2', 'c', 'd'] };
  expect(['', 'ab2', 'ab', 'b', 'x'].map((name) => nodeOf(named, name))).toEqual([-1, 1, 0, 2, -1]);
});
