// The reader of the event stream. It runs in the shared worker, one for all tabs, or in a tab of a browser without one.

import { advance, backoff, merge, readLine, Splitter, type Indexes, type Note } from '../lib/events';

/** The topics that pages follow. */
const TOPICS = [
  'Job',
  'Evaluation',
  'Allocation',
  'Deployment',
  'Node',
  'Service',
  'CSIVolume',
  'CSIPlugin',
  'HostVolume',
  'NodePool',
  'Variable',
  'Namespace',
  'ACLPolicy',
  'ACLToken',
  'ACLRole',
  'ACLAuthMethod',
  'ACLBindingRule',
];

/** The agent sends the newest row of each object at most once in this time, and never ends the stream of a slow reader. */
const COALESCE = '250ms';

/** How often the agent says that it lives when nothing changes, in milliseconds. */
const HEARTBEAT = 4000;
/** After this silence the connection is dead, if the agent did not confirm the heartbeat: its own is every 30 s. */
const SILENCE = 45_000;
/** What the second of two heartbeats may be late, in milliseconds. */
const GRACE = 1000;
/** A stream without a line is one that the caller may not read. Agents end it after ten seconds; this is for lost connections. */
const FIRST_LINE = 15_000;
/** The pause after a refusal. Rights change rarely. */
const REFUSED = 60_000;
/** The first note after a pause is handed out at once, those after it in bundles at this interval. */
const BUNDLE = 80;

export interface Target {
  /** The address of `/v1/`. */
  api: string;
  token: string;
  namespace: string;
  region: string;
}

/** `live`: changes arrive. `refused`: the caller may not read the stream. `offline`: no agent answers. */
export type State = 'connecting' | 'live' | 'refused' | 'offline';

export type FromStream =
  | { kind: 'state'; state: State; denied: string[] }
  /** The stream reports changes from now on. Data of an older index lacks some. */
  | { kind: 'begun'; indexes: Indexes }
  | { kind: 'notes'; notes: Note[] }
  /** Events were lost: everything must be read again. */
  | { kind: 'reset' };

export class Stream {
  state: State = 'connecting';
  denied: string[] = [];
  /** The newest changes that are known. */
  indexes: Indexes = {};
  private hasBegun = false;
  private failures = 0;
  private bundle: Note[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort = new AbortController();
  private wake: (() => void) | undefined;
  private ended = false;
  /** Whether the agent refused the parameter of the heartbeat. */
  private isPlain = false;

  constructor(
    private readonly target: Target,
    private readonly emit: (message: FromStream) => void,
  ) {
    void this.run();
  }

  /** Ends the stream. */
  end(): void {
    this.ended = true;
    this.abort.abort();
    this.wake?.();
  }

  /** Tries again at once, if the stream waits. */
  nudge(): void {
    if (this.state !== 'live') this.wake?.();
  }

  private enter(state: State, denied: string[] = []): void {
    if (this.state === state && this.denied.join() === denied.join()) return;
    this.state = state;
    this.denied = denied;
    this.emit({ kind: 'state', state, denied });
  }

  private async run(): Promise<void> {
    while (!this.ended) {
      const outcome = await this.once().catch(() => 'failed' as const);
      if (this.ended) return;
      if (outcome === 'refused') {
        this.enter('refused');
        await this.pause(REFUSED);
      } else {
        this.failures += 1;
        // A stream that merely ended goes on at once. An agent that fell silent may be there no more.
        if (this.failures > 1 || outcome === 'silent') this.enter('offline');
        await this.pause(backoff(this.failures));
      }
    }
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  private async once(): Promise<'refused' | 'ended' | 'silent'> {
    const { target } = this;
    const address = new URL('event/stream', target.api);
    for (const topic of TOPICS) address.searchParams.append('topic', topic);
    address.searchParams.set('namespace', target.namespace);
    address.searchParams.set('caravan', 'true');
    address.searchParams.set('coalesce', COALESCE);
    if (!this.isPlain) address.searchParams.set('heartbeat', `${HEARTBEAT / 1000}s`);
    if (target.region) address.searchParams.set('region', target.region);
    this.abort = new AbortController();
    let opened = false;
    let late = false;
    let limit = SILENCE;
    let guard: ReturnType<typeof setTimeout> | undefined;
    const expectWithin = (ms: number) => {
      clearTimeout(guard);
      guard = setTimeout(() => {
        late = true;
        this.abort.abort();
      }, ms);
    };
    expectWithin(FIRST_LINE);
    try {
      const headers: Record<string, string> = target.token ? { 'X-Nomad-Token': target.token } : {};
      const response = await fetch(address, { headers, signal: this.abort.signal, cache: 'no-store' });
      if (response.status === 403 || response.status === 401) return 'refused';
      if (response.status === 400 && !this.isPlain) {
        this.isPlain = true;
        return 'ended';
      }
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const splitter = new Splitter();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        for (const text of splitter.add(value)) {
          const line = readLine(text);
          if (line.kind === 'gone') {
            this.emit({ kind: 'reset' });
            return 'ended';
          }
          if (line.kind === 'heartbeat') {
            limit = 2 * line.interval + GRACE;
            continue;
          }
          if (!opened) {
            opened = true;
            this.failures = 0;
            this.enter('live', line.kind === 'alive' ? line.denied : []);
            this.begin(line.kind === 'alive' ? line.indexes : {});
          }
          if (line.kind === 'notes') this.collect(line.notes);
        }
        expectWithin(limit);
      }
      return opened ? 'ended' : 'refused';
    } catch (error) {
      // An agent that sent lines before, and now sends none, is silent. Another one may hold the stream back from its reader.
      if (late) return opened || this.hasBegun ? 'silent' : 'refused';
      throw error;
    } finally {
      clearTimeout(guard);
    }
  }

  /** Reports what changed before the stream. An agent of an older version does not know, so everything is read again. */
  private begin(indexes: Indexes): void {
    this.indexes = indexes;
    if (Object.keys(indexes).length > 0 || !this.hasBegun) this.emit({ kind: 'begun', indexes });
    else this.emit({ kind: 'reset' });
    this.hasBegun = true;
  }

  private collect(notes: Note[]): void {
    this.indexes = advance(this.indexes, notes);
    this.bundle.push(...notes);
    if (this.timer === undefined) this.handOut();
  }

  /** Hands out the bundle, and the next one after a pause, as long as notes arrive. */
  private handOut(): void {
    this.timer = undefined;
    if (this.bundle.length === 0) return;
    const notes = merge(this.bundle);
    this.bundle = [];
    this.emit({ kind: 'notes', notes });
    this.timer = setTimeout(() => this.handOut(), BUNDLE);
  }
}
