// Answers of pages that were left: a page that is shown again begins with them, and reads meanwhile.

import { concerns, lacks, type Indexes, type Interest, type Note } from './events';

/** The most answers that are kept. */
export const KEPT = 12;
/** How long an answer counts as current while the stream reports changes, and without its reports, in milliseconds. */
export const COVERED = 60_000;
export const UNCOVERED = 5_000;

export interface Answered {
  interest: Interest;
  data: unknown;
  next: string;
  total: number | undefined;
  index: number;
  /** When the answer was read, in milliseconds. */
  at: number;
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

  /** Returns an answer that is still current. `isCovered`: the stream reports every change of its topics. */
  take(name: string, now: number, isCovered: boolean): Answered | undefined {
    const answer = this.kept.get(name);
    if (!answer) return undefined;
    const covered = isCovered && answer.interest.topics.length > 0;
    if (now - answer.at <= (covered ? COVERED : UNCOVERED)) return answer;
    this.kept.delete(name);
    return undefined;
  }

  /** Drops the answers that changes concern. */
  changed(notes: Note[]): void {
    for (const [name, answer] of this.kept) {
      if (notes.some((note) => concerns(answer.interest, note, answer.index))) this.kept.delete(name);
    }
  }

  /** Drops the answers that lack changes from before the stream. */
  begun(indexes: Indexes): void {
    for (const [name, answer] of this.kept) {
      if (lacks(answer.interest, indexes, answer.index)) this.kept.delete(name);
    }
  }

  /** Drops everything: the user wrote, or is another one. */
  clear(): void {
    this.kept.clear();
  }
}

/** The shelf of the page. */
export const shelf = new Shelf();
