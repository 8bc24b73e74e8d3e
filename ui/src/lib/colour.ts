// The colours of a job file: comments, texts, numbers and names. They help to read and judge nothing.

export interface Piece {
  kind: '' | 'comment' | 'string' | 'number' | 'name';
  text: string;
}

/** Longer files have one colour. */
const MOST = 200_000;

const WORDS = /(#[^\n]*|\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|(?![\s\S])))|("(?:[^"\\\n]|\\.)*"?)|(\b\d+(?:\.\d+)?\b|\b(?:true|false|null)\b)|((?<=^[ \t]*)[A-Za-z_][\w-]*(?=[ \t]*[={"]))/gm;
const KINDS = ['comment', 'string', 'number', 'name'] as const;

/** Splits a file into pieces of one colour. */
export function coloured(text: string): Piece[] {
  if (text.length > MOST) return [{ kind: '', text }];
  const out: Piece[] = [];
  let end = 0;
  for (const found of text.matchAll(WORDS)) {
    if (found.index > end) out.push({ kind: '', text: text.slice(end, found.index) });
    const kind = KINDS[found.slice(1).findIndex((group) => group !== undefined)] ?? '';
    out.push({ kind, text: found[0] });
    end = found.index + found[0].length;
  }
  if (end < text.length) out.push({ kind: '', text: text.slice(end) });
  return out;
}
