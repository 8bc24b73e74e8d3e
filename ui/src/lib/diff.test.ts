import { expect, it } from 'vitest';
import { lines, type ObjectDiff } from './diff';

it('shows what changes, each object before its parts', () => {
  const diff: ObjectDiff = {
    Type: 'Edited',
    Name: '',
    ID: 'web',
    Fields: [
      { Type: 'Edited', Name: 'Priority', Old: '50', New: '60' },
      { Type: 'None', Name: 'Region', Old: 'x', New: 'x' },
    ],
    TaskGroups: [
      {
        Type: 'Edited',
        Name: 'api',
        Updates: { 'create': 1 },
        Tasks: [{ Type: 'Added', Name: 't', Annotations: ['forces create'], Fields: [{ Type: 'Added', Name: 'Driver', Old: '', New: 'exec' }] }],
      },
      { Type: 'None', Name: 'other' },
    ],
  };
  expect(lines(diff).map((line) => `${'  '.repeat(line.depth)}${line.sign} ${line.text}`)).toEqual([
    '± job web',
    '  ± Priority: "50" → "60"',
    '  ± group api (1 create)',
    '    + task t (forces create)',
    '      + Driver: "exec"',
  ]);
});
