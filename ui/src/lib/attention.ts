// What needs attention: from rows of the API to sentences, ranked by trouble.

import type { Deployment, Evaluation, Metric, NodeRow, PluginRow, VolumeExplain } from '../api/types';
import { to } from './route';
import { count, millis, quoted } from './words';

export type Severity = 'failed' | 'waiting' | 'notice';

/** Something that a person should look at. */
export interface Item {
  kind: string;
  name: string;
  href: string;
  severity: Severity;
  reason: string;
  /** When the trouble began, in milliseconds; 0 if unknown. */
  since: number;
  /** The command that shows the same. */
  command: string;
}

/** Returns why a group found no node, as a sentence. */
export function sentence(metric: Metric): string {
  const parts: string[] = [];
  const entries = (map: Record<string, number> | null) =>
    Object.entries(map ?? {}).sort((one, two) => two[1] - one[1]);
  for (const [reason, nodes] of entries(metric.ConstraintFiltered)) {
    parts.push(`${count(nodes, 'node')}: ${reason}`);
  }
  for (const [reason, nodes] of entries(metric.DimensionExhausted)) {
    parts.push(`${count(nodes, 'node has', 'nodes have')} not enough ${reason}`);
  }
  for (const [name, nodes] of entries(metric.ClassFiltered)) {
    parts.push(`${count(nodes, 'node')} of class ${name} do not qualify`);
  }
  for (const quota of metric.QuotaExhausted ?? []) parts.push(`the quota is exhausted: ${quota}`);
  if (metric.NodesEvaluated === 0) parts.push('no node is in the datacenters and the node pool of the job');
  return parts.join('; ') || 'no node was found';
}

/** Returns why an evaluation is blocked, as a sentence. */
export function whyBlocked(evaluation: Evaluation): string {
  const groups = Object.entries(evaluation.FailedTGAllocs ?? {});
  const parts = groups.map(([group, metric]) => `group ${group}: ${sentence(metric)}`);
  return parts.join('. ') || evaluation.StatusDescription || 'it waits for a node';
}

export interface Sources {
  evaluations: Evaluation[];
  deployments: Deployment[];
  nodes: NodeRow[];
  plugins: PluginRow[];
  volumes: VolumeExplain[];
}

const ORDER: Record<Severity, number> = { failed: 0, waiting: 1, notice: 2 };

/** Collects what needs attention, worst and oldest first. */
export function attention(from: Partial<Sources>): Item[] {
  const items: Item[] = [];
  for (const row of from.evaluations ?? []) {
    if (row.Status !== 'blocked') continue;
    items.push({
      kind: 'Job',
      name: row.JobID,
      href: to.job(row.JobID, row.Namespace),
      severity: 'waiting',
      reason: whyBlocked(row),
      since: millis(row.CreateTime),
      command: `caravan eval status ${row.ID}`,
    });
  }
  for (const row of from.deployments ?? []) {
    const groups = Object.values(row.TaskGroups ?? {});
    const promotion =
      row.Status === 'running' &&
      groups.some((group) => group.DesiredCanaries > 0 && !group.Promoted && !group.AutoPromote) &&
      groups.every((group) => group.HealthyAllocs >= group.DesiredCanaries);
    const command = `caravan deployment status ${row.ID}`;
    const base = { kind: 'Deployment', name: row.JobID, href: to.job(row.JobID, row.Namespace, 'deployments'), command };
    if (promotion) {
      items.push({
        ...base,
        severity: 'waiting',
        reason: `version ${row.JobVersion} waits for promotion: its canaries are healthy`,
        since: millis(row.ModifyTime),
      });
    } else if (row.Status === 'paused' || row.Status === 'blocked') {
      items.push({ ...base, severity: 'notice', reason: `the deployment is ${row.Status}`, since: millis(row.ModifyTime) });
    } else if (row.Status === 'running' && groups.some((group) => group.UnhealthyAllocs > 0)) {
      items.push({
        ...base,
        severity: 'failed',
        reason: `version ${row.JobVersion} has unhealthy allocations`,
        since: millis(row.ModifyTime),
      });
    }
  }
  for (const row of from.nodes ?? []) {
    const base = { kind: 'Node', name: row.Name, href: to.node(row.ID), since: 0, command: `caravan node status ${row.ID}` };
    if (row.Status === 'down' || row.Status === 'disconnected') {
      items.push({ ...base, severity: 'failed', reason: row.StatusDescription || `the node is ${row.Status}` });
    } else if (row.Drain) {
      items.push({ ...base, severity: 'notice', reason: 'the node drains' });
    } else if (row.SchedulingEligibility === 'ineligible') {
      items.push({ ...base, severity: 'notice', reason: 'the node takes no allocations: it is ineligible' });
    }
  }
  for (const row of from.plugins ?? []) {
    const controllers = row.ControllerRequired && row.ControllersHealthy < row.ControllersExpected;
    if (!controllers && row.NodesHealthy >= row.NodesExpected) continue;
    items.push({
      kind: 'Plugin',
      name: row.ID,
      href: to.plugin(row.ID),
      severity: row.NodesHealthy === 0 || (row.ControllerRequired && row.ControllersHealthy === 0) ? 'failed' : 'waiting',
      reason: `${row.ControllersHealthy} of ${count(row.ControllersExpected, 'controller')} and ${row.NodesHealthy} of ${count(row.NodesExpected, 'node')} are healthy`,
      since: 0,
      command: `caravan plugin status ${quoted(row.ID)}`,
    });
  }
  for (const row of from.volumes ?? []) {
    const base = {
      kind: 'Volume',
      name: row.ID,
      href: to.volume(row.ID, row.Namespace),
      command: `caravan volume status -namespace ${quoted(row.Namespace)} ${quoted(row.ID)}`,
    };
    if (row.LastError) {
      const since = millis(row.History?.at(-1)?.At);
      items.push({ ...base, severity: 'failed', reason: `${row.Phase}: ${row.LastError}`, since });
    }
    for (const claim of row.Claims ?? []) {
      if (!claim.WaitsFor && !claim.LastError) continue;
      items.push({
        ...base,
        severity: claim.LastError ? 'failed' : 'waiting',
        reason: `the claim of ${claim.JobID} is ${claim.Phase}: ${claim.WaitsFor || claim.LastError}`,
        since: millis(claim.Since),
      });
    }
  }
  const age = (item: Item) => item.since || Number.MAX_SAFE_INTEGER;
  return items.sort((one, two) => ORDER[one.severity] - ORDER[two.severity] || age(one) - age(two));
}
