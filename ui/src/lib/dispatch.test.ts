import { expect, it } from 'vitest';
import { dispatchBody } from './dispatch';

it('encodes the payload and leaves out empty metadata', () => {
  expect(dispatchBody('grün', { a: '1', b: '' }, ' x ')).toEqual({ Payload: 'Z3LDvG4=', Meta: { a: '1' }, IdPrefixTemplate: 'x' });
  expect(dispatchBody('', {}, '')).toEqual({ Payload: '', Meta: {}, IdPrefixTemplate: '' });
});
