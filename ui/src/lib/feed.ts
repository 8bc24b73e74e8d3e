// The streams of logs: how their bytes become text, and how a broken one goes on without gaps and repetitions.

import type { GroupLog } from './grouplog';

/** A stream of a log, over several connections. */
export interface Feed {
  /** How long a connection may be silent before it counts as lost, in milliseconds; 0 if silence means nothing. */
  readonly silence: number;
  /** The route of the next connection; `undefined` if a broken stream cannot go on. */
  next(): string | undefined;
  /** Takes bytes of the connection. Returns text of the log. */
  take(bytes: Uint8Array): string;
}

/** A place in a log, which consists of numbered files. */
export interface Place {
  number: number;
  offset: number;
}

interface Frame {
  Data?: string;
  File?: string;
  FileEvent?: string;
  Offset?: number;
}

/** Cuts a stream into its frames: JSON objects without separators. */
export class Frames {
  private text = '';
  private readonly decoder = new TextDecoder();

  add(bytes: Uint8Array): Frame[] {
    const found: Frame[] = [];
    this.text += this.decoder.decode(bytes, { stream: true });
    // A name of a file may have a brace.
    for (let end = this.text.indexOf('}'); end >= 0; end = this.text.indexOf('}', end + 1)) {
      try {
        found.push(JSON.parse(this.text.slice(0, end + 1)) as Frame);
      } catch {
        continue;
      }
      this.text = this.text.slice(end + 1);
      end = -1;
    }
    return found;
  }
}

function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** Returns the bytes before a place that were not read before: an agent of an older version begins earlier than asked for. */
export function unread(bytes: Uint8Array, end: Place, known: Place | undefined): Uint8Array {
  if (!known || end.number > known.number) return bytes;
  if (end.number < known.number) return bytes.subarray(bytes.length);
  return bytes.subarray(Math.max(0, Math.min(bytes.length, known.offset - (end.offset - bytes.length))));
}

/** The log of a task, as frames with their places. */
export class FrameFeed implements Feed {
  readonly silence = 20_000;
  private place: Place | undefined;
  private readonly decoder = new TextDecoder();
  private frames = new Frames();

  constructor(private readonly route: string) {}

  next(): string {
    // What an earlier connection left unfinished comes again.
    this.frames = new Frames();
    return this.place ? `${this.route}&position=${this.place.number}.${this.place.offset}` : this.route;
  }

  take(bytes: Uint8Array): string {
    let text = '';
    for (const frame of this.frames.add(bytes)) {
      // The log began again: all of it is new.
      if (frame.FileEvent === 'file truncated') this.place = undefined;
      if (!frame.Data) continue;
      const number = /\.(\d+)$/.exec(frame.File ?? '')?.[1];
      const end = number === undefined ? undefined : { number: Number(number), offset: frame.Offset ?? 0 };
      const data = bytesOf(frame.Data);
      text += this.decoder.decode(end ? unread(data, end, this.place) : data, { stream: true });
      this.place = end;
    }
    return text;
  }
}

/** Text whose stream has no places: what was written between two connections is missing, which a line says. */
export class TextFeed implements Feed {
  readonly silence = 0;
  private decoder = new TextDecoder();
  private isFirst = true;
  private gap = '';

  constructor(
    private readonly route: string,
    private readonly missing: string,
  ) {}

  next(): string {
    if (!this.isFirst) this.gap = `\n${this.missing}\n`;
    this.isFirst = false;
    this.decoder = new TextDecoder();
    return this.route;
  }

  take(bytes: Uint8Array): string {
    const { gap } = this;
    this.gap = '';
    return gap + this.decoder.decode(bytes, { stream: true });
  }
}

/** The log of a group: one JSON object a line. */
export class GroupFeed implements Feed {
  readonly silence = 75_000;
  private decoder = new TextDecoder();
  private open = '';
  private isFirst = true;

  /** `changed` is called after each message. */
  constructor(
    private readonly route: string,
    private readonly log: GroupLog,
    private readonly changed: () => void,
  ) {}

  next(): string | undefined {
    this.decoder = new TextDecoder();
    this.open = '';
    if (this.isFirst) {
      this.isFirst = false;
      return this.route;
    }
    const places = this.log.resume();
    return places && `${this.route}&${places}`;
  }

  take(bytes: Uint8Array): string {
    const parts = (this.open + this.decoder.decode(bytes, { stream: true })).split('\n');
    this.open = parts.pop() ?? '';
    const lines = parts.filter((part) => part !== '').flatMap((part) => this.log.take(part));
    this.changed();
    return lines.map((line) => `${line}\n`).join('');
  }
}

/** Puts a word before each line of a feed. */
export function labelled(feed: Feed, label: string): Feed {
  let open = '';
  return {
    silence: feed.silence,
    next: () => feed.next(),
    take(bytes) {
      // Lines of several feeds are whole before they mix.
      const parts = (open + feed.take(bytes)).split('\n');
      open = parts.pop() ?? '';
      return parts.map((part) => `${label} ${part}\n`).join('');
    },
  };
}
