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
