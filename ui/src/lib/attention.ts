// What needs attention: sentences and addresses.

import type { Evaluation, Item, Metric } from '../api/types';
import { to } from './route';
import { count, quoted } from './words';

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

/** Returns the address of the object of an item, and the command that shows the same. */
export function place(item: Item): { href: string; command: string } {
  const inNamespace = `-namespace ${quoted(item.Namespace)}`;
  switch (item.Kind) {
    case 'Job':
      return { href: to.job(item.ID, item.Namespace), command: `caravan job status ${inNamespace} ${quoted(item.ID)}` };
    case 'Deployment':
      return {
        href: to.deployment(item.DetailID, item.ID, item.Namespace),
        command: `caravan deployment status ${inNamespace} ${item.DetailID}`,
      };
    case 'Node':
      return { href: to.node(item.ID), command: `caravan node status ${item.ID}` };
    case 'Plugin':
      return { href: to.plugin(item.ID), command: `caravan plugin status ${quoted(item.ID)}` };
    case 'Volume':
      return { href: to.volume(item.ID, item.Namespace), command: `caravan volume status ${inNamespace} ${quoted(item.ID)}` };
  }
}
