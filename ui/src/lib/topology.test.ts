import { expect, it } from 'vitest';
import type { NodeColumns } from '../api/types';
import { CELL, fill, hit, layout, moved, state, TITLE } from './topology';

const nodes = {
  ID: ['1', '2', '3', '4'],
  Name: ['d', 'c', 'b', 'a'],
  Datacenter: ['dc1', 'dc1', 'dc2', 'dc1'],
  NodePool: ['x', 'x', 'x', 'x'],
  NodeClass: ['', 'k', '', ''],
  Status: ['ready', 'ready', 'down', 'ready'],
  Draining: [false, true, false, false],
  Eligible: [true, false, true, false],
  CPU: [100, 100, 0, 100],
  CPUUsed: [50, 200, 10, 0],
  MemoryMB: [10, 10, 10, 10],
  MemoryMBUsed: [1, 2, 3, 4],
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
  expect([0, 1, 2, 3].map((at) => state(nodes, at))).toEqual(['ready', 'draining', 'down', 'ineligible']);
});
