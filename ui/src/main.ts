import { mount } from 'svelte';
import './app.css';
import { call, CallError } from './api/client';
import { session } from './api/session.svelte';
import { onceFault } from './lib/token';
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
    // An older secret of this browser may be invalid, and has no part in the exchange.
    const answer = await call<{ Token: { SecretID: string } }>('acl/token/onetime/exchange', { method: 'POST', body, token: '' });
    session.signIn(answer.data.Token.SecretID, false);
  } catch (error) {
    session.notice = onceFault(error instanceof CallError ? error : { status: 0, message: String(error) });
  }
}

void exchange().then(() => {
  start();
  const target = document.getElementById('app');
  if (target) mount(App, { target });
});
