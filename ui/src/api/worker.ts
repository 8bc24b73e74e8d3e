// The shared worker: one event stream for all tabs with the same token and namespace.

import { Stream, type FromStream, type Target } from './stream';

export type ToWorker = { kind: 'hello'; target: Target } | { kind: 'bye' } | { kind: 'nudge' };

const ports = new Set<MessagePort>();
let stream: Stream | undefined;

function emit(message: FromStream): void {
  for (const port of ports) port.postMessage(message);
}

function receive(port: MessagePort, message: ToWorker): void {
  switch (message.kind) {
    case 'hello':
      ports.add(port);
      stream ??= new Stream(message.target, emit);
      port.postMessage({ kind: 'state', state: stream.state, denied: stream.denied } satisfies FromStream);
      // A tab that comes later may have read its data before it was one of the ports.
      if (stream.state === 'live') port.postMessage({ kind: 'begun', indexes: stream.indexes } satisfies FromStream);
      break;
    case 'bye':
      ports.delete(port);
      if (ports.size === 0) {
        stream?.end();
        stream = undefined;
      }
      break;
    case 'nudge':
      stream?.nudge();
      break;
  }
}

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (port) port.onmessage = (message: MessageEvent<ToWorker>) => receive(port, message.data);
};
