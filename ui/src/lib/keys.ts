// Keys of the page: sequences of plain letters outside of fields.

/** The time within which a sequence is typed, in milliseconds. */
export const SEQUENCE = 750;

/** What keys do: the address that they lead to, or a named action. */
export const KEYS: [keys: string, what: string, words: string][] = [
  ['g j', 'jobs', 'Jobs'],
  ['g c', 'clients', 'Nodes'],
  ['g r', 'storage', 'Storage'],
  ['g t', 'topology', 'Topology'],
  ['g e', 'evaluations', 'Evaluations'],
  ['g v', 'variables', 'Variables'],
  ['g s', 'servers', 'Servers'],
  ['g a', 'administration', 'Administration'],
  ['g p', 'settings/tokens', 'Token'],
  ['/', '!palette', 'Search everything'],
  ['?', '!help', 'List of keys'],
  ['u', '!up', 'One level up'],
  ['y', '!copy', 'Copy the address of the row or the page'],
  ['] ]', '!next', 'Next page'],
  ['[ [', '!previous', 'Previous page'],
  ['j', '!down', 'Next row'],
  ['k', '!back', 'Previous row'],
  ['.', '!verbs', 'What can be done with the row or the object'],
  ['t', '!theme', 'Next theme: light, dark, system'],
  ['g o', '', 'Overview'],
  ['g l', 'allocations', 'Allocations'],
  ['g d', '!terminals', 'Terminals in the drawer'],
  ['r u n', 'jobs/run', 'Run a job'],
];

/** Collects keys into sequences. */
export class Sequence {
  private typed: string[] = [];
  private last = 0;

  /** Returns what a key completes, if anything. */
  press(key: string, now: number): string | undefined {
    if (now - this.last > SEQUENCE) this.typed = [];
    this.last = now;
    this.typed.push(key);
    const text = this.typed.join(' ');
    const found = KEYS.find(([keys]) => keys === text);
    if (found) {
      this.typed = [];
      return found[1];
    }
    if (!KEYS.some(([keys]) => keys.startsWith(`${text} `))) {
      // The key may begin another sequence.
      const alone = this.typed.length > 1;
      this.typed = [];
      if (alone) return this.press(key, now);
    }
    return undefined;
  }
}

/** Moves the focus along tabs: arrows to the next and the one before, `Home` and `End` to the first and the last. */
export function tabKey(event: KeyboardEvent): void {
  const list = event.currentTarget as HTMLElement;
  const tabs = [...list.querySelectorAll<HTMLElement>('[role=tab]')];
  const at = tabs.indexOf(event.target as HTMLElement);
  const next = neighbourTab(tabs.length, at, event.key);
  if (next === undefined) return;
  event.preventDefault();
  tabs[next]?.focus();
}

/** Returns the tab to which a key leads from one of some tabs. */
export function neighbourTab(count: number, at: number, key: string): number | undefined {
  if (at < 0 || count === 0) return undefined;
  switch (key) {
    case 'ArrowRight':
      return (at + 1) % count;
    case 'ArrowLeft':
      return (at + count - 1) % count;
    case 'Home':
      return 0;
    case 'End':
      return count - 1;
    default:
      return undefined;
  }
}
