// Which right is missing for a verb.

import type { Capabilities } from '../api/types';

/** Returns the first of several capabilities, if none of them is there; empty if one is, or if the rights are unknown. */
export function lacks(own: Capabilities | undefined, ns: string, caps: string[]): string {
  if (!own || own.Management) return '';
  const has = own.Namespaces[ns] ?? [];
  return caps.some((cap) => has.includes(cap)) ? '' : (caps[0] ?? '');
}

/** Returns the first of several capabilities, if none of them is there in any namespace; empty if one is, or if the rights are unknown. */
export function lacksEverywhere(own: Capabilities | undefined, caps: string[]): string {
  if (!own || own.Management) return '';
  return Object.keys(own.Namespaces).some((ns) => lacks(own, ns, caps) === '') ? '' : (caps[0] ?? '');
}

/** The driver whose tasks are not isolated: a command in one runs on the node itself. */
const BARE = 'raw_exec';

/** Returns the capability that is missing for a terminal in tasks of some drivers; unknown drivers may isolate. */
export function lacksTerminal(own: Capabilities | undefined, ns: string, drivers: string[]): string {
  const isBare = drivers.length > 0 && drivers.every((driver) => driver === BARE);
  return lacks(own, ns, ['alloc-exec']) || (isBare ? lacks(own, ns, ['alloc-node-exec']) : '');
}

/** Returns the right that is missing for a level, such as `node:write`. */
export function lacksLevel(own: Capabilities | undefined, part: 'Node' | 'Agent' | 'Operator' | 'Plugin', level: 'read' | 'write'): string {
  if (!own || own.Management) return '';
  const order = ['', 'list', 'read', 'write'];
  return order.indexOf(own[part]) >= order.indexOf(level) ? '' : `${part.toLowerCase()}:${level}`;
}

/** Whether a pattern, in which `*` stands for any text, matches a whole path. */
export function fits(pattern: string, path: string): boolean {
  const parts = pattern.split('*').map((part) => part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's').test(path);
}

/** Returns the right to a variable that is missing, such as `variables write`; empty if it is there, or if the rights are unknown. */
export function lacksVariable(own: Capabilities | undefined, ns: string, path: string, cap: 'write' | 'destroy'): string {
  if (!own || own.Management || !own.Variables) return '';
  // The servers sort the rules: the first that matches decides.
  const rule = own.Variables[ns]?.find((rule) => fits(rule.Path, path));
  return rule?.Capabilities.includes(cap) ? '' : `variables ${cap}`;
}

/** Returns `variables write` if the user may write no variable at all in a namespace, or for `*` in none. */
export function lacksSomeVariable(own: Capabilities | undefined, ns: string): string {
  if (!own || own.Management || !own.Variables) return '';
  const rules = ns === '*' ? Object.values(own.Variables).flat() : (own.Variables[ns] ?? []);
  return rules.some((rule) => rule.Capabilities.includes('write')) ? '' : 'variables write';
}
