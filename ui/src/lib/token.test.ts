import { expect, it } from 'vitest';
import { onceFault, tokenFault, typedFault } from './token';

it('tells unknown tokens from expired ones and from other failures', () => {
  expect(tokenFault({ status: 403, message: 'ACL token expired' })).toBe('expired');
  expect(tokenFault({ status: 403, message: 'Permission denied' })).toBe('unknown');
  expect(tokenFault({ status: 403, message: 'ACL token not found' })).toBe('unknown');
  expect(tokenFault({ status: 404, message: 'ACL token not found' })).toBe('unknown');
  expect(tokenFault({ status: 404, message: 'page not found' })).toBeUndefined();
  expect(tokenFault({ status: 500, message: 'No cluster leader' })).toBeUndefined();
});

it('says so', () => {
  expect(typedFault({ status: 403, message: 'Permission denied' })).toBe('The agent does not know this token.');
  expect(typedFault({ status: 403, message: 'ACL token expired' })).toBe('This token has expired.');
  expect(typedFault({ status: 0, message: 'The agent does not answer.' })).toBe('The agent does not answer.');
  expect(onceFault({ status: 403, message: 'Permission denied' })).toMatch(/did not sign you in: it is unknown, was used before/);
  expect(onceFault({ status: 0, message: 'The agent does not answer.' })).toBe('The one-time token of the address did not sign you in: The agent does not answer.');
});
