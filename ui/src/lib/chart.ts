// Small charts of usage: what the page saw, as paths of an SVG.

export interface Sample {
  /** Milliseconds. */
  at: number;
  value: number;
}

/** The most samples that a chart keeps: ten minutes of one every two seconds. */
export const MAX_SAMPLES = 300;

/** Adds a sample and drops the oldest ones. A sample of the same time replaces nothing and is left out. */
export function added(samples: Sample[], at: number, value: number): Sample[] {
  if (!Number.isFinite(value) || at <= (samples.at(-1)?.at ?? 0)) return samples;
  return [...samples.slice(-(MAX_SAMPLES - 1)), { at, value }];
}

/** Returns the least, the greatest and the last value. */
export function extremes(samples: Sample[]): { least: number; most: number; last: number } | undefined {
  const last = samples.at(-1);
  if (!last) return undefined;
  const values = samples.map((sample) => sample.value);
  return { least: Math.min(...values), most: Math.max(...values), last: last.value };
}

/** Returns the paths of a line and of the area below it. Time runs to the right, and gaps stay as wide as they were. */
export function area(samples: Sample[], width: number, height: number, most?: number): { line: string; area: string } {
  const first = samples[0];
  const last = samples.at(-1);
  if (!first || !last || samples.length < 2) return { line: '', area: '' };
  const top = Math.max(most ?? 0, extremes(samples)?.most ?? 0) || 1;
  const round = (value: number) => Math.round(value * 10) / 10;
  const points = samples.map(({ at, value }) => {
    const x = (width * (at - first.at)) / (last.at - first.at);
    return `${round(x)} ${round(height - ((height - 2) * Math.max(0, value)) / top)}`;
  });
  const line = `M${points.join('L')}`;
  return { line, area: `${line}L${width} ${height}L0 ${height}Z` };
}
