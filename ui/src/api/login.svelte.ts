// Logins by another service: its methods, leaving for the service, and the place to which the user returns.

import { nonce, safeAddress } from '../lib/oidc';
import { call } from './client';
import { uiRoot } from './places';

export interface Method {
  Name: string;
  Type: string;
  Default: boolean;
}

const NONCE = 'nomadOIDCNonce';
const METHOD = 'nomadOIDCAuthMethod';
const PLACE = 'caravanSignInPlace';
/** How long the list of methods is used, in milliseconds. */
const KEPT = 60_000;

/** The address to which the service returns; the method must allow it. */
const BACK = new URL('settings/tokens', uiRoot).href;

class Methods {
  /** The methods of the cluster, the default one first. */
  rows = $state.raw<Method[]>([]);
  private read = -Infinity;

  /** Reads the methods. Without `again`, a list that was read shortly before is enough: a page may have several refused panels. */
  load(again = false): void {
    const now = performance.now();
    if (!again && now - this.read < KEPT) return;
    this.read = now;
    call<Method[] | null>('acl/auth-methods').then(
      ({ data }) => (this.rows = (data ?? []).toSorted((one, two) => Number(two.Default) - Number(one.Default))),
      // Without the list, the token can still be typed.
      () => (this.read = -Infinity),
    );
  }

  of(type: string): Method[] {
    return this.rows.filter((row) => row.Type === type);
  }
}

export const methods = new Methods();

/** Sends the user to the service of a method. `place` is the address below `/ui/` to which the user returns. */
export async function leave(name: string, place: string): Promise<void> {
  const secret = nonce();
  localStorage.setItem(NONCE, secret);
  localStorage.setItem(METHOD, name);
  sessionStorage.setItem(PLACE, place);
  const body = { AuthMethodName: name, ClientNonce: secret, RedirectURI: BACK };
  const answer = await call<{ AuthURL: string }>('acl/oidc/auth-url', { method: 'POST', body });
  if (!answer.data.AuthURL) throw new Error(`The method ${name} is not set up for this page: it must allow ${BACK}`);
  location.assign(safeAddress(answer.data.AuthURL));
}

/** Exchanges what the service returned for a secret. */
export async function exchange(code: string, state: string, issuer: string): Promise<string> {
  const body = {
    AuthMethodName: localStorage.getItem(METHOD) ?? '',
    ClientNonce: localStorage.getItem(NONCE) ?? '',
    Code: code,
    State: state,
    Iss: issuer,
    RedirectURI: BACK,
  };
  forget();
  if (!body.ClientNonce) throw new Error('This browser did not begin the login. Begin again.');
  const answer = await call<{ SecretID: string }>('acl/oidc/complete-auth', { method: 'POST', body });
  return answer.data.SecretID;
}

/** Removes what a login that is under way keeps in the browser, except for the place. */
export function forget(): void {
  localStorage.removeItem(NONCE);
  localStorage.removeItem(METHOD);
}

/** Returns the place of the user before the login, once. */
export function takePlace(): string | undefined {
  const place = sessionStorage.getItem(PLACE) ?? undefined;
  sessionStorage.removeItem(PLACE);
  return place;
}
