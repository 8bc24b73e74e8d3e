// Logins by another service.

/** Returns whether a text is a JWT: three parts, and longer than the id of a token. */
export function isJwt(text: string): boolean {
  return text.length > 36 && /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text);
}

/** Returns a random text that only this browser knows. */
export function nonce(): string {
  return [...crypto.getRandomValues(new Uint8Array(20))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns an address to which the browser may go for a login. */
export function safeAddress(text: string): string {
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw new Error(`The address of the login is no web address: ${url.protocol}`);
  return url.href;
}

/** What a service returns to the page. */
export interface Returned {
  code: string;
  state: string;
  issuer: string;
  /** The service's own words, if it refused. */
  refusal: string;
}

/** Reads what a service returned; nothing if the address is not one of a return. */
export function returned(query: URLSearchParams): Returned | undefined {
  const text = (name: string) => query.get(name) ?? '';
  const refusal = [text('error'), text('error_description')].filter((part) => part !== '').join(': ');
  if (refusal) return { code: '', state: '', issuer: '', refusal };
  if (!text('code') || !text('state')) return undefined;
  return { code: text('code'), state: text('state'), issuer: text('iss'), refusal: '' };
}
