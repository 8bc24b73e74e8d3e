import { expect, it } from 'vitest';
import type { Job, Submission } from '../api/types';
import { isOver, restart } from './jobs';

const job = (more: object) => ({ ID: 'web', Status: 'running', Stop: false, JobModifyIndex: 7, ...more }) as Job;

it('tells jobs that can stop from those that can start', () => {
  expect(isOver(job({}))).toBe(false);
  expect(isOver(job({ Status: 'pending' }))).toBe(false);
  expect(isOver(job({ Stop: true }))).toBe(true);
  expect(isOver(job({ Status: 'dead' }))).toBe(true);
});

it('registers the job as it was, with its file', () => {
  const file = { Source: 'job "web" {}', Format: 'hcl2' } as Submission;
  expect(restart(job({ Stop: true }), file)).toMatchObject({ Job: { ID: 'web', Stop: false }, EnforceIndex: true, JobModifyIndex: 7, Submission: file });
  expect(restart(job({ Stop: true }), undefined)).not.toHaveProperty('Submission');
});
