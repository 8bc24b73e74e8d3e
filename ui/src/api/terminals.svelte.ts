// The drawer of terminals: it stays open while the user looks at other pages. The terminals themselves load with the drawer.

import type { TerminalSession } from '../parts/session.svelte';

/** A job, and within it what a terminal is for. Empty texts mean the first one that runs. */
export interface Wish {
  job: string;
  ns: string;
  group: string;
  allocation: string;
  task: string;
}

class Terminals {
  sessions = $state.raw<TerminalSession[]>([]);
  /** The session that the drawer shows; absent while it shows the form. */
  current = $state.raw<TerminalSession | undefined>();
  /** The job for which the drawer shows a form. */
  wish = $state.raw<Wish | undefined>();
  isSmall = $state(false);
  /** Where the focus was before the drawer had it. */
  private opener: HTMLElement | null = null;

  get isOpen(): boolean {
    return this.sessions.length > 0 || this.wish !== undefined;
  }

  /** Opens the drawer with a form for a job. */
  ask(wish: Wish): void {
    this.remember();
    this.wish = wish;
    this.current = undefined;
    this.isSmall = false;
  }

  /** Takes a session over. `isSmall`: the drawer stays out of the way. */
  keep(session: TerminalSession, isSmall: boolean): void {
    this.sessions = [...this.sessions, session];
    this.current = session;
    this.wish = undefined;
    this.isSmall = isSmall;
  }

  show(session: TerminalSession): void {
    this.current = session;
    this.isSmall = false;
  }

  /** Ends a session, or leaves the form. */
  close(session: TerminalSession | undefined): void {
    if (session) {
      session.close();
      this.sessions = this.sessions.filter((other) => other !== session);
    } else this.wish = undefined;
    if (this.current === session || !session) this.current = this.sessions.at(-1);
    if (!this.isOpen) this.giveBack();
  }

  /** Ends all sessions: another user must not find them. */
  closeAll(): void {
    for (const session of this.sessions) session.close();
    this.sessions = [];
    this.current = undefined;
    this.wish = undefined;
  }

  minimise(): void {
    this.isSmall = true;
    this.giveBack();
  }

  /** Notes where the focus is, if it is outside of the drawer. */
  remember(): void {
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && !focused.closest('.drawer')) this.opener = focused;
  }

  /** Returns the focus to its place; if that is gone, to the heading of the page. */
  private giveBack(): void {
    const place = this.opener?.isConnected ? this.opener : document.querySelector<HTMLElement>('main h1');
    place?.focus({ preventScroll: true });
  }
}

export const terminals = new Terminals();
