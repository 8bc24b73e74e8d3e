import { expect, it } from 'vitest';
import { pieces, plain } from './sgr';

it('gives each appearance its piece', () => {
  expect(pieces('a\u001b[1;31mb\u001b[0mc')).toEqual([
    { text: 'a', classes: '' },
    { text: 'b', classes: 'bold c1' },
    { text: 'c', classes: '' },
  ]);
  expect(pieces('\u001b[38;5;12mx')).toEqual([{ text: 'x', classes: 'c4 bright' }]);
  expect(pieces('\u001b[38;2;1;2;3mx')).toEqual([{ text: 'x', classes: '' }]);
});

it('drops every other escape', () => {
  expect(plain('\u001b[2K\u001b[1Gx\u001b]0;title\u0007y\u0007')).toBe('xy');
  expect(plain('\u001b')).toBe('');
});

it('makes no markup of text', () => {
  expect(pieces('<b>&')).toEqual([{ text: '<b>&', classes: '' }]);
});
