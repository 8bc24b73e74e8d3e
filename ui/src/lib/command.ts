// The command of a terminal: a list of words, which the browser remembers for each task.

const KEY = 'caravanExecCommands';

/** The command without a choice of the user: bash where there is one. */
export const USUAL = '["/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"]';

/** The most tasks whose commands are kept. */
const MOST = 100;

/** A place of commands: the browser's storage. */
type Place = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

function kept(place: Place): Record<string, string> {
  try {
    const read: unknown = JSON.parse(place.getItem(KEY) ?? '{}');
    return typeof read === 'object' && read !== null && !Array.isArray(read) ? (read as Record<string, string>) : {};
  } catch {
    return {};
  }
}

/** Returns the command that the user had last in a task. `task` names the job, its group and the task. */
export function keptCommand(task: string, place: Place = localStorage): string {
  const found = kept(place)[task];
  return typeof found === 'string' ? found : USUAL;
}

/** Keeps the command of a task; the usual one needs no place. */
export function keepCommand(task: string, text: string, place: Place = localStorage): void {
  const { [task]: _, ...others } = kept(place);
  // The newest one is the last.
  const all = Object.entries(text === USUAL ? others : { ...others, [task]: text }).slice(-MOST);
  if (all.length === 0) place.removeItem(KEY);
  else place.setItem(KEY, JSON.stringify(Object.fromEntries(all)));
}

/** Reads the words of a command: a list in JSON, or words with blanks between them, where quotes keep a word together. */
export function readCommand(text: string): string[] {
  const line = text.trim();
  if (line.startsWith('[') || line.startsWith('{')) {
    let words: unknown;
    try {
      words = JSON.parse(line);
    } catch {
      words = undefined;
    }
    if (!Array.isArray(words) || words.length === 0 || words.some((word) => typeof word !== 'string')) {
      throw new Error('The command must be a list of words, such as ["/bin/sh"].');
    }
    return words as string[];
  }
  const words = line.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? [];
  if (words.length === 0) throw new Error('The command is missing.');
  if (words.join('').length !== line.replace(/\s+(?=(?:[^'"]|'[^']*'|"[^"]*")*$)/g, '').length) throw new Error('A quote of the command does not end.');
  return words.map((word) => word.replace(/'([^']*)'|"([^"]*)"/g, (_, one: string | undefined, two: string | undefined) => one ?? two ?? ''));
}
