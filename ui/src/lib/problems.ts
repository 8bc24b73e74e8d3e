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
  /** The place in the submitted file, if the servers found it. */
  StartLine?: number;
  StartColumn?: number;
  EndLine?: number;
  EndColumn?: number;
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

/** Returns the offsets of the value at a path such as `TaskGroups[0].Volumes["data"].Source` in JSON text, or of the innermost
 * value on the way to it. Keys are compared without regard to case, as the servers do. */
export function jsonPlace(source: string, path: string): [number, number] | undefined {
  const steps = [...path.matchAll(/\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.[\]]+)/g)].map(
    ([, key, index, field]) => (index === undefined ? (key ?? field ?? '') : Number(index)),
  );
  let at = 0;
  const space = () => {
    while (/\s/.test(source[at] ?? '')) at += 1;
  };
  const text = () => {
    const from = at;
    at += 1;
    while (at < source.length && source[at] !== '"') at += source[at] === '\\' ? 2 : 1;
    at += 1;
    return source.slice(from + 1, at - 1);
  };
  /** Passes over a value, and returns its end. */
  const skip = () => {
    space();
    let depth = 0;
    do {
      const sign = source[at] ?? '';
      if (sign === '"') text();
      else {
        if ('{['.includes(sign)) depth += 1;
        else if ('}]'.includes(sign)) depth -= 1;
        at += 1;
        // A plain word ends before a comma or a bracket.
        if (depth === 0 && !'}]'.includes(sign)) while (at < source.length && !/[\s,}\]]/.test(source[at] ?? '')) at += 1;
      }
    } while (depth > 0 && at < source.length);
    return at;
  };
  /** Moves to the value of a step; returns whether there is one. */
  const enter = (step: string | number): boolean => {
    space();
    const sign = source[at];
    if (sign !== (typeof step === 'number' ? '[' : '{')) return false;
    at += 1;
    for (let index = 0; at < source.length; index += 1) {
      space();
      if ('}]'.includes(source[at] ?? '}')) return false;
      if (typeof step === 'string') {
        const key = text();
        space();
        if (source[at] === ':') at += 1;
        space();
        if (key.toLowerCase() === step.toLowerCase()) return true;
      } else if (index === step) return true;
      skip();
      space();
      if (source[at] === ',') at += 1;
    }
    return false;
  };
  space();
  if (source[at] !== '{') return undefined;
  const whole = at;
  // The job may stand alone, or below `Job` as in requests.
  if (!enter('Job')) at = whole;
  let found = at;
  for (const step of steps) {
    at = found;
    if (!enter(step)) break;
    found = at;
  }
  at = found;
  return [found, Math.min(skip(), source.length)];
}

/** Returns line and column of an offset, both from 1; columns count characters. */
function lineColumn(source: string, offset: number): [number, number] {
  const before = source.slice(0, offset).split('\n');
  return [before.length, [...(before.at(-1) ?? '')].length + 1];
}

/** Returns problems as marks in the file; `StartLine` is 0 where the place is not known. */
export function problemMarks(problems: JobProblem[], source: string, isJson: boolean): Diagnostic[] {
  return problems.map((problem) => {
    const mark: Diagnostic = {
      Severity: problem.Severity, Code: problem.Code, Summary: problem.Text, Detail: problem.Path, Hint: '', File: 'job',
      StartLine: problem.StartLine ?? 0, StartColumn: problem.StartColumn ?? 0,
      EndLine: problem.EndLine ?? 0, EndColumn: problem.EndColumn ?? 0,
    };
    const place = isJson && !mark.StartLine ? jsonPlace(source, problem.Path) : undefined;
    if (place) {
      [mark.StartLine, mark.StartColumn] = lineColumn(source, place[0]);
      [mark.EndLine, mark.EndColumn] = lineColumn(source, place[1]);
    }
    return mark;
  });
}

/** Returns the next mark after a line, or the one before it, around the ends; those without a place are passed over. */
export function nextMark(marks: Diagnostic[], line: number, by: 1 | -1): Diagnostic | undefined {
  const placed = marks.filter((mark) => mark.StartLine > 0).toSorted((one, two) => one.StartLine - two.StartLine || one.StartColumn - two.StartColumn);
  if (by > 0) return placed.find((mark) => mark.StartLine > line) ?? placed[0];
  return placed.findLast((mark) => mark.StartLine < line) ?? placed.at(-1);
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

/** Returns the lines that have marks, each with its texts and the worst severity. */
export function marked(marks: Diagnostic[], file: string): Map<number, { severity: string; text: string }> {
  const lines = new Map<number, { severity: string; text: string }>();
  for (const mark of marks) {
    if (mark.File !== file || mark.StartLine <= 0) continue;
    const before = lines.get(mark.StartLine);
    lines.set(mark.StartLine, {
      severity: before?.severity === 'error' || mark.Severity === 'error' ? 'error' : mark.Severity,
      text: before ? `${before.text} · ${mark.Summary}` : mark.Summary,
    });
  }
  return lines;
}
