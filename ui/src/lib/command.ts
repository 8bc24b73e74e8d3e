// The command of a terminal: a list of words, which the browser remembers.

const KEY = 'caravanExecCommand';

/** The command without a choice of the user: bash where there is one. */
export const USUAL = '["/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"]';

/** Returns the command that the user had last. */
export function keptCommand(): string {
  return localStorage.getItem(KEY) ?? USUAL;
}

/** Keeps a command; the usual one needs no place. */
export function keepCommand(text: string): void {
  if (text === USUAL) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, text);
}

/** Reads the words of a command: a list in JSON. */
export function readCommand(text: string): string[] {
  let words: unknown;
  try {
    words = JSON.parse(text);
  } catch {
    words = undefined;
  }
  if (!Array.isArray(words) || words.length === 0 || words.some((word) => typeof word !== 'string')) {
    throw new Error('The command must be a list of words, such as ["/bin/sh"].');
  }
  return words as string[];
}
