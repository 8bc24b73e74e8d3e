import { expect, it } from 'vitest';
import { coloured } from './colour';

it('colours the parts of a job file', () => {
  const text = 'job "web" { # a job\n  count = 3\n  on = true // yes\n  /* two\n lines */ x\n}\n';
  const pieces = coloured(text);
  expect(pieces.map((piece) => piece.text).join('')).toBe(text);
  const of = (kind: string) => pieces.filter((piece) => piece.kind === kind).map((piece) => piece.text);
  expect(of('comment')).toEqual(['# a job', '// yes', '/* two\n lines */']);
  expect(of('string')).toEqual(['"web"']);
  expect(of('number')).toEqual(['3', 'true']);
  expect(of('name')).toEqual(['job', 'count', 'on']);
});

it('loses nothing of a file that is not whole', () => {
  for (const text of ['', '"open', '/* open', 'a "b\\', '{"Job": {"ID": "x"}}', 'x'.repeat(300_000)]) {
    expect(coloured(text).map((piece) => piece.text).join('')).toBe(text);
  }
});
