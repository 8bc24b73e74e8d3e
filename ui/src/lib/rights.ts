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

/** Returns the right that is missing for a level, such as `node:write`. */
export function lacksLevel(own: Capabilities | undefined, part: 'Node' | 'Agent' | 'Operator' | 'Plugin', level: 'read' | 'write'): string {
  if (!own || own.Management) return '';
  const order = ['', 'list', 'read', 'write'];
  return order.indexOf(own[part]) >= order.indexOf(level) ? '' : `${part.toLowerCase()}:${level}`;
}
