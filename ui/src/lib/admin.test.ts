import { expect, it } from 'vitest';
import { KINDS, nanos, spanText, toBody, toForm } from './admin';

const kind = (name: string) => KINDS.find((row) => row.name === name)!;

it('writes a form over an object and keeps what the form does not show', () => {
  const before = { Name: 'team', Description: 'old', Quota: 'q', Capabilities: null, Meta: { a: '1' } };
  const form = toForm(kind('namespaces'), before);
  expect(form.Meta).toBe('a=1');
  form.Description = ' new ';
  form.Meta = 'a=2\nb = x=y';
  expect(toBody(kind('namespaces'), form, before)).toEqual({
    Name: 'team', Description: 'new', Quota: 'q', Capabilities: null, Meta: { a: '2', b: 'x=y' },
  });
});

it('links roles and policies as the API has them', () => {
  const form = { Name: 'ops', Type: 'client', Policies: 'read\n\nwrite', Roles: 'admin', Global: '', ExpirationTTL: '1h30m' };
  expect(toBody(kind('tokens'), form, undefined)).toEqual({
    Name: 'ops', Type: 'client', Policies: ['read', 'write'], Roles: [{ Name: 'admin' }], Global: false, ExpirationTTL: 5400e9,
  });
  const role = toBody(kind('roles'), { Name: 'r', Description: '', Policies: 'read' }, undefined);
  expect(role.Policies).toEqual([{ Name: 'read' }]);
});

it('names the field that is wrong', () => {
  expect(() => toBody(kind('policies'), { Name: 'p', Rules: ' ' }, undefined)).toThrow('Rules is missing');
  expect(() => toBody(kind('auth-methods'), { Name: 'm', MaxTokenTTL: 'soon', Config: '{}' }, undefined)).toThrow('Tokens end after "soon"');
  expect(() => toBody(kind('auth-methods'), { Name: 'm', MaxTokenTTL: '1h', Config: '{' }, undefined)).toThrow('Configuration is no JSON');
  expect(() => toBody(kind('namespaces'), { Name: 'n', Meta: 'x' }, undefined)).toThrow('"x" is not name=value');
});

it('reads and writes spans', () => {
  for (const text of ['90s', '15m', '1h30m']) expect(spanText(nanos(text, 'x'))).toBe(text.replace('90s', '1m30s'));
  expect(spanText(0)).toBe('');
  expect(spanText('1h0m0s')).toBe('1h0m0s');
});

it('sends no secret back', () => {
  const body = toBody(kind('tokens'), { Name: 'x', Policies: 'p' }, { Name: 'x', SecretID: 's', Type: 'client', Policies: [] });
  expect(body.SecretID).toBeUndefined();
  expect(body.Type).toBe('client');
});
