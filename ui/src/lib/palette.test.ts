import { expect, it } from 'vitest';
import { byId, distinct, mayBeId, named, rankEntries, score } from './palette';

it('prefers the whole name, its beginning, the beginning of a word', () => {
  const scores = ['web', 'website', 'my-web', 'cobweb', 'wide-ebb', 'other'].map((name) => score(name, 'WEB'));
  expect(scores).toEqual([100, 80, 70, 50, 20, 0]);
});

it('keeps the order of pages without a text', () => {
  const entries = ['Overview', 'Jobs'].map((name) => ({ kind: 'page', name, path: name }));
  expect(rankEntries(entries, ' ').map((entry) => entry.name)).toEqual(['Overview', 'Jobs']);
  expect(rankEntries(entries, 'job').map((entry) => entry.name)).toEqual(['Jobs']);
});

it('finds objects by the beginnings of their ids', () => {
  const [alloc, other] = ['1a2b3c4d-0000-1111-2222-333344445555', '99990000-0000-1111-2222-333344445555'];
  expect([mayBeId('1a2'), mayBeId('1A2b'), mayBeId(alloc), mayBeId('web1')]).toEqual([false, true, true, false]);
  const matches = { allocs: [alloc], nodes: [other], evals: null, deployment: [alloc], jobs: ['1a2b'] };
  const found = byId(matches, '1A2B');
  expect(found.map((entry) => `${entry.kind} ${entry.path}`)).toEqual([`allocation allocations/${alloc}`, `deployment deployments/${alloc}`]);
  expect(rankEntries(found, '1A2B')).toHaveLength(2);
});

it('offers a node once that its name and its id find', () => {
  const names = named({ nodes: [{ ID: 'beef01', Scope: ['beef1234-0'] }], jobs: [{ ID: 'web', Scope: ['team', 'web'] }] });
  const all = distinct([...names, ...byId({ nodes: ['beef1234-0'] }, 'beef')]);
  expect(all.map((entry) => `${entry.kind} ${entry.name} ${entry.path}`)).toEqual(['job web jobs/web@team', 'node beef01 clients/beef1234-0']);
});
