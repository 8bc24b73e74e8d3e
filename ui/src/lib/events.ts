// The event stream as notes: which object changed at which index. The rows themselves are read again by the pages that
// show them, so a note is small whatever changed.

/** The change of one object. */
export interface Note {
  topic: string;
  key: string;
  ns: string;
  /** Ids of related objects: a job's, a deployment's. */
  related: string[];
  index: number;
  /** What changed is in the memory of the servers, so that the index is not that of the change. */
  unindexed?: boolean;
}

/** The type of the events of volumes whose wait reasons or calls changed. */
const REASON = 'CSIVolumeReason';

/** The index of the newest change of each topic. */
export type Indexes = Record<string, number>;

/** The content of a line of the stream. */
export type Line =
  /** The most milliseconds between two lines from now on. The line that opens the stream for its reader comes after this one. */
  | { kind: 'heartbeat'; interval: number }
  | { kind: 'alive'; denied: string[]; indexes: Indexes }
  | { kind: 'notes'; notes: Note[] }
  | { kind: 'gone' };

interface RawEvent {
  Topic?: string;
  Type?: string;
  Key?: string;
  Namespace?: string;
  FilterKeys?: string[] | null;
  Index?: number;
}

/** Reads a line of the stream. A line that cannot be read means that events were lost. */
export function readLine(text: string): Line {
  let raw: { Events?: RawEvent[]; Index?: number; Error?: string; Heartbeat?: number; Caravan?: { Denied?: string[]; Indexes?: Indexes } };
  try {
    raw = JSON.parse(text);
  } catch {
    return { kind: 'gone' };
  }
  if (raw.Error !== undefined) return { kind: 'gone' };
  if (!raw.Events?.length) {
    if (typeof raw.Heartbeat === 'number' && raw.Heartbeat > 0) return { kind: 'heartbeat', interval: raw.Heartbeat };
    return { kind: 'alive', denied: raw.Caravan?.Denied ?? [], indexes: raw.Caravan?.Indexes ?? {} };
  }
  const notes = raw.Events.map((event) => ({
    topic: event.Topic ?? '',
    key: event.Key ?? '',
    ns: event.Namespace ?? '',
    related: event.FilterKeys ?? [],
    index: event.Index ?? raw.Index ?? 0,
    ...(event.Type === REASON ? { unindexed: true } : {}),
  }));
  return { kind: 'notes', notes };
}

/** Cuts text that arrives in parts into lines. */
export class Splitter {
  private open = '';

  add(text: string): string[] {
    const parts = (this.open + text).split('\n');
    this.open = parts.pop() ?? '';
    return parts.filter((part) => part.trim() !== '');
  }
}

/** Keeps the newest note of each object. */
export function merge(notes: Note[]): Note[] {
  const newest = new Map<string, Note>();
  for (const note of notes) {
    const name = `${note.topic}\n${note.ns}\n${note.key}`;
    const before = newest.get(name);
    const related = before ? [...new Set([...before.related, ...note.related])] : note.related;
    const unindexed = note.unindexed || before?.unindexed ? { unindexed: true } : {};
    newest.set(name, { ...note, related, index: Math.max(note.index, before?.index ?? 0), ...unindexed });
  }
  return [...newest.values()];
}

/** What a page is interested in. */
export interface Interest {
  topics: string[];
  /** The namespace; empty or `*` for all of them. */
  ns?: string;
  /** Ids, one of which a note must name; absent for every object of the topics. */
  keys?: string[];
  /** Whether wait reasons or calls are part of it, whose changes before the stream have no index. */
  reasons?: boolean;
}

/** Returns whether a note is news for a page that has read the state at an index. */
export function concerns(interest: Interest, note: Note, index: number): boolean {
  if ((note.index <= index && !note.unindexed) || !interest.topics.includes(note.topic)) return false;
  if (interest.ns && interest.ns !== '*' && note.ns && note.ns !== interest.ns) return false;
  return !interest.keys || interest.keys.some((key) => key === note.key || note.related.includes(key));
}

/** Returns whether a page that has read the state at an index lacks changes from before the stream. */
export function lacks(interest: Interest, indexes: Indexes, index: number): boolean {
  return interest.topics.some((topic) => (indexes[topic] ?? 0) > index);
}

/** Returns the higher index of each topic. */
export function latest(one: Indexes, two: Indexes): Indexes {
  const out = { ...one };
  for (const [topic, index] of Object.entries(two)) out[topic] = Math.max(index, out[topic] ?? 0);
  return out;
}

/** Returns the indexes after some changes. */
export function advance(indexes: Indexes, notes: Note[]): Indexes {
  const out = { ...indexes };
  for (const note of notes) out[note.topic] = Math.max(note.index, out[note.topic] ?? 0);
  return out;
}

/** Returns the pause before the next attempt, in milliseconds. */
export function backoff(failures: number): number {
  return Math.min(5000, 250 * 2 ** Math.max(0, failures - 1));
}
