import { expect, it } from 'vitest';
import { nodeFilter } from './nodes';

it.each([
  ['', ''],
  ['status=down', 'Status == "down"'],
  ['class=["big","small"]&dc=dc1', '(NodeClass == "big" or NodeClass == "small") and Datacenter == "dc1"'],
  ['state_down=false&state_ready=true', 'Status != "down"'],
  ['volume=certs&nodePool=gpu', 'NodePool == "gpu" and "certs" in HostVolumes'],
  ['version=1.0', '(Attributes["caravan.version"] == "1.0" or Attributes["nomad.version"] == "1.0")'],
  ['filter=Name == "a"', '(Name == "a")'],
])('%s selects %s', (address, filter) => {
  expect(nodeFilter(new URLSearchParams(address))).toBe(filter);
});
