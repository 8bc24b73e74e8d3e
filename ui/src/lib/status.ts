// How states look: a tone and a sign besides the word.

export type Tone = 'good' | 'busy' | 'wait' | 'bad' | 'done';

const LOOKS: Record<Tone, { sign: string; words: string[] }> = {
  good: { sign: '●', words: ['running', 'ready', 'healthy', 'mounted', 'successful', 'eligible', 'alive', 'run', 'attached', 'in use', 'followed'] },
  busy: {
    sign: '◐',
    words: [
      'starting', 'initializing', 'creating', 'expanding', 'attaching', 'detaching', 'releasing', 'deleting', 'unpublished',
      'unstaged', 'reserved', 'draining', 'evict', 'stop', 'promotion',
    ],
  },
  wait: { sign: '◔', words: ['pending', 'blocked', 'paused', 'fencing', 'waits', 'ineligible', 'unknown', 'disconnected'] },
  bad: { sign: '✕', words: ['failed', 'lost', 'down', 'unhealthy', 'unavailable', 'leaving'] },
  done: { sign: '○', words: ['complete', 'dead', 'gone', 'cancelled', 'canceled', 'stopped', 'left', 'ended'] },
};

interface Look {
  tone: Tone;
  sign: string;
}

/** The looks by state: lists look up hundreds of states. */
const BY_WORD = new Map(
  (Object.entries(LOOKS) as [Tone, { sign: string; words: string[] }][]).flatMap(([tone, { sign, words }]) =>
    words.map((word): [string, Look] => [word, { tone, sign }]),
  ),
);
const OTHER: Look = { tone: 'done', sign: LOOKS.done.sign };

/** Returns the look of a state. */
export function look(word: string): Look {
  return BY_WORD.get(word.toLowerCase()) ?? OTHER;
}
