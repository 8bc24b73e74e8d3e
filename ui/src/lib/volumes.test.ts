import { expect, it } from 'vitest';
import { bytes, created, grown, grownHost, type VolumeForm } from './volumes';

const form = (more: Partial<VolumeForm>): VolumeForm => ({
  kind: 'csi', id: 'data', ns: 'default', plugin: 'hostpath', least: '1GiB', most: '', access: 'single-node-writer', attach: 'file-system',
  parameters: 'a=b=c\n', secrets: '', snapshot: '', node: '', pool: 'default', ...more,
});

it('reads sizes', () => {
  expect([bytes('1024', 'x'), bytes('1.5 GiB', 'x'), bytes('10MB', 'x'), bytes('2g', 'x')]).toEqual([1024, 1610612736, 10485760, 2147483648]);
  for (const text of ['', 'x', '-1', '10 XB']) expect(() => bytes(text, 'Capacity')).toThrow(`Capacity "${text}"`);
});

it('makes the body of each kind and names what is wrong', () => {
  expect(created(form({}))).toMatchObject({ Volumes: [{ ID: 'data', RequestedCapacityMin: 1073741824, Parameters: { a: 'b=c' }, Secrets: {} }] });
  expect(created(form({ kind: 'host', node: 'n' }))).toMatchObject({ Volume: { Name: 'data', NodeID: 'n', NodePool: '' } });
  expect(() => created(form({ id: ' ' }))).toThrow('Name is missing');
  expect(() => created(form({ most: '1MB' }))).toThrow('below the least');
  expect(() => created(form({ secrets: 'x' }))).toThrow('Secrets: "x"');
});

it('repeats the definition of a volume that grows', () => {
  const volume = { ID: 'data', Namespace: 'n', PluginID: 'p', RequestedCapacityMin: 1, RequestedCapacityMax: 5, Capacity: 5, Secrets: null,
    MountOptions: { FSType: 'ext4', MountFlags: ['[REDACTED]'] } };
  expect(grown(volume, 9)).toEqual({ Volumes: [{ ID: 'data', Namespace: 'n', PluginID: 'p', RequestedCapacityMin: 9, RequestedCapacityMax: 9 }] });
  expect(grownHost({ ID: 'i', Name: 'd', State: 'ready' }, 9)).toEqual({
    Volume: { ID: 'i', Name: 'd', RequestedCapacityMinBytes: 9, RequestedCapacityMaxBytes: 0 },
  });
});
