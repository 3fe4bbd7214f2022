/** The file format of results: `report.json` of a run, and the JSON under docs/benchmarks. */
import type { Environment } from '../harness/environment.js';
import type { Figure } from '../harness/figure.js';
import type { PlotData } from '../harness/plots.js';

/** Fields that printed results lack are optional. */
export type RunEnvironment = Omit<Environment, 'v8' | 'date' | 'threads'> &
  Partial<Pick<Environment, 'v8' | 'date' | 'threads'>>;

export interface Run {
  /** The command as typed. */
  readonly command: string;
  readonly environment: RunEnvironment;
  readonly figures: readonly Figure[];
  /** Lines against a length, as measured by suites. */
  readonly plots?: readonly PlotData[];
}

export interface Results {
  readonly runs: readonly Run[];
}

/** JSON with one line per figure, for readable diffs. */
export function formatResults({ runs }: Results): string {
  const list = (values: readonly unknown[]): string =>
    values.length === 0 ? '[]' : `[\n${values.map((value) => `        ${JSON.stringify(value)}`).join(',\n')}\n      ]`;
  const texts = runs.map(({ command, environment, figures, plots }) => {
    const fields = [
      `"command": ${JSON.stringify(command)}`,
      `"environment": ${JSON.stringify(environment)}`,
      `"figures": ${list(figures)}`,
      ...(plots === undefined ? [] : [`"plots": ${list(plots)}`]),
    ];
    return `    {\n${fields.map((field) => `      ${field}`).join(',\n')}\n    }`;
  });
  return `{\n  "runs": [\n${texts.join(',\n')}\n  ]\n}\n`;
}

/** @throws {Error} when the text is invalid */
export function parseResults(text: string, source: string): Results {
  const value = JSON.parse(text) as Partial<Results>;
  const isRun = (run: Partial<Run>): boolean =>
    typeof run.command === 'string' && run.environment?.kind === 'env' && Array.isArray(run.figures);
  if (Array.isArray(value.runs) && value.runs.every(isRun)) return value as Results;
  throw new Error(`${source}: expected {"runs": [{"command", "environment", "figures"}, ...]}, got something else`);
}
