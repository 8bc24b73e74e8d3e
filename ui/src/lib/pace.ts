// When a list is read again: soon after a change, and not too often while changes go on.

/** Changes within this time are read together, in milliseconds. */
export const GATHER = 40;
/** The least pause between two reads of one list, in milliseconds. */
export const MIN_PAUSE = 300;
/** A list rests this many times longer than its read took. */
const REST = 5;

/** The pace of the reads of one list. All times are milliseconds of one clock. */
export class Pace {
  private free = 0;

  /** Returns the pause from a change until the read that shows the change. Later changes do not put the read off. */
  after(now: number): number {
    return Math.max(GATHER, this.free - now);
  }

  /** Notes a read that began and ended at these times. */
  read(begun: number, ended: number): void {
    this.free = ended + Math.max(MIN_PAUSE, REST * (ended - begun));
  }
}
