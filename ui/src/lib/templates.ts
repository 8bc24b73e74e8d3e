// Job templates: variables below `nomad/job-templates`, as in Nomad.

export const TEMPLATES = 'nomad/job-templates';

/** A variable whose item `template` is a job file. */
export interface Template {
  name: string;
  ns: string;
  path: string;
}

/** Returns the templates among paths of variables. */
export function templates(rows: { Path: string; Namespace: string }[]): Template[] {
  return rows
    .filter((row) => row.Path.startsWith(`${TEMPLATES}/`) && row.Path.length > TEMPLATES.length + 1)
    .map((row) => ({ name: row.Path.slice(TEMPLATES.length + 1), ns: row.Namespace, path: row.Path }));
}

/** Returns why a name cannot name a template; empty if it can. */
export function wrongName(name: string): string {
  return /^[a-zA-Z0-9_~-]{1,90}$/.test(name) ? '' : 'A name has letters, digits and the signs - _ ~, and at most 90 of them.';
}
