// The evaluations that one evaluation is linked with.

import type { EvalStub } from '../api/generated';
import type { Evaluation } from '../api/types';

/** An evaluation that is linked with another one. `stub` is absent if the servers have removed it. */
export interface Link {
  id: string;
  /** What it is for the other one. */
  word: 'previous' | 'next' | 'blocked' | 'related';
  stub: EvalStub | undefined;
}

/** Returns what an evaluation is linked with, oldest first. Removed evaluations stand where their word suggests. */
export function chain(of: Evaluation): Link[] {
  const stubs = new Map((of.RelatedEvals ?? []).filter((row) => row.ID !== of.ID).map((row) => [row.ID, row]));
  const words = new Map<string, Link['word']>();
  if (of.PreviousEval) words.set(of.PreviousEval, 'previous');
  if (of.NextEval) words.set(of.NextEval, 'next');
  if (of.BlockedEval) words.set(of.BlockedEval, 'blocked');
  const ids = [...new Set([...words.keys(), ...stubs.keys()])];
  const place = (link: Link) => link.stub?.CreateIndex ?? (link.word === 'previous' ? 0 : Infinity);
  return ids
    .map((id): Link => ({ id, word: words.get(id) ?? 'related', stub: stubs.get(id) }))
    .toSorted((one, two) => Math.sign(place(one) - place(two)) || 0);
}
