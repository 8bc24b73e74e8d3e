// Bodies of volumes: creation, growth, snapshots.

/** Reads a size such as `10GiB`, `500 MB` or `1073741824` as bytes. The error names the field. */
export function bytes(text: string, field: string): number {
  const found = /^(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?$/i.exec(text.trim());
  if (!found) throw new Error(`${field} "${text}" is no size such as 10GiB or 500MB.`);
  const power = 'kmgtp'.indexOf((found[2] ?? '').toLowerCase()) + 1;
  // Volumes count as in Nomad's files: GB and GiB are both units of 1024 unless the size is in plain bytes.
  const out = Math.round(Number(found[1]) * (found[2] ? 1024 ** power : 1));
  if (!Number.isSafeInteger(out)) throw new Error(`${field} "${text}" is too large.`);
  return out;
}

export const ACCESS = [
  'single-node-writer',
  'single-node-reader-only',
  'multi-node-reader-only',
  'multi-node-single-writer',
  'multi-node-multi-writer',
];
export const HOST_ACCESS = ['single-node-writer', 'single-node-reader-only', 'single-node-single-writer', 'single-node-multi-writer'];
export const ATTACH = ['file-system', 'block-device'];

export interface VolumeForm {
  kind: 'csi' | 'host';
  id: string;
  ns: string;
  plugin: string;
  least: string;
  most: string;
  access: string;
  attach: string;
  /** `name=value`, one a line. */
  parameters: string;
  secrets: string;
  snapshot: string;
  node: string;
  pool: string;
}

/** Reads `name=value`, one a line. */
export function pairs(text: string, field: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const sign = line.indexOf('=');
      if (sign < 1) throw new Error(`${field}: "${line.trim()}" is not name=value.`);
      return [line.slice(0, sign).trim(), line.slice(sign + 1).trim()];
    }),
  );
}

/** Returns the body that creates a volume. The error names the field. */
export function created(form: VolumeForm): object {
  const id = form.id.trim();
  if (id === '') throw new Error('Name is missing.');
  if (form.plugin.trim() === '') throw new Error('Plugin is missing.');
  const least = form.least.trim() ? bytes(form.least, 'Least capacity') : 0;
  const most = form.most.trim() ? bytes(form.most, 'Most capacity') : 0;
  if (most > 0 && most < least) throw new Error('Most capacity is below the least capacity.');
  const RequestedCapabilities = [{ AccessMode: form.access, AttachmentMode: form.attach }];
  const Parameters = pairs(form.parameters, 'Parameters');
  if (form.kind === 'host') {
    return {
      Volume: {
        Name: id, Namespace: form.ns, PluginID: form.plugin.trim(), NodeID: form.node, NodePool: form.node ? '' : form.pool,
        RequestedCapacityMinBytes: least, RequestedCapacityMaxBytes: most, RequestedCapabilities, Parameters,
      },
    };
  }
  return {
    Volumes: [
      {
        ID: id, Name: id, Namespace: form.ns, PluginID: form.plugin.trim(), SnapshotID: form.snapshot.trim(),
        RequestedCapacityMin: least, RequestedCapacityMax: most, RequestedCapabilities, Parameters,
        Secrets: pairs(form.secrets, 'Secrets'),
      },
    ],
  };
}

/** The fields of a CSI volume that a creation repeats. A volume keeps mount options that are left out, and reads hide their flags. */
const REPEATED = [
  'ID', 'Name', 'Namespace', 'PluginID', 'ExternalID', 'Parameters', 'RequestedCapabilities', 'RequestedTopologies',
  'CloneID', 'SnapshotID', 'CaravanSharedStorage', 'RequestedCapacityMax',
];

/** Returns the body that grows a CSI volume: its creation with a larger capacity. */
export function grown(volume: Record<string, unknown>, to: number): object {
  const body: Record<string, unknown> = {};
  for (const key of REPEATED) if (volume[key] !== undefined) body[key] = volume[key];
  body.RequestedCapacityMin = to;
  // The most that was asked for may lie below the new least.
  if (Number(body.RequestedCapacityMax ?? 0) > 0) body.RequestedCapacityMax = Math.max(Number(body.RequestedCapacityMax), to);
  return { Volumes: [body] };
}

/** Returns the body that grows a host volume. */
export function grownHost(volume: Record<string, unknown>, to: number): object {
  const keys = ['ID', 'Name', 'Namespace', 'PluginID', 'NodeID', 'NodePool', 'Constraints', 'RequestedCapabilities', 'Parameters'];
  const body = Object.fromEntries(keys.filter((key) => volume[key] !== undefined).map((key) => [key, volume[key]]));
  const most = Number(volume.RequestedCapacityMaxBytes ?? 0);
  return { Volume: { ...body, RequestedCapacityMinBytes: to, RequestedCapacityMaxBytes: most > 0 ? Math.max(most, to) : 0 } };
}
