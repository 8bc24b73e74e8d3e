import { expect, it } from 'vitest';
import type { Capabilities } from '../api/types';
import { lacks, lacksEverywhere, lacksLevel } from './rights';

const own: Capabilities = {
  Management: false,
  Namespaces: { team: ['read-job', 'submit-job'] },
  Node: 'read',
  Agent: '',
  Operator: 'write',
  Plugin: 'list',
};

it('names the capability that is missing', () => {
  expect(lacks(own, 'team', ['deregister-job', 'submit-job'])).toBe('');
  expect(lacks(own, 'team', ['alloc-exec'])).toBe('alloc-exec');
  expect(lacks(own, 'other', ['read-job'])).toBe('read-job');
  expect(lacks({ ...own, Management: true }, 'other', ['read-job'])).toBe('');
  expect(lacks(undefined, 'other', ['read-job'])).toBe('');
});

it('compares levels', () => {
  expect(lacksLevel(own, 'Node', 'read')).toBe('');
  expect(lacksLevel(own, 'Node', 'write')).toBe('node:write');
  expect(lacksLevel(own, 'Agent', 'read')).toBe('agent:read');
  expect(lacksLevel(own, 'Operator', 'write')).toBe('');
});

it('finds a capability in any namespace', () => {
  const rights = { Management: false, Namespaces: { a: ['list-jobs'], b: ['submit-job'] }, Node: '', Agent: '', Operator: '', Plugin: '' };
  expect(lacksEverywhere(rights, ['register-job', 'submit-job'])).toBe('');
  expect(lacksEverywhere(rights, ['csi-write-volume'])).toBe('csi-write-volume');
  expect(lacksEverywhere(undefined, ['x'])).toBe('');
});
