import { expect, it } from 'vitest';
import { hold, span } from './hold';

const key = (row: { id: string }) => row.id;
const rows = (text: string) => [...text].map((id) => ({ id }));
const ids = (list: { id: string }[]) => list.map(key).join('');

it('shows changes at once if nobody points at a row', () => {
  const held = hold([...'abc'], rows('xabc'), key, '');
  expect([ids(held.rows), held.fresh]).toEqual(['xabc', 0]);
});

it('keeps the row under the pointer at its place, and counts the new rows', () => {
  const held = hold([...'abc'], rows('yxabc'), key, 'b');
  expect([ids(held.rows), held.fresh]).toEqual(['abc', 2]);
});

it('shows rows that do not move the row under the pointer', () => {
  const held = hold([...'abc'], rows('abcd'), key, 'b');
  expect([ids(held.rows), held.fresh]).toEqual(['abcd', 0]);
});

it('drops rows that are gone', () => {
  const gone = hold([...'abc'], rows('xac'), key, 'b');
  expect([ids(gone.rows), gone.fresh]).toEqual(['xac', 0]);
  const before = hold([...'abc'], rows('bcx'), key, 'b');
  expect([ids(before.rows), before.fresh]).toEqual(['bc', 1]);
});

it('draws the rows in the window', () => {
  expect(span(1000, 10, 50, 100, 2)).toEqual({ first: 0, until: 7 });
  expect(span(1000, 10, -500, 100, 2)).toEqual({ first: 48, until: 62 });
  expect(span(10, 10, -5000, 100, 2)).toEqual({ first: 8, until: 10 });
  expect(span(1000, 10, 5000, 100, 2)).toEqual({ first: 0, until: 2 });
  expect(span(1, 10, 0, 100, 2)).toEqual({ first: 0, until: 1 });
});
