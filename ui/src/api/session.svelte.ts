// The signed-in user: the secret, and where the secret is kept.

const KEY = 'nomadTokenSecret';

function read(store: Storage): string {
  try {
    return store.getItem(KEY) ?? '';
  } catch {
    return '';
  }
}

class Session {
  token = $state(read(sessionStorage) || read(localStorage));
  /** Whether the servers refuse the token: it has ended. What the page shows and what the user typed stay. */
  ended = $state(false);
  /** Whether the servers do not know the token: it was deleted, or it is of another cluster. */
  unknown = $state(false);
  /** Why a sign-in that the page began by itself failed; empty if none did. */
  notice = $state('');
  /** Changes when a user signs in or out. A new token of a signed-in user continues: the page keeps what it shows. */
  epoch = $state(0);

  private set(token: string): void {
    if ((this.token === '') !== (token === '')) this.epoch += 1;
    this.ended = false;
    this.unknown = false;
    if (token) this.notice = '';
    this.token = token;
  }

  /** Keeps a secret, for all tabs or for this one. */
  signIn(token: string, onlyHere: boolean): void {
    (onlyHere ? sessionStorage : localStorage).setItem(KEY, token);
    (onlyHere ? localStorage : sessionStorage).removeItem(KEY);
    this.set(token);
  }

  signOut(): void {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    this.set('');
  }

  /** Takes over what another tab has kept. */
  follow(token: string): void {
    this.set(token);
  }
}

export const session = new Session();

// Another tab signed in or out.
addEventListener('storage', (event) => {
  if (event.key !== KEY || event.storageArea !== localStorage) return;
  // A token of this tab only stays, unless it has ended.
  if (read(sessionStorage)) {
    if (!session.ended || !event.newValue) return;
    sessionStorage.removeItem(KEY);
  }
  session.follow(event.newValue ?? '');
});
