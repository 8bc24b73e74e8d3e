// What a refusal says about a token.

interface Refusal {
  status: number;
  message: string;
}

/** Returns what is wrong with a token, from the answer to the question whose it is, which needs no right. Servers answer an unknown
 * token as if a right were missing. */
export function tokenFault({ status, message }: Refusal): 'expired' | 'unknown' | undefined {
  if (status === 403 && message === 'ACL token expired') return 'expired';
  return status === 401 || status === 403 || (status === 404 && message === 'ACL token not found') ? 'unknown' : undefined;
}

/** Returns the sentence about a token that a user typed. */
export function typedFault(refusal: Refusal): string {
  const words = { expired: 'This token has expired.', unknown: 'The agent does not know this token.' };
  const fault = tokenFault(refusal);
  return fault ? words[fault] : refusal.message;
}

/** Returns the sentence about a one-time token whose exchange failed. */
export function onceFault({ status, message }: Refusal): string {
  const why =
    status === 403 || status === 404
      ? 'it is unknown, was used before, or has expired'
      : message.replace(/\.$/, '');
  return `The one-time token of the address did not sign you in: ${why}.`;
}
