/** `winnow worker`: answers the lines of batches that wait in a queue. */
import type { Command } from 'commander';
import type { EmbeddingModel } from '@winnow/engine';
import { addGroup, flag, listOption, numberOption, numberRules } from '../../flags/builders.js';
import { poolingOption } from '../../flags/embedding.js';
import { describe } from '../../flags/help.js';
import { addAttentionOptions, addLoadOptions, addSpeculativeOption, type LoadFlags } from '../../flags/load.js';
import { addSharedCacheOptions } from '../../flags/shared-cache.js';
import { queueOption } from '../queue/open-queue.js';
import type { CommandHost } from '../command-host.js';
import { runWorkerCommand } from './run-worker.js';

export interface WorkerFlags extends LoadFlags {
  readonly queue?: string;
  readonly modelId?: readonly string[];
  readonly embeddingModel?: readonly string[];
  readonly embeddingModelId?: readonly string[];
  readonly reranker?: readonly string[];
  readonly rerankerId?: readonly string[];
  readonly pooling?: EmbeddingModel['pooling'];
  readonly prefixGrouping: boolean;
  readonly evaluations: boolean;
  readonly untilEmpty?: boolean;
  readonly reportEvery: number;
}

const examples = `
Examples:
  $ winnow worker --queue jobs.db
  $ winnow worker model.gguf other.gguf --queue jobs.db --memory 16GB
  $ winnow worker --queue redis://queue.example --embedding-model ./bge-small-en-v1.5 --until-empty

Lines come from winnow batch --queue and winnow serve --queue, texts from winnow embed --queue, parts of evaluations
from winnow eval --queue; a file is for processes of one machine, Redis and PostgreSQL for any. A
worker answers lines for its models, by their ids, and lines that name no model if it has only one. After SIGTERM or
Ctrl-C it finishes the lines that run; the second time it gives them back to the queue. The lines of a worker
that is killed are answered by others after 10 s.
`;

export function registerWorker(program: Command, host: CommandHost): void {
  const command = program.command('worker').argument('[models...]', 'the models (default: the demo model)');
  addGroup(command, {
    heading: 'Worker',
    common: [
      queueOption('where the lines wait'),
      listOption('--model-id <id>', 'id of a model in lines, in the order of the models; may be repeated'),
      listOption('--embedding-model <model>', 'model for lines of /v1/embeddings; may be repeated'),
      listOption('--embedding-model-id <id>', 'id of an embedding model in lines, in their order; may be repeated'),
      listOption('--reranker <model>', 'model for lines of /v1/rerank; may be repeated'),
      listOption('--reranker-id <id>', 'id of a reranker in lines, in their order; may be repeated'),
      numberOption(
        '--max-sessions <n>',
        'maximum number of lines at once per model (default: as many as fit the memory, at most 32)',
        numberRules.count,
      ),
      flag('--until-empty', 'exit when no line waits or runs (default: wait for more)'),
    ],
    advanced: [
      poolingOption(),
      numberOption('--report-every <s>', 'seconds between reports of progress', numberRules.positive).default(10),
      flag('--no-prefix-grouping', 'lines that begin alike do not wait for the first of them'),
      flag('--no-evaluations', 'leave parts of winnow eval --queue, which load the model once more, to other workers'),
    ],
  });
  addSpeculativeOption(addLoadOptions(addAttentionOptions(command)));
  addSharedCacheOptions(command);
  addGroup(command, {
    heading: 'Output',
    common: [
      flag('--json', 'print a line of JSON per report: answered, failed, waiting, ...'),
      flag('-q, --quiet', 'print only errors to stderr'),
    ],
  });
  describe(command, 'Answers the lines of batches that wait in a queue.', examples);
  command.action((models: readonly string[], flags: WorkerFlags) =>
    host.run(flags, (context) => runWorkerCommand(models, flags, context)),
  );
}
