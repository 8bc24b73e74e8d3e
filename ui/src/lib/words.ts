// Times, sizes and counts in words.

/** Returns a span in its two largest units. */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const units: [string, number][] = [
    ['d', 86400],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return '0s';
  let left = seconds;
  const parts: string[] = [];
  for (const [name, size] of units.slice(first, first + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) parts.push(`${count}${name}`);
  }
  return parts.join(' ');
}

/** Returns a time of the API as milliseconds: integer nanoseconds, or text. 0 means no time. */
export function millis(at: number | string | null | undefined): number {
  if (typeof at === 'number') return at > 0 ? at / 1e6 : 0;
  if (!at || at.startsWith('0001-')) return 0;
  const time = Date.parse(at);
  return Number.isNaN(time) ? 0 : time;
}

/** Returns a time of the user's clock, with the day unless it is today. */
export function clockTime(time: number, now: number): string {
  const at = new Date(time);
  const two = (number: number) => String(number).padStart(2, '0');
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === new Date(now).toDateString()) return text;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${text}`;
}

/** Returns a size with a binary unit. */
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value >= 10 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Returns the first eight characters of an id. */
export function short(id: string): string {
  return id.slice(0, 8);
}

/** Returns a count with its noun. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many}`;
}

/** Quotes a word for a shell, if the word needs it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
