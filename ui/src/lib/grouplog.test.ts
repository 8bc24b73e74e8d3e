import { expect, it } from 'vitest';
import { GroupLog, label, summary, type Source } from './grouplog';
import { pieces, plain } from './sgr';

const source = (id: number, more: Partial<Source> = {}): Source => ({
  ID: id,
  AllocID: `${id}2345678-abcd`,
  AllocName: `web.g[${id}]`,
  TaskGroup: 'g',
  Task: 'server',
  Type: 'stdout',
  NodeName: 'n1',
  State: 'open',
  ...more,
});
const listed = (...Sources: Source[]) => JSON.stringify({ Sources, Omitted: { Running: 2, Ended: 0 }, Most: 16 });

it('labels lines by allocation, task and output', () => {
  const log = new GroupLog(true);
  expect(log.take(listed(source(1), source(2, { Type: 'stderr' })))).toEqual([]);
  expect(log.take('{}')).toEqual([]);
  const [line = ''] = log.take(JSON.stringify({ ID: 2, Lines: ['it \u001b[31mfailed'] }));
  expect(plain(line)).toBe('22345678[2] server stderr it failed');
  expect(pieces(line).map((piece) => piece.classes)).toEqual(['bold c2', '', 'c1']);
  expect(label(source(1), false)).toBe('12345678[1] server');
  expect(label(source(1, { AllocName: 'odd' }), false)).toBe('12345678 server');
});

it('keeps the colour of an output, and distinguishes outputs', () => {
  const log = new GroupLog(false);
  log.take(listed(source(1), source(2)));
  const before = log.colour(source(2));
  log.take(listed(source(2), source(3)));
  expect(log.colour(source(2))).toBe(before);
  expect(new Set([1, 2, 3].map((id) => log.colour(source(id)))).size).toBe(3);
  // Both outputs of a task have one colour: their label differs.
  expect(log.colour(source(2, { Type: 'stderr' }))).toBe(before);
  expect([1, 2, 3, 4, 5, 6].map((id) => log.colour(source(id)))).not.toContain('c1');
});

it('drops what it cannot read', () => {
  const log = new GroupLog(false);
  expect(log.take('{"ID":7,"Lines":["x"]}')).toEqual([]);
  expect(log.take('<html>')).toEqual([]);
});

it('says what is followed and what is left out', () => {
  const none = { Running: 0, Ended: 0 };
  expect(summary([], none, 16)).toContain('No task has started');
  expect(summary([source(1), source(2, { State: 'ended' })], none, 16)).toBe('1 output followed, 1 ended.');
  expect(summary([source(1)], { Running: 2, Ended: 5 }, 16)).toBe(
    '1 output followed. 2 running outputs are left out: at most 16 are followed at once. Choose a group, a task or one output.',
  );
  expect(summary([source(1, { State: 'failed', Reason: 'no path' })], { Running: 0, Ended: 3 }, 16)).toBe(
    '0 outputs followed, 1 not readable. 3 outputs of ended tasks left out.',
  );
});
