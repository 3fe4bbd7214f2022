/** Evaluations in shards, which several processes can run, and the report that one process would have made of them. */
import { ArgumentError } from '@winnow/tensor';
import type { ConfigurationReport, EvaluateOptions, EvaluationReport, EvaluationShard } from './evaluate.js';

/** Every part of every configuration. `evaluateModel` runs one as `shard`, with otherwise the same options. */
export function evaluationShards({
  configurations,
  parts,
}: Pick<EvaluateOptions, 'configurations' | 'parts'>): EvaluationShard[] {
  return configurations.flatMap((_, configuration) => parts.map((part) => ({ configuration, part })));
}

/**
 * The report of all shards, which is that of one call without shards. Speeds are those of the processes that measured them.
 * @param reports of the shards of `evaluationShards`, in this order
 * @throws {ArgumentError} for none, or for reports of different models, backends, texts, seeds or forms of tasks
 */
export function mergeEvaluations(reports: readonly EvaluationReport[]): EvaluationReport {
  const [first] = reports;
  if (first === undefined) throw new ArgumentError({ argument: 'reports', expected: 'at least one', actual: 'none' });
  const subjectOf = (report: EvaluationReport): string => {
    const { model, backend, numTokens, attentionTokens, seed, taskForm } = report;
    const sizes = `${numTokens} tokens, ${attentionTokens} of them for attention`;
    return `${model} on ${backend}, ${sizes}, seed ${seed}, tasks as ${taskForm}`;
  };
  const other = reports.find((report) => subjectOf(report) !== subjectOf(first));
  if (other !== undefined) {
    const [expected, actual] = [`reports of ${subjectOf(first)}`, subjectOf(other)];
    throw new ArgumentError({ argument: 'reports', expected, actual });
  }
  const merged = new Map<string, ConfigurationReport>();
  for (const report of reports.flatMap(({ configurations }) => configurations)) {
    const known = merged.get(report.label);
    merged.set(report.label, known === undefined ? report : mergeConfigurations(known, report));
  }
  return {
    ...first,
    skippedLayers: reports.find(({ skippedLayers }) => skippedLayers.length > 0)?.skippedLayers ?? [],
    configurations: [...merged.values()],
    determinism: reports.flatMap(({ determinism }) => determinism),
  };
}

/** Each figure is of one part, so at most one of the two has it. */
function mergeConfigurations(a: ConfigurationReport, b: ConfigurationReport): ConfigurationReport {
  return {
    ...a,
    refusal: a.refusal ?? b.refusal,
    kvBytesPerToken: a.kvBytesPerToken ?? b.kvBytesPerToken,
    logits: { ...a.logits, ...b.logits },
    attention: [...a.attention, ...b.attention],
    tasks: [...a.tasks, ...b.tasks],
    speed: [...a.speed, ...b.speed],
  };
}
