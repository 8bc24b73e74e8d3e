// Differences of jobs as lines, from the nested objects of the API.

export interface FieldDiff {
  Type: string;
  Name: string;
  Old: string;
  New: string;
  Annotations?: string[] | null;
}

export interface ObjectDiff {
  Type: string;
  Name: string;
  ID?: string;
  Fields?: FieldDiff[] | null;
  Objects?: ObjectDiff[] | null;
  TaskGroups?: ObjectDiff[] | null;
  Tasks?: ObjectDiff[] | null;
  Updates?: Record<string, number> | null;
  Annotations?: string[] | null;
}

export interface DiffLine {
  depth: number;
  /** `+`, `-`, `±` or empty. */
  sign: string;
  text: string;
}

const SIGNS: Record<string, string> = { Added: '+', Deleted: '-', Edited: '±' };

function fieldText(field: FieldDiff): string {
  const show = (text: string) => JSON.stringify(text);
  const notes = field.Annotations?.length ? ` (${field.Annotations.join(', ')})` : '';
  if (field.Type === 'Added') return `${field.Name}: ${show(field.New)}${notes}`;
  if (field.Type === 'Deleted') return `${field.Name}: ${show(field.Old)}${notes}`;
  return `${field.Name}: ${show(field.Old)} → ${show(field.New)}${notes}`;
}

/** Returns the changed fields and objects of a difference, each object before its parts. */
export function lines(diff: ObjectDiff, kind = 'job', depth = 0): DiffLine[] {
  const out: DiffLine[] = [];
  if (diff.Type === 'None') return out;
  const updates = Object.entries(diff.Updates ?? {}).map(([what, number]) => `${number} ${what}`);
  const notes = [...updates, ...(diff.Annotations ?? [])];
  const title = [kind, diff.ID ?? diff.Name].filter(Boolean).join(' ');
  out.push({ depth, sign: SIGNS[diff.Type] ?? '', text: title + (notes.length ? ` (${notes.join(', ')})` : '') });
  for (const field of diff.Fields ?? []) {
    if (field.Type !== 'None') out.push({ depth: depth + 1, sign: SIGNS[field.Type] ?? '', text: fieldText(field) });
  }
  for (const object of diff.Objects ?? []) out.push(...lines(object, '', depth + 1));
  for (const group of diff.TaskGroups ?? []) out.push(...lines(group, 'group', depth + 1));
  for (const task of diff.Tasks ?? []) out.push(...lines(task, 'task', depth + 1));
  return out;
}
