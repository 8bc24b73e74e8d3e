// Colours of log lines: reads the SGR sequences of ECMA-48 and drops all other escapes. The result is text with
// classes, never HTML.

/** A piece of a line with one appearance. */
export interface Piece {
  text: string;
  classes: string;
}

interface Look {
  bold: boolean;
  faint: boolean;
  italic: boolean;
  underlined: boolean;
  colour: string;
}

const PLAIN: Look = { bold: false, faint: false, italic: false, underlined: false, colour: '' };

// eslint-disable-next-line no-control-regex
const ESCAPE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

function change(look: Look, codes: number[]): Look {
  let now = { ...look };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) now = { ...PLAIN };
    else if (code === 1) now.bold = true;
    else if (code === 2) now.faint = true;
    else if (code === 3) now.italic = true;
    else if (code === 4) now.underlined = true;
    else if (code === 22) now.bold = now.faint = false;
    else if (code === 23) now.italic = false;
    else if (code === 24) now.underlined = false;
    else if (code >= 30 && code <= 37) now.colour = `c${code - 30}`;
    else if (code >= 90 && code <= 97) now.colour = `c${code - 90} bright`;
    else if (code === 39) now.colour = '';
    else if (code === 38 || code === 48) {
      // A colour of the palette has one number after 5, a true colour three after 2.
      const palette = codes[at + 1] === 5;
      const number = codes[at + 2] ?? 0;
      if (code === 38 && palette && number < 16) now.colour = number < 8 ? `c${number}` : `c${number - 8} bright`;
      at += palette ? 2 : 4;
    }
  }
  return now;
}

function classes(look: Look): string {
  return [
    look.bold && 'bold',
    look.faint && 'faint',
    look.italic && 'italic',
    look.underlined && 'underlined',
    look.colour,
  ]
    .filter(Boolean)
    .join(' ');
}

/** Splits a line into pieces. */
export function pieces(line: string): Piece[] {
  if (!line.includes('\u001b')) {
    return [{ text: line.replace(CONTROL, ''), classes: '' }];
  }
  const out: Piece[] = [];
  let look = PLAIN;
  let from = 0;
  const add = (text: string) => {
    const clean = text.replace(CONTROL, '');
    if (clean) out.push({ text: clean, classes: classes(look) });
  };
  for (const match of line.matchAll(ESCAPE)) {
    add(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === 'm') look = change(look, (match[1] ?? '').split(/[;:]/).map(Number));
  }
  add(line.slice(from));
  return out;
}

/** Returns a line without escapes, for searching and copying. */
export function plain(line: string): string {
  return pieces(line)
    .map((piece) => piece.text)
    .join('');
}
