import { expect, it } from 'vitest';
import { readItems, writeItems } from './items';

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
