// The log of a group: outputs of several tasks as one list of lines with labels.

import { count, short } from './words';

/** An output of a task, as the servers describe it. */
export interface Source {
  ID: number;
  AllocID: string;
  AllocName: string;
  TaskGroup: string;
  Task: string;
  Type: 'stdout' | 'stderr';
  NodeName: string;
  State: 'open' | 'ended' | 'failed';
  Reason?: string;
}

/** The outputs that the servers leave out. */
export interface Omitted {
  Running: number;
  Ended: number;
}

interface Message {
  Sources?: Source[];
  Omitted?: Omitted;
  Most?: number;
  Since?: number | null;
  ID?: number;
  Lines?: string[];
  At?: string;
}

/** The most characters of the places in the address of a stream that goes on. */
const MOST_PLACES = 6000;

/** The codes of SGR that colour labels. Red stays the colour of trouble. */
const COLOURS = [36, 32, 35, 33, 34, 96, 92, 95, 93, 94];
const ESCAPE = '\u001b[';

/** Returns the label of an output. `both`: lines of both outputs are shown, so the label names the output. */
export function label(source: Source, both: boolean): string {
  const index = /\[\d+\]$/.exec(source.AllocName)?.[0] ?? '';
  return `${short(source.AllocID)}${index} ${source.Task}${both ? ` ${source.Type}` : ''}`;
}

/** Reads the stream of a group. */
export class GroupLog {
  sources: Source[] = [];
  omitted: Omitted = { Running: 0, Ended: 0 };
  most = 0;
  /** The index at which the stream began; 0 from an agent of an older version. */
  private since = 0;
  /** The place after the last line of each output. */
  private readonly places = new Map<string, string>();
  /** The number of each allocation's colour, in the order in which they joined. */
  private colours = new Map<string, number>();

  constructor(private readonly both: boolean) {}

  /** Returns the class of an output's colour. */
  colour(source: Source): string {
    const code = this.code(source);
    return code >= 90 ? `c${code - 90}` : `c${code - 30}`;
  }

  private code(source: Source): number {
    const name = `${source.AllocID}/${source.Task}`;
    const at = this.colours.get(name) ?? this.colours.size;
    this.colours.set(name, at);
    return COLOURS[at % COLOURS.length] ?? 36;
  }

  /** Returns the parameters with which a broken stream goes on; `undefined` if it cannot. */
  resume(): string | undefined {
    if (this.since === 0) return undefined;
    const rank = (source: Source) => Number(source.State === 'ended');
    let query = `since=${this.since}`;
    for (const source of this.sources.toSorted((one, two) => rank(one) - rank(two))) {
      const place = this.places.get(outputOf(source));
      const next = place && new URLSearchParams({ after: `${outputOf(source)}/${place}` }).toString();
      if (next && query.length + next.length < MOST_PLACES) query += `&${next}`;
    }
    return query;
  }

  /** Takes a line of the stream. Returns the lines of the log that it has, with coloured labels. */
  take(text: string): string[] {
    let message: Message;
    try {
      message = JSON.parse(text) as Message;
    } catch {
      return [];
    }
    if (message.Sources) {
      this.sources = message.Sources;
      this.omitted = message.Omitted ?? { Running: 0, Ended: 0 };
      this.most = message.Most ?? 0;
      this.since = message.Since ?? 0;
      const listed = new Set(this.sources.map(outputOf));
      for (const name of this.places.keys()) if (!listed.has(name)) this.places.delete(name);
      for (const source of this.sources) this.code(source);
      // The colours of outputs that the servers no longer list are free again; those of the others stay.
      if (this.colours.size > 1000) this.colours.clear();
      return [];
    }
    const source = this.sources.find((row) => row.ID === message.ID);
    if (!source || !message.Lines) return [];
    if (message.At) this.places.set(outputOf(source), message.At);
    const prefix = `${ESCAPE}1;${this.code(source)}m${label(source, this.both)}${ESCAPE}0m `;
    return message.Lines.map((line) => prefix + line);
  }
}

/** Returns the name of an output in requests. */
function outputOf(source: Source): string {
  return `${source.AllocID}/${source.Task}/${source.Type}`;
}

/** Returns what is followed and what is left out, in a sentence or two. */
export function summary(sources: Source[], omitted: Omitted, most: number): string {
  const open = sources.filter((row) => row.State === 'open').length;
  const ended = sources.filter((row) => row.State === 'ended').length;
  const failed = sources.length - open - ended;
  if (sources.length === 0 && omitted.Running + omitted.Ended === 0) return 'No task has started so far. Outputs join when their tasks start.';
  const parts = [
    `${count(open, 'output')} followed`,
    ended > 0 && `${ended.toLocaleString('en')} ended`,
    failed > 0 && `${failed.toLocaleString('en')} not readable`,
  ];
  const first = `${parts.filter((part) => part).join(', ')}.`;
  if (omitted.Running > 0) {
    const verb = omitted.Running === 1 ? 'is' : 'are';
    return `${first} ${count(omitted.Running, 'running output')} ${verb} left out: at most ${most} are followed at once. Choose a group, a task or one output.`;
  }
  return omitted.Ended > 0 ? `${first} ${count(omitted.Ended, 'output')} of ended tasks left out.` : first;
}
