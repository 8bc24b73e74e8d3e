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
}

/** What a line of the stream is. */
export type Line = { kind: 'alive'; denied: string[] } | { kind: 'notes'; notes: Note[] } | { kind: 'gone' };

interface RawEvent {
  Topic?: string;
  Key?: string;
  Namespace?: string;
  FilterKeys?: string[] | null;
  Index?: number;
}

/** Reads a line of the stream. A line that cannot be read means that events were lost. */
export function readLine(text: string): Line {
  let raw: { Events?: RawEvent[]; Index?: number; Error?: string; Caravan?: { Denied?: string[] } };
  try {
    raw = JSON.parse(text);
  } catch {
    return { kind: 'gone' };
  }
  if (raw.Error !== undefined) return { kind: 'gone' };
  if (!raw.Events?.length) return { kind: 'alive', denied: raw.Caravan?.Denied ?? [] };
  const notes = raw.Events.map((event) => ({
    topic: event.Topic ?? '',
    key: event.Key ?? '',
    ns: event.Namespace ?? '',
    related: event.FilterKeys ?? [],
    index: event.Index ?? raw.Index ?? 0,
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
    newest.set(name, { ...note, related, index: Math.max(note.index, before?.index ?? 0) });
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
}

/** Returns whether a note is news for a page that has read the state at an index. */
export function concerns(interest: Interest, note: Note, index: number): boolean {
  if (note.index <= index || !interest.topics.includes(note.topic)) return false;
  if (interest.ns && interest.ns !== '*' && note.ns && note.ns !== interest.ns) return false;
  return !interest.keys || interest.keys.some((key) => key === note.key || note.related.includes(key));
}

/** Returns the pause before the next attempt, in milliseconds. */
export function backoff(failures: number): number {
  return Math.min(5000, 250 * 2 ** Math.max(0, failures - 1));
}
