import { expect, it } from 'vitest';
import { blocks, inline, webAddress } from './markdown';

it('splits a text into blocks', () => {
  const found = blocks('# Web\n\nServes `/`,\nsee [docs](https://example.com/a).\n\n- one\n- two\n```\n<b>x</b>\n```\n');
  expect(found.map((block) => [block.kind, block.rows.length])).toEqual([['heading', 1], ['text', 1], ['list', 2], ['code', 1]]);
  expect(found[1]?.rows[0]).toEqual([
    { text: 'Serves ' }, { text: '/', code: true }, { text: ',' }, { text: ' ' }, { text: 'see ' },
    { text: 'docs', href: 'https://example.com/a' }, { text: '.' },
  ]);
  expect(found[3]?.rows[0]).toEqual([{ text: '<b>x</b>' }]);
});

it('leaves links to other than the web as text', () => {
  expect(inline('[x](javascript:alert(1))')[0]?.href).toBeUndefined();
  expect(webAddress('data:text/html,x')).toBeUndefined();
  expect(webAddress('/v1/jobs')).toBeUndefined();
  expect(webAddress('http://a.example')).toBe('http://a.example/');
});
