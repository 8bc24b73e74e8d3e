import { expect, it } from 'vitest';
import { jsonMark, marked, offsets, readRefusal, type Diagnostic } from './problems';

const mark = (more: Partial<Diagnostic>): Diagnostic => ({
  Severity: 'error', Code: 'E0101', Summary: 's', Detail: '', Hint: '', File: 'job',
  StartLine: 1, StartColumn: 1, EndLine: 1, EndColumn: 2, ...more,
});

it('reads a refusal with marks, and one that is plain text', () => {
  expect(readRefusal('no right')).toEqual({ message: 'no right', marks: [], problems: [] });
  expect(readRefusal('"text"').message).toBe('"text"');
  const read = readRefusal(JSON.stringify({ Error: 'bad', CaravanDiagnostics: [mark({})] }));
  expect([read.message, read.marks.length, read.problems.length]).toEqual(['bad', 1, 0]);
});

it('finds the characters of a mark, whatever they are', () => {
  const text = 'a = 1\nb = "🚀" x\n';
  expect(offsets(text, mark({ StartLine: 2, StartColumn: 9, EndLine: 2, EndColumn: 10 }))).toEqual([15, 16]);
  expect(text.slice(15, 16)).toBe('x');
  expect(offsets(text, mark({ StartLine: 99, StartColumn: 99, EndLine: 99, EndColumn: 99 }))).toEqual([text.length, text.length]);
});

it('marks lines of one file', () => {
  expect([...marked([mark({ StartLine: 3 }), mark({ File: 'variables', StartLine: 4 })], 'job')]).toEqual([3]);
});

it('places an error of JSON', () => {
  expect(jsonMark('{\n "a": x}', 'Unexpected token at position 8')).toMatchObject({ StartLine: 2, StartColumn: 7 });
  expect(jsonMark('{', 'Unexpected end')).toBeUndefined();
});
