import { expect, it } from 'vitest';
import { jsonMark, jsonPlace, marked, nextMark, offsets, problemMarks, readRefusal, type Diagnostic } from './problems';

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
  const found = marked(
    [
      mark({ StartLine: 3, Severity: 'warning', Summary: 'old' }),
      mark({ StartLine: 3, Summary: 'wrong' }),
      mark({ File: 'variables', StartLine: 4 }),
      mark({ StartLine: 0 }),
    ],
    'job',
  );
  expect([...found]).toEqual([[3, { severity: 'error', text: 'old · wrong' }]]);
});

it('places an error of JSON', () => {
  expect(jsonMark('{\n "a": x}', 'Unexpected token at position 8')).toMatchObject({ StartLine: 2, StartColumn: 7 });
  expect(jsonMark('{', 'Unexpected end')).toBeUndefined();
});

it('places problems of a job in JSON', () => {
  const source = '{"Job": {"ID": "a", "TaskGroups": [{"Name": "x"}, {"Name": "g", "Volumes": {"a.b": {"Source": "s,]}"}}, "Tasks": [{"Resources": {"CPU": 0}}]}]}}';
  const at = (path: string) => {
    const place = jsonPlace(source, path);
    return place && source.slice(...place);
  };
  expect(at('ID')).toBe('"a"');
  expect(at('TaskGroups[1].Tasks[0].Resources.CPU')).toBe('0');
  expect(at('TaskGroups[1].Volumes["a.b"].Source')).toBe('"s,]}"');
  expect(at('taskgroups[0].name')).toBe('"x"');
  // What is missing leads to the object that lacks it.
  expect(at('TaskGroups[0].Tasks[0].Driver')).toBe('{"Name": "x"}');
  expect(at('')).toBe(source.slice(8, -1));
  expect(jsonPlace('[]', 'ID')).toBeUndefined();
  expect(jsonPlace('{"ID": ', 'ID')).toBeDefined();
  const [mark] = problemMarks([{ Path: 'Priority', Code: 'c', Text: 't', Severity: 'error' }], '{\n  "Priority": 500\n}', true);
  expect(mark).toMatchObject({ StartLine: 2, StartColumn: 15, EndLine: 2, EndColumn: 18, Summary: 't', Detail: 'Priority' });
});

it('leads from one problem to the next, around the end', () => {
  const marks = [mark({ StartLine: 9 }), mark({ StartLine: 0 }), mark({ StartLine: 3 })];
  expect(nextMark(marks, 1, 1)?.StartLine).toBe(3);
  expect(nextMark(marks, 3, 1)?.StartLine).toBe(9);
  expect(nextMark(marks, 9, 1)?.StartLine).toBe(3);
  expect(nextMark(marks, 9, -1)?.StartLine).toBe(3);
  expect(nextMark(marks, 3, -1)?.StartLine).toBe(9);
  expect(nextMark([], 3, -1)).toBeUndefined();
});
