/** Parts of evaluations, as jobs of a queue. */
import { evaluateModel, type EvaluationReport, type EvaluationShard } from '@winnow/evaluation';
import { JobFailure, type JobHandler } from '@winnow/jobs';
import { ArgumentError, CapacityError, definedFields, FormatError, isRecord, UnsupportedOpError } from '@winnow/tensor';
import type { LoadFlags } from '../../flags/load.js';
import { withCalculator } from '../../models/calculator.js';
import { createModelOpener } from '../../models/model-evaluation.js';
import type { CommandContext } from '../command-host.js';
import { lineInQueue } from '../queue/queued-work.js';
import { evaluateOptionsOf, type EvaluationPlan } from './plan.js';

/** Queue of the evaluations of a model by its id. */
export function evaluationQueueOf(modelId: string): string {
  return `evaluations:${modelId}`;
}

export interface ShardPayload {
  readonly plan: EvaluationPlan;
  readonly shard: EvaluationShard;
  /** How the model is loaded. */
  readonly flags: LoadFlags;
  /** The `weightsHash` of the model, so that figures of different models are never mixed. */
  readonly weightsHash: string;
}

/**
 * Each part loads the model with the settings of its evaluation, in addition to the worker's own.
 * @param models of queues; undefined: the demo model
 * @param own threads and memory of the worker
 */
export function evaluationShardHandler(
  models: ReadonlyMap<string, string | undefined>,
  own: Pick<LoadFlags, 'threads' | 'memory'>,
  context: CommandContext,
): JobHandler {
  const hashes = new Map<string, string>();
  return async ({ queue, payload }, { signal }) => {
    const { plan, shard, flags, weightsHash } = JSON.parse(payload) as Partial<ShardPayload>;
    if (plan === undefined || shard === undefined) throw lineInQueue(queue);
    const loaded = { ...flags, ...definedFields<LoadFlags>({ threads: own.threads, memory: own.memory }) };
    try {
      const { open, location } = await createModelOpener(models.get(queue), loaded, { ...context, signal });
      const engine = await context.io.engine();
      if (!hashes.has(queue)) hashes.set(queue, await engine.weightsHash(location));
      if (hashes.get(queue) !== weightsHash) {
        const message = `the model of the worker has other weights than that of the evaluation`;
        throw new JobFailure({ code: 'other_model', message }, { retry: false });
      }
      const options = evaluateOptionsOf(plan, open);
      return encodeReport(
        await withCalculator(loaded, (backend) => evaluateModel({ ...options, backend, shard, signal })),
      );
    } catch (error) {
      throw failureOf(error);
    }
  };
}

/** Errors that another attempt would run into again. */
function failureOf(error: unknown): unknown {
  const isFinal = [ArgumentError, CapacityError, FormatError, UnsupportedOpError].some((each) =>
    each.isInstance(error),
  );
  if (!isFinal) return error;
  return new JobFailure({ code: 'evaluation_failed', message: (error as Error).message }, { retry: false });
}

const tag = 'notFinite';

/** JSON has no numbers that are not finite. */
function encodeReport(report: EvaluationReport): string {
  return JSON.stringify(report, (_key, value: unknown) =>
    typeof value === 'number' && !Number.isFinite(value) ? { [tag]: String(value) } : value,
  );
}

export function decodeReport(text: string): EvaluationReport {
  return JSON.parse(text, (_key, value: unknown) =>
    isRecord(value) && typeof value[tag] === 'string' ? Number(value[tag]) : value,
  ) as EvaluationReport;
}
