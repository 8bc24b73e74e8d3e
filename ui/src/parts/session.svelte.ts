// A terminal and its connection. The terminal has an element of its own, which moves between the page of a terminal and the
// drawer without an end of the session.

import '@xterm/xterm/css/xterm.css';
import { FitAddon } from '@xterm/addon-fit';
import type { Terminal } from '@xterm/xterm';
import { path, seg, socketAddress } from '../api/client';
import { session } from '../api/session.svelte';
import { makeTerminal } from '../lib/terminal';
import { short } from '../lib/words';

/** What a terminal runs, and where. */
export interface Spec {
  job: string;
  ns: string;
  group: string;
  alloc: string;
  task: string;
  /** The words of the command. */
  command: string[];
  /** The action that runs instead of the command; empty for none. */
  action: string;
}

/** The time between two signs of life, in milliseconds. */
const HEARTBEAT = 10_000;

function encode(text: string): string {
  let binary = '';
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}
function decode(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export class TerminalSession {
  isConnected = $state(false);
  /** How the session ended, in words. */
  note = $state('');
  readonly element = document.createElement('div');
  /** Called when the user leaves the terminal with keys: `up` to the controls, `down` out of the way. */
  onleave: (direction: 'up' | 'down') => void = () => {};
  private readonly terminal: Terminal;
  private readonly release: () => void;
  private readonly fit = new FitAddon();
  private readonly socket: WebSocket;
  private readonly heartbeat: ReturnType<typeof setInterval>;
  private readonly resize = new ResizeObserver(() => this.adapt());
  private isOver = false;

  /** Begins a session within an element of the document: a terminal measures its letters there. */
  constructor(
    readonly spec: Spec,
    box: HTMLElement,
    screenReaderMode: boolean,
  ) {
    this.element.className = 'screen';
    box.replaceChildren(this.element);
    const { terminal, close } = makeTerminal(this.element, { screenReaderMode });
    this.terminal = terminal;
    this.release = close;
    terminal.loadAddon(this.fit);
    this.fit.fit();
    const query = { task: spec.task, tty: 'true', ws_handshake: 'true' };
    const route = spec.action
      ? path(`job/${seg(spec.job)}/action`, { ...query, namespace: spec.ns, action: spec.action, allocID: spec.alloc, group: spec.group })
      : path(`client/allocation/${spec.alloc}/exec`, { ...query, command: JSON.stringify(spec.command) });
    this.socket = new WebSocket(socketAddress(route));
    let outcome = '';
    this.socket.onopen = () => {
      this.isConnected = true;
      this.say({ version: 1, auth_token: session.token });
      this.saySize();
      if (this.element.isConnected) terminal.focus();
    };
    this.socket.onmessage = (event: MessageEvent<string>) => {
      const message = JSON.parse(event.data) as {
        stdout?: { data?: string };
        stderr?: { data?: string };
        exited?: boolean;
        result?: { exit_code?: number };
      };
      const data = message.stdout?.data ?? message.stderr?.data;
      if (data) terminal.write(decode(data));
      if (message.exited) outcome = `The command ended with code ${message.result?.exit_code ?? 0}.`;
    };
    this.socket.onclose = (event) => {
      this.isConnected = false;
      this.note = outcome || `The session ended${event.reason ? `: ${event.reason}` : '.'}`;
      clearInterval(this.heartbeat);
    };
    this.heartbeat = setInterval(() => this.say({}), HEARTBEAT);
    terminal.onData((text) => this.say({ stdin: { data: encode(text) } }));
    terminal.onResize(() => this.saySize());
    // Without a way out, the keyboard could not leave a terminal, which uses Tab itself.
    terminal.attachCustomKeyEventHandler((event) => {
      const leaves = event.ctrlKey && event.shiftKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown');
      if (leaves && event.type === 'keydown') this.onleave(event.key === 'ArrowUp' ? 'up' : 'down');
      return !leaves;
    });
    this.resize.observe(this.element);
  }

  get title(): string {
    const { action, task, job, alloc } = this.spec;
    return `${action ? `${action} in ` : ''}${task} of ${job} ${short(alloc)}`;
  }

  private say(message: object): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
  private saySize(): void {
    this.say({ tty_size: { height: this.terminal.rows, width: this.terminal.cols } });
  }

  /** Fits the terminal to its place. A terminal that is not shown keeps its size. */
  private adapt(): void {
    if (this.element.clientWidth > 0 && this.element.clientHeight > 0) this.fit.fit();
  }

  /** Moves the terminal to another place of the document. */
  moveTo(box: HTMLElement): void {
    box.replaceChildren(this.element);
    this.adapt();
  }

  focus(): void {
    this.terminal.focus();
  }

  /** Ends the session. */
  close(): void {
    if (this.isOver) return;
    this.isOver = true;
    clearInterval(this.heartbeat);
    this.resize.disconnect();
    this.socket.onclose = null;
    this.socket.close();
    this.terminal.dispose();
    this.release();
    this.element.remove();
    this.isConnected = false;
  }
}
