import { expect, it } from 'vitest';
import { templates, wrongName } from './templates';

it('finds templates among variables', () => {
  const rows = ['nomad/job-templates/web', 'nomad/job-templates', 'nomad/jobs/web', 'nomad/job-templates/team/db'];
  expect(templates(rows.map((Path) => ({ Path, Namespace: 'default' }))).map((row) => row.name)).toEqual(['web', 'team/db']);
});

it('refuses names that variables cannot have', () => {
  expect(wrongName('web-1')).toBe('');
  for (const name of ['', 'a b', '/a', 'a//b', 'a/b', 'ä']) expect(wrongName(name)).not.toBe('');
});
