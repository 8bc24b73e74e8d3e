import { expect, it } from 'vitest';
import type { Capabilities } from '../api/types';
import { fits, lacks, lacksEverywhere, lacksLevel, lacksSomeVariable, lacksTerminal, lacksVariable } from './rights';

const own: Capabilities = {
  Management: false,
  Namespaces: { team: ['read-job', 'submit-job'] },
  Variables: {
    team: [
      { Path: 'app/secret', Capabilities: ['deny'] },
      { Path: 'app/*', Capabilities: ['list', 'write'] },
      { Path: '*', Capabilities: ['list', 'destroy'] },
    ],
    quiet: [{ Path: '*', Capabilities: ['list', 'read'] }],
  },
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
  const rights = { Management: false, Namespaces: { a: ['list-jobs'], b: ['submit-job'] }, Variables: {}, Node: '', Agent: '', Operator: '', Plugin: '' };
  expect(lacksEverywhere(rights, ['register-job', 'submit-job'])).toBe('');
  expect(lacksEverywhere(rights, ['csi-write-volume'])).toBe('csi-write-volume');
  expect(lacksEverywhere(undefined, ['x'])).toBe('');
});

it('wants more for a terminal in tasks without isolation', () => {
  const exec = { ...own, Namespaces: { team: ['alloc-exec'], ops: ['alloc-exec', 'alloc-node-exec'] } };
  expect(lacksTerminal(own, 'team', ['docker'])).toBe('alloc-exec');
  expect(lacksTerminal(exec, 'team', ['docker'])).toBe('');
  expect(lacksTerminal(exec, 'team', ['docker', 'raw_exec'])).toBe('');
  expect(lacksTerminal(exec, 'team', ['raw_exec'])).toBe('alloc-node-exec');
  expect(lacksTerminal(exec, 'ops', ['raw_exec'])).toBe('');
  expect(lacksTerminal(exec, 'team', [])).toBe('');
});

it('matches paths as the servers do', () => {
  for (const [pattern, path, is] of [
    ['*', 'a/b', true],
    ['a/*', 'a/b/c', true],
    ['a/*', 'a', false],
    ['a.b', 'axb', false],
    ['*/b', 'a/b', true],
    ['a*a', 'a', false],
  ] as const) {
    expect(fits(pattern, path), `${pattern} ${path}`).toBe(is);
  }
});

it('decides about a variable by the first rule that matches', () => {
  expect(lacksVariable(own, 'team', 'app/x', 'write')).toBe('');
  expect(lacksVariable(own, 'team', 'app/x', 'destroy')).toBe('variables destroy');
  expect(lacksVariable(own, 'team', 'app/secret', 'write')).toBe('variables write');
  expect(lacksVariable(own, 'team', 'other', 'destroy')).toBe('');
  expect(lacksVariable(own, 'none', 'other', 'write')).toBe('variables write');
  expect(lacksVariable({ ...own, Management: true }, 'none', 'x', 'write')).toBe('');
  expect(lacksVariable(undefined, 'none', 'x', 'write')).toBe('');
  expect(lacksSomeVariable(own, 'team')).toBe('');
  expect(lacksSomeVariable(own, 'quiet')).toBe('variables write');
  expect(lacksSomeVariable(own, '*')).toBe('');
});
