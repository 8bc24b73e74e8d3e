// Problems of a job file, as the servers report them.

/** A problem of a file with its place. Lines and columns count from 1; columns count characters. */
export interface Diagnostic {
  Severity: string;
  Code: string;
  Summary: string;
  Detail: string;
  Hint: string;
  /** `job` or `variables`. */
  File: string;
  StartLine: number;
  StartColumn: number;
  EndLine: number;
  EndColumn: number;
}

/** A problem of a job with the setting that it names. */
export interface JobProblem {
  Path: string;
  Code: string;
  Text: string;
  Severity: string;
}

/** Reads the refusal of a job. A refusal that is plain text is its only message. */
export function readRefusal(text: string): { message: string; marks: Diagnostic[]; problems: JobProblem[] } {
  try {
    const raw = JSON.parse(text) as { Error?: string; CaravanDiagnostics?: Diagnostic[] | null; CaravanProblems?: JobProblem[] | null };
    if (typeof raw === 'object' && raw !== null && typeof raw.Error === 'string') {
      return { message: raw.Error, marks: raw.CaravanDiagnostics ?? [], problems: raw.CaravanProblems ?? [] };
    }
  } catch {
    // Not JSON.
  }
  return { message: text, marks: [], problems: [] };
}

/** Returns the place of an error that `JSON.parse` reports, if it names one. */
export function jsonMark(source: string, message: string): Diagnostic | undefined {
  const found = /position (\d+)/.exec(message);
  if (!found) return undefined;
  const before = source.slice(0, Number(found[1])).split('\n');
  const line = before.length;
  const column = (before.at(-1)?.length ?? 0) + 1;
  return {
    Severity: 'error', Code: '', Summary: message, Detail: '', Hint: '', File: 'job',
    StartLine: line, StartColumn: column, EndLine: line, EndColumn: column + 1,
  };
}

/** Returns the offsets in a text that a mark covers; at least one character, if there is one. */
export function offsets(text: string, mark: Diagnostic): [number, number] {
  const lines = text.split('\n');
  const place = (line: number, column: number) => {
    const row = Math.min(Math.max(1, line), lines.length);
    const before = lines.slice(0, row - 1).reduce((sum, one) => sum + one.length + 1, 0);
    // Columns count characters; a text counts UTF-16 units.
    const units = [...(lines[row - 1] ?? '')].slice(0, Math.max(0, column - 1)).join('').length;
    return before + units;
  };
  const start = place(mark.StartLine, mark.StartColumn);
  const end = place(mark.EndLine, mark.EndColumn);
  return [start, Math.max(end, Math.min(start + 1, text.length))];
}

/** Returns the lines that have marks. */
export function marked(marks: Diagnostic[], file: string): Set<number> {
  return new Set(marks.filter((mark) => mark.File === file && mark.StartLine > 0).map((mark) => mark.StartLine));
}
