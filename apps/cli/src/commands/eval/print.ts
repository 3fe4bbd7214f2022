/** Prints the report of an evaluation. */
import { join } from 'node:path';
import { makeFolder } from '@winnow/bytes/node';
import { formatDivergence, formatEvaluation, type EvaluationReport } from '@winnow/evaluation';
import type { CommandContext } from '../command-host.js';
import { displayName } from '../../models/model-location.js';
import { formatJson } from '../../terminal/format.js';
import { writeOutputFile } from '../../terminal/write-file.js';
import type { EvalFlags } from './command.js';

export async function printEvaluation(
  modelName: string | undefined,
  report: EvaluationReport,
  flags: EvalFlags,
  { out, signal }: CommandContext,
): Promise<void> {
  const named = { ...report, model: displayName(modelName, report.model) };
  if (flags.plots !== undefined) await writePlots(flags.plots, named, signal);
  if (flags.json === true) return out.write(formatJson(named));
  await out.writeTables(formatEvaluation(named));
  if (flags.details === true) await out.writeTables(details(named));
}

function details({ configurations }: EvaluationReport): string {
  const blocks = configurations.flatMap(({ label, logits }) =>
    Object.entries(logits).map(([phase, report]) => `\n${label}, ${phase}\n${formatDivergence(report)}`),
  );
  return blocks.join('');
}

async function writePlots(folder: string, report: EvaluationReport, signal: AbortSignal): Promise<void> {
  const { drawQuality, drawTime } = await import('@winnow/evaluation/plots');
  const files = {
    'quality.svg': drawQuality(report),
    'prompt-time.svg': drawTime(report, 'prefill'),
    'answer-time.svg': drawTime(report, 'decode'),
  };
  await makeFolder(folder);
  for (const [name, svg] of Object.entries(files)) {
    if (svg !== undefined) await writeOutputFile(join(folder, name), svg, signal);
  }
}
