// The rights of the signed-in user, as the servers compute them.

import { lacks, lacksEverywhere, lacksLevel, lacksSomeVariable, lacksTerminal, lacksVariable } from '../lib/rights';
import type { Capabilities } from './types';

class Rights {
  /** Unknown without a token, and while they are read: then a verb is offered, and the servers decide. */
  own = $state.raw<Capabilities | undefined>();

  /** Returns the capability that the user lacks in a namespace; empty if one of them is there. */
  missing(ns: string, ...caps: string[]): string {
    return lacks(this.own, ns, caps);
  }

  /** Returns the capability that the user lacks in the namespaces of lists: in one of them, or for `*` in all. */
  missingIn(ns: string, ...caps: string[]): string {
    return ns === '*' ? lacksEverywhere(this.own, caps) : lacks(this.own, ns, caps);
  }

  /** Returns the capability that the user lacks for a terminal in tasks of some drivers. */
  missingTerminal(ns: string, drivers: string[]): string {
    return lacksTerminal(this.own, ns, drivers);
  }

  /** Returns the right to a variable that the user lacks; empty if it is there. */
  missingVariable(ns: string, path: string, cap: 'write' | 'destroy'): string {
    return lacksVariable(this.own, ns, path, cap);
  }

  /** Returns the right to write variables if the user has it for no path of a namespace, or for `*` of any. */
  missingNewVariable(ns: string): string {
    return lacksSomeVariable(this.own, ns);
  }

  /** Returns `management` if the user lacks it. */
  missingManagement(): string {
    return !this.own || this.own.Management ? '' : 'management';
  }

  /** Returns the right to agents that the user lacks; empty if it is there. */
  missingAgent(): string {
    return lacksLevel(this.own, 'Agent', 'read');
  }

  /** Returns the right to nodes that the user lacks; empty if it is there. */
  missingNode(): string {
    return lacksLevel(this.own, 'Node', 'write');
  }
}

export const rights = new Rights();
