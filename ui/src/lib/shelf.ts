// Answers of pages that were left: a page that is shown again begins with them, and reads meanwhile.

import { concerns, lacks, type Indexes, type Interest, type Note } from './events';

/** The most answers that are kept: those of all main pages. */
export const KEPT = 40;
/** How long an answer is shown again after a change that the stream reported, and without its reports, in milliseconds. */
export const CHANGED = 10_000;
export const UNCOVERED = 5_000;

export interface Answered {
  interest: Interest;
  data: unknown;
  next: string;
  total: number | undefined;
  index: number;
  /** When the answer was read, in milliseconds. */
  at: number;
  /** When the first change after the answer was reported, in milliseconds; absent without one. */
  changed?: number;
}

/** Keeps the newest answers by the names of their queries. */
export class Shelf {
  private readonly kept = new Map<string, Answered>();

  put(name: string, answer: Answered): void {
    this.kept.delete(name);
    this.kept.set(name, answer);
    const [oldest] = this.kept.keys();
    if (this.kept.size > KEPT && oldest !== undefined) this.kept.delete(oldest);
  }

  /** Returns an answer that a page may begin with, because it was current moments ago. `isCovered`: the stream reports every
   * change of its topics. */
  take(name: string, now: number, isCovered: boolean): Answered | undefined {
    const answer = this.kept.get(name);
    if (!answer) return undefined;
    const covered = isCovered && answer.interest.topics.length > 0;
    const isFresh = covered ? answer.changed === undefined || now - answer.changed <= CHANGED : now - answer.at <= UNCOVERED;
    if (isFresh) return answer;
    this.kept.delete(name);
    return undefined;
  }

  /** Notes which answers lack changes. */
  changed(notes: Note[], now: number): void {
    for (const answer of this.kept.values()) {
      if (answer.changed === undefined && notes.some((note) => concerns(answer.interest, note, answer.index))) answer.changed = now;
    }
  }

  /** Drops the answers that lack changes from before the stream. */
  begun(indexes: Indexes): void {
    for (const [name, answer] of this.kept) {
      if (answer.interest.reasons || lacks(answer.interest, indexes, answer.index)) this.kept.delete(name);
    }
  }

  /** Drops everything: the user wrote, or is another one. */
  clear(): void {
    this.kept.clear();
  }
}

/** The shelf of the page. */
export const shelf = new Shelf();
