// The description of a job: text blocks, lists, code and links of Markdown; everything else stays text.

export interface Piece {
  text: string;
  /** An address of the web; absent for plain text. */
  href?: string;
  code?: boolean;
}

export interface TextBlock {
  kind: 'heading' | 'text' | 'list' | 'code';
  /** One entry for each item of a list, otherwise one. */
  rows: Piece[][];
}

/** Returns an address that a link may have: of the web only. */
export function webAddress(text: string): string | undefined {
  try {
    const url = new URL(text);
    return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : undefined;
  } catch {
    return undefined;
  }
}

/** Splits a line into text, code and links. */
export function inline(line: string): Piece[] {
  const out: Piece[] = [];
  let rest = 0;
  for (const found of line.matchAll(/`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)/g)) {
    if (found.index > rest) out.push({ text: line.slice(rest, found.index) });
    const href = found[3] === undefined ? undefined : webAddress(found[3]);
    if (found[1] !== undefined) out.push({ text: found[1], code: true });
    else out.push(href ? { text: found[2] ?? '', href } : { text: found[0] });
    rest = found.index + found[0].length;
  }
  if (rest < line.length) out.push({ text: line.slice(rest) });
  return out;
}

/** Returns the blocks of a text. */
export function blocks(text: string): TextBlock[] {
  const out: TextBlock[] = [];
  let code: string[] | undefined;
  let open: TextBlock | undefined;
  for (const line of text.split(/\r?\n/)) {
    if (/^\s*```/.test(line)) {
      if (code) out.push({ kind: 'code', rows: [[{ text: code.join('\n') }]] });
      code = code ? undefined : [];
      open = undefined;
      continue;
    }
    if (code) {
      code.push(line);
      continue;
    }
    const heading = /^#{1,6}\s+(.*)$/.exec(line);
    const item = /^\s*(?:[-*+]|\d+\.)\s+(.*)$/.exec(line);
    if (line.trim() === '') open = undefined;
    else if (heading) {
      out.push({ kind: 'heading', rows: [inline(heading[1] ?? '')] });
      open = undefined;
    } else if (item) {
      if (open?.kind !== 'list') out.push((open = { kind: 'list', rows: [] }));
      open.rows.push(inline(item[1] ?? ''));
    } else if (open) {
      // The line continues the block.
      open.rows.at(-1)?.push({ text: ' ' }, ...inline(line.trim()));
    } else out.push((open = { kind: 'text', rows: [inline(line.trim())] }));
  }
  if (code) out.push({ kind: 'code', rows: [[{ text: code.join('\n') }]] });
  return out;
}
