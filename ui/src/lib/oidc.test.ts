import { expect, it } from 'vitest';
import { isJwt, nonce, returned, safeAddress } from './oidc';

it('tells a JWT from the secret of a token', () => {
  expect(isJwt('0f0e2b5e-6a3f-4bb0-8ca5-6d4a6a1b2c3d')).toBe(false);
  expect(isJwt(`${'a'.repeat(20)}.${'b'.repeat(20)}.c-_`)).toBe(true);
});

it('makes another nonce each time', () => {
  expect(nonce()).toMatch(/^[0-9a-f]{40}$/);
  expect(nonce()).not.toBe(nonce());
});

it('goes to web addresses only', () => {
  expect(safeAddress('https://login.example/authorize?x=1')).toBe('https://login.example/authorize?x=1');
  expect(() => safeAddress('javascript:alert(1)')).toThrow('no web address');
});

it('reads what the service returned', () => {
  const read = (text: string) => returned(new URLSearchParams(text));
  expect(read('namespace=x')).toBeUndefined();
  expect(read('code=c&state=s&iss=i')).toEqual({ code: 'c', state: 's', issuer: 'i', refusal: '' });
  expect(read('error=access_denied&error_description=no')?.refusal).toBe('access_denied: no');
});
