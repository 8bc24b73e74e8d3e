import { expect, it } from 'vitest';
import type { VolumeExplain } from '../api/types';
import { hostTarget, offers, target, volumeCommand } from './verbs';

const claim = (NodeID: string, Phase = 'mounted') => ({ NodeID, Phase });
const volume = {
  ID: 'my data', Namespace: 'team', PluginID: 'p', Capacity: { actual: 5 }, Claims: [claim('n1'), claim('n1'), claim('n2', 'gone')],
} as unknown as VolumeExplain;
const host = hostTarget({ ID: 'h', Name: 'cache', Namespace: 'team', PluginID: 'mkdir', CapacityBytes: 0 } as never);

it('offers verbs with their rights', () => {
  expect(offers(target(volume), { n1: 'berlin' }).map((one) => one.word)).toEqual(['Grow', 'New snapshot', 'Detach from berlin', 'Deregister', 'Delete']);
  expect(offers(host).map((one) => [one.verb, one.rights[0]])).toEqual([['grow', 'host-volume-create'], ['delete', 'host-volume-delete']]);
});

it('names the commands', () => {
  expect(volumeCommand(target(volume), 'detach', 'n1')).toBe("caravan volume detach -namespace team 'my data' n1");
  expect(volumeCommand(target(volume), 'snapshot', '', ' a b ')).toBe("caravan volume snapshot create -namespace team 'my data' 'a b'");
  expect(volumeCommand(host, 'delete')).toBe('caravan volume delete -type host -namespace team h');
});
