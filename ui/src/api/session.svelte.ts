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

  /** Keeps a secret, for all tabs or for this one. */
  signIn(token: string, onlyHere: boolean): void {
    (onlyHere ? sessionStorage : localStorage).setItem(KEY, token);
    (onlyHere ? localStorage : sessionStorage).removeItem(KEY);
    this.token = token;
  }

  signOut(): void {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    this.token = '';
  }
}

export const session = new Session();

// Another tab signed in or out.
addEventListener('storage', (event) => {
  if (event.key === KEY && event.storageArea === localStorage && !read(sessionStorage)) {
    session.token = event.newValue ?? '';
  }
});
