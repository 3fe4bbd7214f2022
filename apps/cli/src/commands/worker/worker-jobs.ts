/** What a worker does besides lines of batches: texts to embed, and parts of evaluations. */
import type { JobHandler, WorkerPool } from '@winnow/jobs';
import { batchLineHandler } from '@winnow/server';
import type { LineFigures } from '../batch/figures.js';
import type { LineServer } from '../batch/line-server.js';
import type { CommandContext } from '../command-host.js';
import { evaluationQueueOf, evaluationShardHandler } from '../eval/shards.js';
import { textQueueOf, textShardHandler, type EmbeddedShard } from '../queue/text-shards.js';
import type { WorkerFlags } from './command.js';

/** Texts are embedded one after the other; one more part is prepared meanwhile. */
const numTextShards = 2;

export interface WorkerJobs {
  readonly pools: readonly WorkerPool[];
  readonly handler: JobHandler;
}

/** Pools and handlers of all kinds of jobs. The queue of a job tells its kind. */
export function workerJobs(
  { server, pools, models, embeddingModels }: LineServer,
  flags: WorkerFlags,
  figures: LineFigures,
  context: CommandContext,
): WorkerJobs {
  const handlers = new Map<string, JobHandler>();
  const ofTexts = new Map(embeddingModels.map(({ id, model }) => [textQueueOf(id), model]));
  const [only] = embeddingModels;
  if (only !== undefined && embeddingModels.length === 1) ofTexts.set(textQueueOf(undefined), only.model);
  const embed = figures.counted(textShardHandler(ofTexts), (result) => {
    return { prompt_tokens: (JSON.parse(result) as EmbeddedShard).numTokens };
  });
  for (const queue of ofTexts.keys()) handlers.set(queue, embed);
  const ofEvaluations = new Map(models.map(({ id, model }) => [evaluationQueueOf(id), model]));
  const evaluate = figures.counted(evaluationShardHandler(ofEvaluations, flags, context), () => ({}));
  if (flags.evaluations) for (const queue of ofEvaluations.keys()) handlers.set(queue, evaluate);
  const { prefixGrouping } = flags;
  const answer = figures.counted(batchLineHandler((request) => server.call(request), { prefixGrouping }));
  const others = [
    { queues: [...ofTexts.keys()], concurrency: numTextShards },
    { queues: flags.evaluations ? [...ofEvaluations.keys()] : [], concurrency: 1 },
  ];
  return {
    pools: [...pools, ...others.filter(({ queues }) => queues.length > 0)],
    handler: (job, running) => (handlers.get(job.queue) ?? answer)(job, running),
  };
}
