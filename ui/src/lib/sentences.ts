// The sentences of the servers: the names of objects in them as links.

import { to } from './route';

/** A part of a sentence. */
export interface Part {
  text: string;
  /** The path below `/ui/` of the object that the part names; empty for other words. */
  path: string;
}

/** What is known beside a sentence about the objects that it may name. */
export interface Known {
  /** The ids of nodes by their names. */
  nodes?: Record<string, string>;
  /** The namespace of volumes and jobs whose sentence does not name one. */
  ns?: string;
}

const TEXT = '"(?:[^"\\\\]|\\\\.)*"';
/** A kind of object with its id: in quotes, maybe with a namespace, or as a word. */
const NAMED = new RegExp(`\\b(host volume|volume|plugin|node|allocation|job) (?:(${TEXT})(?: in namespace (${TEXT}))?|([^\\s"',;()]+))`, 'g');

function unquoted(text: string): string {
  try {
    return String(JSON.parse(text));
  } catch {
    return '';
  }
}

/** Whether a word is an id, or as much of it as sentences show. */
const isId = (word: string) => /^[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?$/.test(word);

function pathOf(kind: string, id: string, ns: string, isQuoted: boolean, known: Known): string {
  switch (kind) {
    case 'node': {
      const node = Object.hasOwn(known.nodes ?? {}, id) ? known.nodes?.[id] : undefined;
      return node || isId(id) ? to.node(node ?? id) : '';
    }
    case 'allocation':
      return isId(id) ? to.alloc(id) : '';
    case 'plugin':
      return isQuoted ? to.plugin(id) : '';
    // A word after `volume` or `job` may be any word of the sentence.
    case 'volume':
      return isQuoted && (ns || known.ns) ? to.volume(id, ns || (known.ns ?? '')) : '';
    case 'job':
      return isQuoted && (ns || known.ns) ? to.job(id, ns || (known.ns ?? '')) : '';
    default:
      return '';
  }
}

/** Returns the parts of a sentence. */
export function linked(sentence: string, known: Known = {}): Part[] {
  const parts: Part[] = [];
  let done = 0;
  const plain = (until: number) => {
    if (until > done) parts.push({ text: sentence.slice(done, until), path: '' });
    done = until;
  };
  for (const match of sentence.matchAll(NAMED)) {
    const [, kind = '', quoted, ns, word = ''] = match;
    // A word at the end of a clause has its sign.
    const id = quoted === undefined ? word.replace(/[.:]+$/, '') : unquoted(quoted);
    const path = id && pathOf(kind, id, ns === undefined ? '' : unquoted(ns), quoted !== undefined, known);
    if (!path) continue;
    const from = match.index + kind.length + 1;
    plain(quoted === undefined ? from : from + 1);
    const length = quoted === undefined ? id.length : quoted.length - 2;
    parts.push({ text: sentence.slice(done, done + length), path });
    done += length;
  }
  plain(sentence.length);
  return parts;
}

/** Returns the ids of nodes by their names. A name of several nodes leads to none of them. */
export function nodesByName(rows: { ID: string; Name: string }[]): Record<string, string> {
  const out: Record<string, string> = {};
  for (const { ID, Name } of rows) out[Name] = Object.hasOwn(out, Name) ? '' : ID;
  return out;
}
