import { expect, it } from 'vitest';
import { readItems, writeItems, sides } from './items';

it('reads what it writes', () => {
  const items = [{ key: 'a', value: 'x\ny' }, { key: '', value: 'lost' }];
  expect(readItems(writeItems(items))).toEqual({ a: 'x\ny' });
  expect(readItems(' ')).toEqual({});
});

it('names what is wrong', () => {
  expect(readItems('{')).toMatch(/no JSON/);
  expect(readItems('[1]')).toMatch(/object/);
  expect(readItems('{"a": 1}')).toMatch(/"a" must be a text/);
});

it('puts two versions side by side', () => {
  expect(sides({ a: '1', b: '2', d: '4' }, { a: '1', b: '3', c: '5' })).toEqual([
    { key: 'b', mine: '2', theirs: '3' },
    { key: 'c', mine: undefined, theirs: '5' },
    { key: 'd', mine: '4', theirs: undefined },
    { key: 'a', mine: '1', theirs: '1' },
  ]);
});
