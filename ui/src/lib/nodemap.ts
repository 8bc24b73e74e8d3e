// The drawn picture of all nodes. A picture outlives its page for a while: to make a canvas for 10,000 cells and to draw them
// takes several frames, to show it again takes none.

import { CELL, Cells, isSame, type Layout, type Look } from './topology';

/** The side of a cell without its gap. */
export const SIDE = CELL - 3;
/** The milliseconds of a frame that drawing may take. */
const BUDGET = 8;
/** How long a picture without a page is kept, in milliseconds: its canvas has 10 MiB, or 40 MiB on a fine screen. */
const KEPT = 300_000;
const TONES: Record<string, string> = { ready: '--good', draining: '--busy', ineligible: '--wait', down: '--bad' };
const OTHER = '--wait';
const GROUND = '--soft';

/** The colours of a picture. */
export interface Colours {
  tones: Map<string, string>;
  /** The colour of states without a tone of their own. */
  other: string;
  ground: string;
  text: string;
}

/** What a canvas shows besides the looks of its cells. */
interface Frame {
  shape: Layout;
  width: number;
  scale: number;
  isDark: boolean;
}

type Paint = Pick<CanvasRenderingContext2D, 'clearRect' | 'fillRect' | 'strokeRect' | 'globalAlpha' | 'fillStyle' | 'strokeStyle' | 'lineWidth'>;

/** Draws a cell. Few rectangles: the browser takes longer to fill them than the script to name them. */
export function paintCell(paint: Paint, { x, y }: { x: number; y: number }, look: Look, colours: Colours, isEmpty: boolean): void {
  // The frame of a chosen cell lies in its gap.
  if (!isEmpty) paint.clearRect(x - 2, y - 2, CELL, CELL);
  paint.globalAlpha = look.dim ? 0.2 : 1;
  paint.fillStyle = colours.tones.get(look.state) ?? colours.other;
  paint.fillRect(x, y, SIDE, SIDE);
  // The border takes a pixel on each side; the lower one belongs to the fill.
  const rest = SIDE - 1 - Math.max(1, look.full);
  if (rest > 0) {
    // A colour that lets the ground through must not lie over the tone.
    if (look.dim) paint.clearRect(x + 1, y + 1, SIDE - 2, rest);
    paint.fillStyle = colours.ground;
    paint.fillRect(x + 1, y + 1, SIDE - 2, rest);
  }
  paint.globalAlpha = 1;
  if (!look.chosen) return;
  paint.lineWidth = 1;
  paint.strokeStyle = colours.text;
  paint.strokeRect(x - 0.5, y - 0.5, SIDE + 1, SIDE + 1);
}

export class NodeMap {
  readonly canvas = document.createElement('canvas');
  private readonly cells = new Cells();
  private colours: Colours | undefined;
  private frame: Frame | undefined;
  private request = 0;

  constructor() {
    this.canvas.className = 'topology';
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'application');
  }

  /** The places of the nodes that the canvas shows. */
  get shape(): Layout | undefined {
    return this.frame?.shape;
  }

  /** Empties the canvas and draws the titles of the groups, unless the canvas has the same places and colours. */
  prepare(next: Frame): void {
    const old = this.frame;
    if (old && old.width === next.width && old.scale === next.scale && old.isDark === next.isDark && isSame(old.shape, next.shape)) return;
    this.frame = next;
    const { shape, width, scale } = next;
    this.canvas.style.height = `${shape.height}px`;
    this.canvas.width = width * scale;
    this.canvas.height = shape.height * scale;
    this.cells.clear();
    const paint = this.canvas.getContext('2d');
    if (!paint) return;
    paint.scale(scale, scale);
    this.colours = coloursOf(this.canvas);
    paint.fillStyle = this.colours.text;
    paint.font = '600 13px system-ui, sans-serif';
    for (const group of shape.groups) paint.fillText(`${group.name} (${group.nodes.length})`, 0, group.top - 8);
  }

  /** Notes cells that may look different; without `nodes`, all. */
  touch(nodes: Iterable<number> | undefined = this.shape?.places.keys()): void {
    if (nodes) this.cells.touch(nodes);
  }

  /** Draws in the next frame, and in further ones while cells are left. `looks` is called once a frame and returns the look of a node. */
  draw(looks: () => ((at: number) => Look) | undefined): void {
    cancelAnimationFrame(this.request);
    this.request = requestAnimationFrame((begun) => {
      const [look, places, colours, paint] = [looks(), this.shape?.places, this.colours, this.canvas.getContext('2d')];
      if (!look || !places || !colours || !paint) return;
      const late = Math.max(begun, performance.now()) + BUDGET;
      this.cells.draw(
        look,
        (at, now, old) => {
          const place = places.get(at);
          if (place) paintCell(paint, place, now, colours, !old);
        },
        () => performance.now() > late,
      );
      if (this.cells.isDirty) this.draw(looks);
    });
  }

  /** Stops drawing. */
  stop(): void {
    cancelAnimationFrame(this.request);
  }
}

let kept: NodeMap | undefined;
let release: ReturnType<typeof setTimeout> | undefined;

/** Returns the picture of the page before, or an empty one. */
export function takeMap(): NodeMap {
  const found = kept ?? new NodeMap();
  clearTimeout(release);
  kept = undefined;
  return found;
}

/** Keeps a picture for the next page that shows one. */
export function keepMap(map: NodeMap): void {
  map.stop();
  clearTimeout(release);
  kept = map;
  release = setTimeout(() => (kept = undefined), KEPT);
}

/** Returns the custom properties of an element as colours that a canvas understands. One style for all: each read of a style after
 * a change computes the styles of the page. */
function coloursOf(element: HTMLElement): Colours {
  const own = getComputedStyle(element).color;
  const names = [...new Set([...Object.values(TONES), OTHER, GROUND])];
  const box = document.createElement('span');
  const probes = names.map((name) => {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    box.append(probe);
    return probe;
  });
  element.append(box);
  const found = new Map(probes.map((probe, at) => [names[at], getComputedStyle(probe).color]));
  box.remove();
  return {
    tones: new Map(Object.entries(TONES).map(([state, name]) => [state, found.get(name) ?? own])),
    other: found.get(OTHER) ?? own,
    ground: found.get(GROUND) ?? own,
    text: own,
  };
}
