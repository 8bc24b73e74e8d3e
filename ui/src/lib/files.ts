// Paths of files in an allocation, and how a file is shown.

export interface FileRow {
  Name: string;
  IsDir: boolean;
  Size: number;
  FileMode: string;
  ModTime: string;
  ContentType?: string;
}

/** The most bytes of a file that the page shows. */
export const MAX_SHOWN = 256 * 1024;

/** Returns a path below the allocation's directory, beginning with a slash. */
export function below(parts: string[]): string {
  return `/${parts.filter((part) => part !== '' && part !== '.').join('/')}`;
}

/** Returns the directories above a path, from the root, each with its path. */
export function crumbs(parts: string[]): { name: string; parts: string[] }[] {
  return parts.map((name, at) => ({ name, parts: parts.slice(0, at + 1) }));
}

/** Returns rows with directories first, then by name. */
export function sorted(rows: FileRow[]): FileRow[] {
  return rows.toSorted((one, two) => Number(two.IsDir) - Number(one.IsDir) || one.Name.localeCompare(two.Name));
}

/** Returns the text of bytes, or nothing if they are no text. */
export function asText(bytes: Uint8Array, whole: boolean): string | undefined {
  if (bytes.includes(0)) return undefined;
  // A cut may be within a character, which is then no sign of a binary file.
  for (let cut = 0; cut < (whole ? 1 : 4); cut += 1) {
    try {
      return new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(0, bytes.length - cut));
    } catch {
      // The next cut decides.
    }
  }
  return undefined;
}
