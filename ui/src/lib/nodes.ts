// The filters of nodes, also those of addresses of Nomad's page.

import { all, contains, isOneOf, own } from './list';

/** States that addresses of Nomad's page switch off one by one, as `state_down=false`. */
const STATES: [name: string, expression: string][] = [
  ['ready', 'Status != "ready"'],
  ['down', 'Status != "down"'],
  ['initializing', 'Status != "initializing"'],
  ['disconnected', 'Status != "disconnected"'],
  ['eligible', 'SchedulingEligibility != "eligible"'],
  ['ineligible', 'SchedulingEligibility != "ineligible"'],
  ['draining', 'DrainStrategy is nil'],
];

/** Returns the expression that an agent has a version. Agents name two: their own, which lists show, and that of Nomad whose API
 * they have. */
function isVersion(value: string | null): string {
  const parts = ['caravan.version', 'nomad.version'].map((name) => isOneOf(`Attributes["${name}"]`, value)).filter((part) => part);
  return parts.length ? `(${parts.join(' or ')})` : '';
}

/** Returns the filter expression of an address. */
export function nodeFilter(query: URLSearchParams): string {
  const volume = query.get('volume');
  return all(
    contains(['Name', 'ID'], query.get('search')),
    isOneOf('Status', query.get('status')),
    isOneOf('NodeClass', query.get('class')),
    isOneOf('Datacenter', query.get('dc')),
    isOneOf('NodePool', query.get('nodePool')),
    isVersion(query.get('version')),
    volume ? `${JSON.stringify(volume)} in HostVolumes` : '',
    ...STATES.map(([name, expression]) => query.get(`state_${name}`) === 'false' && expression),
    own(query.get('filter')),
  );
}
