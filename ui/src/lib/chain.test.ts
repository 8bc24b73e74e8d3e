import { expect, it } from 'vitest';
import type { EvalStub } from '../api/generated';
import type { Evaluation } from '../api/types';
import { chain } from './chain';

const stub = (ID: string, CreateIndex: number) => ({ ID, CreateIndex, Status: 'complete' }) as EvalStub;
const words = (of: object) => chain({ ID: 'own', ...of } as Evaluation).map((link) => `${link.word} ${link.id}${link.stub ? '' : ' gone'}`);

it('orders the linked evaluations by age and names what they are', () => {
  const RelatedEvals = [stub('after', 9), stub('own', 5), stub('waits', 7), stub('before', 3), stub('first', 1)];
  expect(words({ PreviousEval: 'before', NextEval: 'after', BlockedEval: 'waits', RelatedEvals })).toEqual([
    'related first',
    'previous before',
    'blocked waits',
    'next after',
  ]);
});

it('keeps links to evaluations that were removed', () => {
  expect(words({ PreviousEval: 'before', BlockedEval: 'waits', RelatedEvals: [stub('x', 4)] })).toEqual(['previous before gone', 'related x', 'blocked waits gone']);
  expect(words({ PreviousEval: '', NextEval: '', BlockedEval: '' })).toEqual([]);
});
