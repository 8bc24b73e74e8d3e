// Proxies in front of an agent, as operators run them: one that removes a prefix, one that balances agents of two versions.

import { createServer, request as plainRequest } from 'node:http';
import { request as tlsRequest } from 'node:https';

/** Sends a request on to an agent. */
function onward(agent, from, path) {
  const target = new URL(agent);
  const send = target.protocol === 'https:' ? tlsRequest : plainRequest;
  return send({ host: target.hostname, port: target.port, path, method: from.method, headers: from.headers });
}

/** Starts a server; `answer` gets the request and its response. Websockets are passed on with the path of `place`. */
async function start(agent, place, answer) {
  const server = createServer(answer);
  server.on('upgrade', (from, socket) => {
    const request = onward(agent, from, place(from.url));
    request.on('upgrade', (response, other) => {
      const headers = Object.entries(response.headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${headers.join('')}\r\n`);
      other.pipe(socket).pipe(other);
      for (const end of [socket, other]) end.on('error', () => (socket.destroy(), other.destroy()));
    });
    request.on('response', () => socket.destroy());
    request.on('error', () => socket.destroy());
    request.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${server.address().port}`;
  return { address, server, close: () => (server.closeAllConnections(), server.close()) };
}

function pass(agent, path, from, to) {
  const request = onward(agent, from, path);
  request.on('response', (answer) => {
    to.writeHead(answer.statusCode, answer.headers);
    answer.pipe(to);
  });
  request.on('error', () => to.destroy());
  to.on('close', () => request.destroy());
  from.pipe(request);
}

/** Starts a proxy that serves an agent below a prefix, such as `/tools/cluster`, and removes the prefix. */
export async function prefixed(agent, prefix) {
  const place = (url) => url.slice(prefix.length);
  return start(agent, place, (from, to) => {
    if (from.url.startsWith(`${prefix}/`)) pass(agent, place(from.url), from, to);
    else to.writeHead(404).end('outside of the prefix');
  });
}

/** Starts a proxy whose connections can be cut. While it is `down`, it ends each connection without an answer. */
export async function fragile(agent) {
  const sockets = new Set();
  const proxy = { isDown: false };
  const own = await start(agent, (url) => url, (from, to) => (proxy.isDown ? from.socket.destroy() : pass(agent, from.url, from, to)));
  own.server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  return Object.assign(proxy, {
    address: own.address,
    close: own.close,
    cut() {
      proxy.isDown = true;
      for (const socket of sockets) socket.destroy();
    },
    mend: () => (proxy.isDown = false),
  });
}

/** The hash in the names of files of the older version. */
const OLDER = 'OLDER000';

/** Reads a file of the page from an agent. */
async function read(agent, path) {
  const answer = await fetch(`${agent}${path}`);
  return { ok: answer.ok, headers: answer.headers, text: await answer.text() };
}

/**
 * Starts a balancer of two agents: the given one, and one of an older version, whose files have other names. `older` decides
 * for each request whether the older agent answers. Returns also the names of files that were not found.
 */
export async function balanced(agent, older) {
  const missing = [];
  // The names of files within texts of the older version differ in their hash.
  const rename = (text) => text.replace(/([\w-]+)-[\w-]{8}\.(js|css)/g, `$1-${OLDER}.$2`);
  const names = new Map();
  const learn = async (path) => {
    const { text } = await read(agent, path);
    for (const [name] of text.matchAll(/[\w-]+-[\w-]{8}\.(?:js|css)/g)) {
      if (names.has(rename(name))) continue;
      names.set(rename(name), name);
      await learn(`/ui/assets/${name}`);
    }
  };
  await learn('/ui/');
  const answer = async (from, to) => {
    const [path] = from.url.split('?');
    const isOlder = older();
    if (!path.startsWith('/ui/') || path === '/ui/boot.js') return pass(agent, from.url, from, to);
    const isFile = path.startsWith('/ui/assets/');
    const name = path.slice('/ui/assets/'.length);
    const known = isOlder ? names.get(name) : name.includes(OLDER) ? undefined : name;
    if (isFile && known === undefined) {
      missing.push(name);
      to.writeHead(404, { 'Content-Type': 'text/plain' }).end('The web page has no such file.\n');
      return undefined;
    }
    const { headers, text } = await read(agent, isFile ? `/ui/assets/${known}` : from.url);
    for (const header of ['content-type', 'content-security-policy', 'x-content-type-options', 'cache-control']) {
      if (headers.has(header)) to.setHeader(header, headers.get(header));
    }
    to.end(isOlder ? rename(text) : text);
    return undefined;
  };
  const server = await start(agent, (url) => url, (from, to) => void answer(from, to).catch(() => to.destroy()));
  return { ...server, missing };
}
