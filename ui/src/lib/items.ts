// The items of a variable as JSON text.

/** Returns items as JSON; those without a key are left out. */
export function writeItems(items: { key: string; value: string }[]): string {
  return JSON.stringify(Object.fromEntries(items.filter((item) => item.key !== '').map((item) => [item.key, item.value])), null, 2);
}

/** Reads items from JSON, or returns why the text holds none. */
export function readItems(text: string): Record<string, string> | string {
  if (text.trim() === '') return {};
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch (error) {
    return `This is no JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof read !== 'object' || read === null || Array.isArray(read)) return 'The items must be a JSON object.';
  const wrong = Object.entries(read).find(([, value]) => typeof value !== 'string');
  if (wrong) return `The value of ${JSON.stringify(wrong[0])} must be a text.`;
  return read as Record<string, string>;
}
