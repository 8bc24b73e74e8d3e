// The kept part of a log: the newest lines up to a limit.

/** The most lines that are kept. */
export const MAX_LINES = 200_000;
/** The most characters that are kept. */
export const MAX_CHARS = 10 * 1024 * 1024;

/** Lines in the order of their arrival; the oldest ones go first. */
export class Lines {
  private kept: string[] = [];
  private open = '';
  private chars = 0;
  /** The number of the first kept line. */
  first = 1;

  constructor(
    private readonly maxLines = MAX_LINES,
    private readonly maxChars = MAX_CHARS,
  ) {}

  /** Adds text, whose last line may continue with the next text. */
  add(text: string): void {
    const parts = (this.open + text).split('\n');
    this.open = parts.pop() ?? '';
    for (const part of parts) {
      const line = part.endsWith('\r') ? part.slice(0, -1) : part;
      this.kept.push(line);
      this.chars += line.length;
    }
    let gone = 0;
    while (this.kept.length - gone > this.maxLines || (this.chars > this.maxChars && gone < this.kept.length)) {
      this.chars -= this.kept[gone]?.length ?? 0;
      gone += 1;
    }
    if (gone > 0) {
      this.kept.splice(0, gone);
      this.first += gone;
    }
    // A line without an end must not grow without a limit.
    if (this.open.length > this.maxChars) this.open = this.open.slice(-this.maxChars);
  }

  /** Returns all lines, the unfinished one included. */
  all(): string[] {
    return this.open === '' ? this.kept : [...this.kept, this.open];
  }

  clear(): void {
    this.kept = [];
    this.open = '';
    this.chars = 0;
    this.first = 1;
  }
}

/** Makes the test of a search: `/.../` is a regular expression, other text is found as it is, in any case. */
export function matcher(search: string): ((line: string) => boolean) | null {
  if (search === '') return null;
  const expression = /^\/(.+)\/(i?)$/.exec(search);
  if (expression?.[1] !== undefined) {
    try {
      const desired = new RegExp(expression[1], expression[2]);
      return (line) => desired.test(line);
    } catch {
      return () => false;
    }
  }
  const lower = search.toLowerCase();
  return (line) => line.toLowerCase().includes(lower);
}

/** The lines after a place that tell it from others. */
const RUN = 200;

/**
 * Finds the line `at` of `old` in `now`, the same log read again from an earlier place. New lines may follow; lines of
 * several outputs may come in another order.
 *
 * `exact`: all lines that follow are the same, so that more text does not lead to another result.
 */
export function again(old: string[], at: number, now: string[]): { row: number; exact: boolean } | undefined {
  const run = old.slice(at, at + RUN);
  const line = run[0];
  if (line === undefined) return undefined;
  for (let row = now.length - run.length; row >= 0; row -= 1) {
    if (now[row] === line && run.every((text, next) => now[row + next] === text)) return { row, exact: true };
  }
  // The last of several equal lines is the last one there too.
  let equal = 0;
  for (let row = at; row < old.length; row += 1) if (old[row] === line) equal += 1;
  for (let row = now.length - 1; row >= 0; row -= 1) {
    if (now[row] === line) equal -= 1;
    if (equal === 0) return { row, exact: false };
  }
  return undefined;
}

/** Returns the first place in numbers in ascending order that is not below a number; the length if there is none. */
export function placeOf(numbers: { number: number }[], number: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((numbers[middle]?.number ?? 0) < number) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns the number of the hit after (`by` > 0) or before the chosen one, over the end too. 0 chooses none so far. */
export function nextHit(hits: { number: number }[], chosen: number, by: number): number {
  const at = placeOf(hits, chosen);
  const after = hits[at]?.number === chosen ? at + 1 : at;
  const row = by > 0 ? after % hits.length : (at - 1 + hits.length) % hits.length;
  return hits[row]?.number ?? 0;
}
