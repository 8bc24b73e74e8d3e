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

/** Returns the filter expression of an address. */
export function nodeFilter(query: URLSearchParams): string {
  const volume = query.get('volume');
  return all(
    contains(['Name', 'ID'], query.get('search')),
    isOneOf('Status', query.get('status')),
    isOneOf('NodeClass', query.get('class')),
    isOneOf('Datacenter', query.get('dc')),
    isOneOf('NodePool', query.get('nodePool')),
    // Nomad's agents write their version under `nomad.version`, and this cluster's too.
    isOneOf('Attributes["nomad.version"]', query.get('version')),
    volume ? `${JSON.stringify(volume)} in HostVolumes` : '',
    ...STATES.map(([name, expression]) => query.get(`state_${name}`) === 'false' && expression),
    own(query.get('filter')),
  );
}
