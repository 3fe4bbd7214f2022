/** `winnow eval --queue`: workers run the parts, and the report is that of one process. */
import { createHash } from 'node:crypto';
import { createConfigurations, evaluationShards, mergeEvaluations, type EvaluationReport } from '@winnow/evaluation';
import type { JobStore, NewJob } from '@winnow/jobs';
import { IoError } from '@winnow/tensor';
import { UsageError } from '../../errors/errors.js';
import { withoutPolicies } from '../../flags/engine-options.js';
import type { LoadFlags } from '../../flags/load.js';
import { displayName } from '../../models/model-location.js';
import type { CommandContext } from '../command-host.js';
import { withoutPassword } from '../queue/open-queue.js';
import { endedJobs, maxAttempts, placedId, runQueued } from '../queue/queued-work.js';
import type { EvalFlags } from './command.js';
import { planEvaluation } from './plan.js';
import { printEvaluation } from './print.js';
import { decodeReport, evaluationQueueOf, type ShardPayload } from './shards.js';

const jobsPerCall = 50;

/** @throws {InterruptedError} by Ctrl-C and SIGTERM; workers go on */
export async function evaluateByQueue(
  modelName: string | undefined,
  url: string,
  flags: EvalFlags,
  context: CommandContext,
): Promise<void> {
  for (const name of ['sparsity', 'pairs'] as const) {
    if (flags[name] !== undefined) throw new UsageError(`--${name}: cannot be combined with --queue`);
  }
  const { plan, name, location } = await planEvaluation(modelName, flags, context);
  const engine = await context.io.engine();
  const weightsHash = await engine.weightsHash(location, { signal: context.signal });
  const queue = evaluationQueueOf(flags.modelId ?? displayName(modelName, name));
  const loaded = loadFlagsOf(flags);
  const configurations = createConfigurations(plan.policies, plan.kvDTypes);
  const jobs = evaluationShards({ configurations, parts: plan.parts }).map((shard, index): NewJob => {
    const payload: ShardPayload = { plan, shard, flags: loaded, weightsHash };
    return { customId: `${shard.configuration} ${shard.part}`, index, payload: JSON.stringify(payload) };
  });
  const content = createHash('sha256').update(jobs.map(({ payload }) => payload).join('\n'));
  const batchId = placedId(`eval ${content.digest('hex')}`, '.');
  const work = {
    ...{ url, batchId, unit: 'parts' as const },
    async enqueue(store: JobStore): Promise<number> {
      for (let at = 0; at < jobs.length; at += jobsPerCall) {
        await store.enqueue(batchId, jobs.slice(at, at + jobsPerCall), { queue, maxAttempts });
      }
      return jobs.length;
    },
    async finish(store: JobStore): Promise<void> {
      const report = await reportOf(store, batchId, url);
      await printEvaluation(modelName, report, flags, context);
    },
  };
  await runQueued(work, flags.cancel === true, context);
}

/** How the model is loaded: flags of what is evaluated are in the plan, those of the output are of this process. */
function loadFlagsOf(flags: EvalFlags): LoadFlags {
  const own = new Set<string>(['queue', 'modelId', 'cancel', 'model', 'json', 'quiet', 'plots', 'details', 'text']);
  return Object.fromEntries(Object.entries(withoutPolicies(flags)).filter(([name]) => !own.has(name)));
}

/** @throws {IoError} for a part that failed; the parts are removed, so that the same command begins anew */
async function reportOf(store: JobStore, batchId: string, url: string): Promise<EvaluationReport> {
  const reports: EvaluationReport[] = [];
  for await (const { result, error, customId } of endedJobs(store, batchId)) {
    if (result === undefined) {
      await store.remove(batchId);
      throw new IoError({
        source: withoutPassword(url),
        message: `part '${customId}' failed: ${error?.message ?? 'it was canceled'}`,
      });
    }
    reports.push(decodeReport(result));
  }
  return mergeEvaluations(reports);
}
