import { expect, it } from 'vitest';
import { readCommand, USUAL } from './command';

it('reads a list of words', () => {
  expect(readCommand('["/bin/sh", "-l"]')).toEqual(['/bin/sh', '-l']);
  expect(readCommand(USUAL)).toHaveLength(3);
  for (const wrong of ['bash', '[]', '[1]', '{"a": 1}', '']) expect(() => readCommand(wrong)).toThrow('list of words');
});
