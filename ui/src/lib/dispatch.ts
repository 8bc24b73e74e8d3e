// The input of a dispatch.

/** Returns text as base64 of its UTF-8 form. */
export function base64(text: string): string {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Returns the body of a dispatch. Metadata without a value is left out: the job's own value counts. */
export function dispatchBody(payload: string, meta: Record<string, string>, prefix: string): object {
  const filled = Object.entries(meta).filter(([, value]) => value !== '' && value !== undefined);
  return { Payload: payload === '' ? '' : base64(payload), Meta: Object.fromEntries(filled), IdPrefixTemplate: prefix.trim() };
}
