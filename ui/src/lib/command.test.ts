import { expect, it } from 'vitest';
import { keepCommand, keptCommand, readCommand, USUAL } from './command';

it('reads a list of words', () => {
  expect(readCommand('["/bin/sh", "-l"]')).toEqual(['/bin/sh', '-l']);
  expect(readCommand(USUAL)).toHaveLength(3);
  for (const wrong of ['[]', '[1]', '{"a": 1}', '["a"']) expect(() => readCommand(wrong)).toThrow('list of words');
});

it('reads a command line', () => {
  expect(readCommand('/bin/bash')).toEqual(['/bin/bash']);
  expect(readCommand(' sh  -c "echo  \'a\'" ')).toEqual(['sh', '-c', "echo  'a'"]);
  expect(readCommand("a''b 'c d'")).toEqual(['ab', 'c d']);
  expect(() => readCommand('  ')).toThrow('missing');
  expect(() => readCommand("sh -c 'echo")).toThrow('does not end');
});

it('keeps a command for each task', () => {
  const kept = new Map<string, string>();
  const place = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  keepCommand('default/web/g/one', 'ls', place);
  keepCommand('default/web/g/two', 'top', place);
  expect(['one', 'two', 'three'].map((task) => keptCommand(`default/web/g/${task}`, place))).toEqual(['ls', 'top', USUAL]);
  keepCommand('default/web/g/one', USUAL, place);
  keepCommand('default/web/g/two', USUAL, place);
  expect(kept.size).toBe(0);
  place.setItem('caravanExecCommands', 'broken');
  expect(keptCommand('x', place)).toBe(USUAL);
});
