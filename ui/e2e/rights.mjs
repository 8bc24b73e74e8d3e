// Sessions with and without rights: node rights.mjs ADDRESS MANAGEMENT-SECRET LIMITED-SECRET. The limited token may read the
// jobs of the namespace `default`, in which the job `web` runs, and its variables below `app`, and write
// `app/own`. Prints `the session is over`.

import { generateKeyPairSync, sign } from 'node:crypto';
import { createServer } from 'node:http';
import { accessible } from './accessible.mjs';
import { address, api, browser, expect, heading, live, open, session } from './browser.mjs';

const [management, limited] = process.argv.slice(3);
const asManager = (method) => ({ method, headers: { 'X-Nomad-Token': management } });

async function signIn(page, secret) {
  await page.goto(`${address}/ui/settings/tokens`);
  await page.getByRole('textbox', { name: 'Token' }).fill(secret);
  await page.getByRole('button', { name: 'Sign in' }).click();
}

/** Starts a provider of OIDC that lets everybody in as `ada`. */
async function provider() {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const nonces = new Map();
  let root = '';
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const server = createServer((request, response) => {
    const url = new URL(request.url, root);
    const json = (value) => response.setHeader('Content-Type', 'application/json').end(JSON.stringify(value));
    if (url.pathname === '/.well-known/openid-configuration') {
      json({
        issuer: root,
        authorization_endpoint: `${root}/authorize`,
        token_endpoint: `${root}/token`,
        jwks_uri: `${root}/keys`,
        userinfo_endpoint: `${root}/userinfo`,
        response_types_supported: ['code'],
        subject_types_supported: ['public'],
        id_token_signing_alg_values_supported: ['RS256'],
      });
    } else if (url.pathname === '/keys') {
      json({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] });
    } else if (url.pathname === '/authorize') {
      const code = `code-${nonces.size}`;
      nonces.set(code, url.searchParams.get('nonce'));
      const back = new URL(url.searchParams.get('redirect_uri'));
      back.searchParams.set('code', code);
      back.searchParams.set('state', url.searchParams.get('state'));
      response.writeHead(302, { Location: back.href }).end();
    } else if (url.pathname === '/token') {
      let body = '';
      request.on('data', (data) => (body += data));
      request.on('end', () => {
        const now = Math.floor(Date.now() / 1000);
        const nonce = nonces.get(new URLSearchParams(body).get('code'));
        const claims = { iss: root, sub: 'ada', aud: 'caravan', iat: now, exp: now + 300, nonce, team: 'web' };
        const text = `${part({ alg: 'RS256', kid: 'k' })}.${part(claims)}`;
        const token = `${text}.${sign('sha256', Buffer.from(text), privateKey).toString('base64url')}`;
        json({ access_token: 'a', token_type: 'Bearer', expires_in: 300, id_token: token });
      });
    } else json({ sub: 'ada' });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  root = `http://127.0.0.1:${server.address().port}`;
  return { root, close: () => (server.closeAllConnections(), server.close()) };
}

const steps = {
  async 'access control is written in the page'() {
    const context = await browser.newContext();
    const page = await open('settings/tokens', context);
    await signIn(page, management);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    const tab = async (name, one) => {
      await page.goto(`${address}/ui/administration`);
      await page.getByRole('tab', { name, exact: true }).click();
      await page.getByRole('button', { name: `New ${one}` }).click();
    };
    const field = (name) => page.getByRole('textbox', { name, exact: true });
    const save = () => page.getByRole('button', { name: 'Save' }).click();
    await tab('Policies', 'policy');
    await accessible(page, 'a new policy');
    await field('Name').fill('readers');
    await field('Rules').fill('namespace "default" {');
    await save();
    await page.getByRole('alert').waitFor();
    await field('Rules').fill('namespace "default" { policy = "read" }');
    await save();
    await page.getByRole('heading', { level: 1, name: 'readers' }).waitFor();
    await tab('Roles', 'role');
    await field('Name').fill('team');
    await field('Policies').fill('readers');
    await save();
    await page.getByRole('heading', { level: 1, name: 'team' }).waitFor();
    await tab('Tokens', 'token');
    await field('Name').fill('robot');
    await field('Roles').fill('team');
    await field('Ends after').fill('8h');
    await save();
    await page.getByText('does not show the secret again').waitFor();
    await accessible(page, 'the secret of a new token');
    await page.getByRole('button', { name: 'Done' }).click();
    await page.getByRole('table', { name: 'Tokens' }).getByRole('link', { name: 'robot' }).click();
    await page.getByRole('button', { name: 'Edit' }).click();
    await field('Policies').fill('readers');
    await save();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByText('Delete the token robot?').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete it' }).click();
    await page.getByRole('table', { name: 'Tokens' }).getByRole('link', { name: 'robot' }).waitFor({ state: 'detached' });
    await context.close();
  },

  async 'policies have pages, and a change elsewhere is seen'() {
    const context = await browser.newContext();
    const page = await open('', context);
    await signIn(page, management);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    const write = (Name) =>
      fetch(`${address}/v1/acl/policy/${Name}`, { ...asManager('PUT'), body: JSON.stringify({ Name, Rules: 'namespace "default" { policy = "read" }' }) });
    for (const name of ['paged-a', 'paged-B']) await write(name);
    await page.goto(`${address}/ui/administration/policies?pageSize=1&search=PAGED`);
    await live(page);
    const table = page.getByRole('table', { name: 'Policies' });
    const pages = page.getByRole('navigation', { name: 'Pages' });
    await pages.getByText('1–1 of 2 policies').waitFor();
    await pages.getByRole('button', { name: 'Next page' }).click();
    await pages.getByText('2–2 of 2 policies').waitFor();
    await pages.getByRole('button', { name: 'Previous page' }).click();
    await pages.getByText('1–1 of 2 policies').waitFor();
    await page.goto(`${address}/ui/administration/policies?search=paged`);
    await live(page);
    await table.locator('tbody a').nth(1).waitFor();
    await write('paged-c');
    await table.getByRole('link', { name: 'paged-c' }).waitFor();
    await context.close();
  },

  async 'a login by another service'() {
    const service = await provider();
    const context = await browser.newContext();
    const page = await open('settings/tokens', context);
    await signIn(page, management);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    await page.goto(`${address}/ui/administration/auth-methods/new`);
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill('work');
    await page.getByRole('textbox', { name: 'Tokens end after' }).fill('1h');
    await page.getByRole('textbox', { name: 'Configuration' }).fill(
      JSON.stringify({
        OIDCDiscoveryURL: service.root,
        OIDCClientID: 'caravan',
        OIDCClientSecret: 'secret',
        BoundAudiences: ['caravan'],
        AllowedRedirectURIs: [`${address}/ui/settings/tokens`],
        OIDCDisableUserInfo: true,
        ClaimMappings: { team: 'team' },
      }),
    );
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('heading', { level: 1, name: 'work' }).waitFor();
    await page.goto(`${address}/ui/administration/binding-rules/new`);
    await page.getByRole('textbox', { name: 'Auth method' }).fill('work');
    await page.getByRole('combobox', { name: 'Binds' }).selectOption('policy');
    await page.getByRole('textbox', { name: 'Name of the role or policy' }).fill('readers');
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('button', { name: 'Edit' }).waitFor();
    await page.goto(`${address}/ui/settings/tokens`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.goto(`${address}/ui/clients`);
    await page.getByRole('main').getByRole('link', { name: 'Sign in' }).click();
    await page.getByRole('button', { name: 'Continue with work' }).click();
    // Back at the place where the user was.
    await heading(page, 'Nodes');
    expect(!page.url().includes('code='), `no code in ${page.url()}`);
    await page.goto(`${address}/ui/settings/tokens`);
    await page.getByText('readers').first().waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    // A refused panel offers the service itself, and the login returns to the address of the panel.
    await page.goto(`${address}/ui/jobs/web@default/versions?diffVersion=0`);
    const refused = page.getByRole('region', { name: 'Versions' });
    await refused.getByText('Sign in').waitFor();
    await accessible(page, 'a refused panel with a service');
    await refused.getByRole('button', { name: 'Continue with work' }).click();
    await page.getByRole('heading', { name: 'Version 0' }).waitFor();
    expect(page.url().endsWith('/ui/jobs/web@default/versions?diffVersion=0'), `the address of the panel, not ${page.url()}`);
    await page.goto(`${address}/ui/settings/tokens`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.goto(`${address}/ui/settings/tokens?error=access_denied&error_description=no`);
    await page.getByRole('alert').getByText('access_denied: no').waitFor();
    await context.close();
    service.close();
  },

  async 'a missing right costs a panel and is named'() {
    const page = await open('');
    await heading(page, 'Overview');
    await page.getByText('Objects that need these rights are missing').waitFor();
    expect((await page.getByRole('list', { name: 'Counts' }).count()) === 0, 'no zeros of what the user may not read');
    await page.goto(`${address}/ui/clients`);
    await page.getByText('node:read').waitFor();
    await accessible(page, 'a refused panel');
    await page.getByRole('main').getByRole('link', { name: 'Sign in' }).click();
    await heading(page, 'Sign in');
    await signIn(page, '00000000-0000-0000-0000-000000000000');
    await page.getByRole('alert').getByText('does not know').waitFor();
    await page.close();
  },

  async 'a limited token sees its namespace, live'() {
    const context = await browser.newContext();
    const page = await open('settings/tokens', context);
    await signIn(page, limited);
    await page.getByText('limited', { exact: true }).first().waitFor();
    await accessible(page, 'the token of the user');
    expect(!(await page.content()).includes(limited), 'the secret to be hidden');
    await page.goto(`${address}/ui/`);
    const counts = page.getByRole('list', { name: 'Counts' });
    await counts.getByRole('link', { name: 'Jobs' }).waitFor();
    expect((await counts.getByRole('link', { name: 'Nodes' }).count()) === 0, 'no count of nodes');
    await page.goto(`${address}/ui/settings/tokens`);
    const other = await open('jobs', context);
    await other.getByRole('table', { name: 'Jobs' }).getByRole('link', { name: 'web', exact: true }).click();
    await heading(other, 'web');
    await live(other);
    const stop = other.getByRole('button', { name: 'Stop' });
    await other.locator('button[disabled]', { hasText: 'Stop' }).waitFor();
    expect(/submit-job|deregister-job/.test(await stop.getAttribute('title')), 'the missing right as the reason');
    await other.getByRole('tab', { name: 'Logs' }).click();
    await other.getByRole('tabpanel').getByText('This needs the right read-logs.').waitFor();
    await accessible(other, 'a refused log');
    for (const path of ['app/a', 'app/own']) {
      const body = JSON.stringify({ Namespace: 'default', Path: path, Items: { colour: 'blue' } });
      await api(`var/${path}`, { ...asManager('PUT'), body });
    }
    const disabled = (verb) => page.locator('button[disabled]', { hasText: verb });
    await page.goto(`${address}/ui/variables/var/app/a@default`);
    await disabled('Edit').waitFor();
    expect((await disabled('Edit').getAttribute('title')).includes('variables write'), 'the missing right as the reason');
    await page.goto(`${address}/ui/variables/var/app/own@default`);
    await disabled('Delete').waitFor();
    await page.getByRole('button', { name: 'Edit', disabled: false }).waitFor();
    await page.goto(`${address}/ui/variables/new?path=app/other`);
    await disabled('Save').waitFor();
    await page.getByRole('textbox', { name: 'Path' }).fill('app/own');
    await page.getByRole('button', { name: 'Save', disabled: false }).waitFor();
    await page.goto(`${address}/ui/settings/tokens`);
    await other.goto(`${address}/ui/exec/web@default`);
    await other.getByRole('main').getByText('This needs the right alloc-exec.').waitFor();
    expect(await other.getByRole('button', { name: 'Open terminal' }).isDisabled(), 'no terminal without its right');
    await accessible(other, 'a refused terminal');
    await other.goto(`${address}/ui/jobs/run?namespace=elsewhere`);
    await other.locator('button[disabled]', { hasText: 'Keep as template' }).waitFor();
    await other.goto(`${address}/ui/jobs/web@default`);
    await heading(other, 'web');
    await live(other);
    await api('job/web', asManager('DELETE'));
    await other.getByText('stopped').waitFor();
    await other.goto(`${address}/ui/clients`);
    await other.getByText('node:read').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await other.getByRole('banner').getByRole('button', { name: 'Sign in' }).waitFor();
    await context.close();
  },

  async 'a token that ends warns, and nothing is lost at its end'() {
    const context = await browser.newContext();
    const made = await api('acl/token', {
      ...asManager('POST'),
      body: JSON.stringify({ Name: 'short', Type: 'management', ExpirationTTL: 25_000_000_000 }),
    });
    const page = await open('settings/tokens', context);
    await signIn(page, made.SecretID);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    await page.goto(`${address}/ui/variables/new?path=kept/here`);
    await page.getByRole('textbox', { name: 'Key 1' }).fill('colour');
    await page.getByRole('textbox', { name: 'Value 1' }).fill('orange');
    await page.getByRole('status', { name: 'Token' }).getByText('ends in less than a minute').waitFor({ state: 'attached' });
    await accessible(page, 'the warning before the end of a token');
    const list = await open('clients', context);
    await list.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    await page.bringToFront();
    await page.getByRole('alert').getByText('not valid any more').waitFor({ timeout: 60_000 });
    await page.getByRole('button', { name: 'Sign in' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('textbox', { name: 'Token' }).fill('wrong');
    await dialog.getByRole('button', { name: 'Sign in' }).click();
    await dialog.getByRole('alert').waitFor();
    await accessible(page, 'signing in again');
    await dialog.getByRole('textbox', { name: 'Token' }).fill(management);
    await dialog.getByRole('button', { name: 'Sign in' }).click();
    await dialog.waitFor({ state: 'hidden' });
    expect(page.url().endsWith('variables/new?path=kept/here'), `the same address, not ${page.url()}`);
    expect((await page.getByRole('textbox', { name: 'Value 1' }).inputValue()) === 'orange', 'what was typed to stay');
    await page.getByRole('button', { name: 'Save' }).click();
    await heading(page, 'kept/here');
    // The other tab goes on with the new token.
    await list.bringToFront();
    await list.getByRole('alert').waitFor({ state: 'detached' });
    await list.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    await context.close();
  },

  async 'a one-time token signs in and leaves the address'() {
    const context = await browser.newContext();
    const once = (await api('acl/token/onetime', asManager('POST'))).OneTimeToken.OneTimeSecretID;
    const page = await open(`clients?ott=${once}`, context);
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    expect(!page.url().includes('ott'), `no token in ${page.url()}`);
    // It works once: a second use says so, and leaves the user signed in.
    await page.goto(`${address}/ui/clients?ott=${once}`);
    await page.getByRole('alert').getByText('did not sign you in').waitFor();
    await page.getByText('You are signed in with the token that this browser had before.').waitFor();
    await page.getByRole('table', { name: 'Nodes' }).locator('tbody a').first().waitFor();
    await accessible(page, 'a used one-time token');
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await page.getByRole('alert').waitFor({ state: 'detached' });
    await context.close();
    const other = await browser.newContext();
    const without = await open('clients?ott=00000000-0000-0000-0000-000000000000', other);
    await without.getByRole('alert').getByText('did not sign you in').waitFor();
    await without.getByText('You see what may be seen without a token.').waitFor();
    await other.close();
  },

  async 'a token that the servers do not know is named as the reason'() {
    const context = await browser.newContext();
    const made = await api('acl/token', { ...asManager('POST'), body: JSON.stringify({ Name: 'gone', Type: 'management' }) });
    const page = await open('settings/tokens', context);
    await signIn(page, made.SecretID);
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    await fetch(`${address}/v1/acl/token/${made.AccessorID}`, asManager('DELETE'));
    await page.goto(`${address}/ui/clients`);
    await page.getByRole('alert').getByText('do not know your token').waitFor();
    await accessible(page, 'an unknown token');
    await page.goto(`${address}/ui/settings/tokens`);
    await page.getByRole('alert').getByText('do not know the token that this browser keeps').waitFor();
    await page.getByRole('button', { name: 'Remove it' }).click();
    await heading(page, 'Sign in');
    await context.close();
  },
};

await session(steps, process.argv[5]);
