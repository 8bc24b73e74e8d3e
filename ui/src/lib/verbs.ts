// What can be done with volumes, and the commands that do the same.

import type { HostVolumeStub } from '../api/generated';
import type { HostVolume, VolumeExplain } from '../api/types';
import { held } from './storage';
import { quoted, short } from './words';

export type VolumeVerb = 'grow' | 'snapshot' | 'detach' | 'deregister' | 'delete';

/** A volume that a verb is about. */
export interface Target {
  kind: 'csi' | 'host';
  id: string;
  name: string;
  ns: string;
  plugin: string;
  /** Bytes; 0 if they are not known. */
  capacity: number;
  /** The nodes on which claims hold the volume. */
  holders: string[];
}

/** A verb that a volume has. */
export interface Offer {
  verb: VolumeVerb;
  word: string;
  /** The capabilities one of which allows the verb. */
  rights: string[];
  /** The node that the verb is about; empty for the others. */
  node: string;
}

/** Returns a CSI volume as the target of verbs. */
export function target(volume: VolumeExplain): Target {
  return {
    kind: 'csi',
    id: volume.ID,
    name: volume.ID,
    ns: volume.Namespace,
    plugin: volume.PluginID,
    capacity: volume.Capacity?.actual ?? 0,
    holders: [...new Set(held(volume).map((claim) => claim.NodeID))],
  };
}

/** Returns a host volume as the target of verbs. */
export function hostTarget(row: HostVolume | HostVolumeStub): Target {
  return { kind: 'host', id: row.ID, name: row.Name, ns: row.Namespace, plugin: row.PluginID, capacity: row.CapacityBytes, holders: [] };
}

/** Returns the verbs of a volume. `names` are the names of nodes by id. */
export function offers(of: Target, names: Record<string, string> = {}): Offer[] {
  const one = (verb: VolumeVerb, word: string, ...rights: string[]): Offer => ({ verb, word, rights, node: '' });
  if (of.kind === 'host') {
    return [one('grow', 'Grow', 'host-volume-create', 'host-volume-write'), one('delete', 'Delete', 'host-volume-delete', 'host-volume-write')];
  }
  const write = 'csi-write-volume';
  const detach = of.holders.map((node) => ({ ...one('detach', `Detach from ${names[node] ?? short(node)}`, write), node }));
  return [one('grow', 'Grow', write), one('snapshot', 'New snapshot', write), ...detach, one('deregister', 'Deregister', write), one('delete', 'Delete', write)];
}

/** Returns the command that does the same. `word` is what the user typed: a name of a snapshot. */
export function volumeCommand(of: Target, verb: VolumeVerb, node = '', word = ''): string {
  const named = `-namespace ${quoted(of.ns)} ${quoted(of.id)}`;
  switch (verb) {
    case 'grow':
      return 'caravan volume create volume.hcl';
    case 'snapshot':
      return `caravan volume snapshot create ${named} ${quoted(word.trim() || 'NAME')}`;
    case 'detach':
      return `caravan volume detach ${named} ${node}`;
    case 'deregister':
      return `caravan volume deregister ${named}`;
    case 'delete':
      return of.kind === 'host' ? `caravan volume delete -type host ${named}` : `caravan volume delete ${named}`;
  }
}
