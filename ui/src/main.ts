import { mount } from 'svelte';
import './app.css';
import { call } from './api/client';
import { session } from './api/session.svelte';
import { start } from './nav.svelte';
import App from './App.svelte';

/** Exchanges a one-time token of the address for its secret, and removes it from the address first. */
async function exchange(): Promise<void> {
  const url = new URL(location.href);
  const once = url.searchParams.get('ott');
  if (!once) return;
  url.searchParams.delete('ott');
  history.replaceState(history.state, '', url);
  try {
    const body = { OneTimeSecretID: once };
    const answer = await call<{ Token: { SecretID: string } }>('acl/token/onetime/exchange', { method: 'POST', body });
    session.signIn(answer.data.Token.SecretID, false);
  } catch {
    // The page then shows what may be seen without a token, and how to sign in.
  }
}

void exchange().then(() => {
  start();
  const target = document.getElementById('app');
  if (target) mount(App, { target });
});
