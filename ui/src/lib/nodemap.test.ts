import { expect, it } from 'vitest';
import { paintCell, SIDE, type Colours } from './nodemap';
import { CELL, type Look } from './topology';

const colours: Colours = { tones: new Map([['ready', 'g'], ['down', 'r']]), other: 'o', ground: '-', text: 't' };

/** A canvas of one cell with its gap: each pixel holds the letter of its colour, `.` if empty, `*` if colours lie over each other. */
class Pixels {
  globalAlpha = 1;
  fillStyle = '';
  strokeStyle = '';
  lineWidth = 1;
  strokes: number[][] = [];
  readonly rows = Array.from({ length: CELL }, () => Array<string>(CELL).fill('.'));
  private each(x: number, y: number, w: number, h: number, change: (old: string) => string) {
    for (let row = Math.max(0, y); row < y + h; row += 1) {
      for (let at = Math.max(0, x); at < x + w; at += 1) this.rows[row]![at] = change(this.rows[row]![at]!);
    }
  }
  clearRect(x: number, y: number, w: number, h: number) {
    this.each(x, y, w, h, () => '.');
  }
  fillRect(x: number, y: number, w: number, h: number) {
    this.each(x, y, w, h, (old) => (this.globalAlpha < 1 && old !== '.' ? '*' : this.fillStyle));
  }
  strokeRect(...edge: number[]) {
    this.strokes.push(edge);
  }
}

function painted(looks: Look[]): Pixels {
  const pixels = new Pixels();
  looks.forEach((look, at) => paintCell(pixels as never, { x: 2, y: 2 }, look, colours, at === 0));
  return pixels;
}

const look = (full: number, more: Partial<Look> = {}): Look => ({ state: 'ready', full, chosen: false, dim: false, ...more });

it('fills a cell from below within its border', () => {
  const inner = (pixels: Pixels) => pixels.rows.slice(2, 2 + SIDE).map((row) => row.slice(2, 2 + SIDE).join(''));
  for (const dim of [false, true]) {
    for (const full of [0, 1, 5, SIDE - 1, SIDE]) {
      const rows = inner(painted([look(full, { dim })]));
      rows.forEach((row, at) => {
        const isEdge = at === 0 || at >= SIDE - Math.max(1, full);
        expect(row, `row ${at} of ${full}`).toBe(isEdge ? 'g'.repeat(SIDE) : `g${'-'.repeat(SIDE - 2)}g`);
      });
    }
  }
});

it('leaves nothing of the look before', () => {
  const again = painted([look(SIDE, { chosen: true, state: 'down' }), look(3)]);
  expect(again.rows).toEqual(painted([look(3)]).rows);
  // A state without a colour of its own.
  expect(painted([look(0, { state: 'initializing' })]).rows[2]![2]).toBe('o');
});

it('frames a chosen cell in its gap', () => {
  const pixels = painted([look(3, { chosen: true, dim: true })]);
  expect(pixels.strokes).toEqual([[1.5, 1.5, SIDE + 1, SIDE + 1]]);
  expect([pixels.strokeStyle, pixels.globalAlpha]).toEqual(['t', 1]);
});
