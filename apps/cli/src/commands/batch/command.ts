/** `winnow batch`: answers a file of requests in OpenAI's batch format. */
import type { EmbeddingModel } from '@winnow/engine';
import type { Command } from 'commander';
import { addGroup, flag, numberOption, numberRules } from '../../flags/builders.js';
import { poolingOption } from '../../flags/embedding.js';
import { describe } from '../../flags/help.js';
import {
  addAttentionOptions,
  addLoadOptions,
  addModelOption,
  addOutputOptions,
  addSpeculativeOption,
  type LoadFlags,
} from '../../flags/load.js';
import { addSharedCacheOptions } from '../../flags/shared-cache.js';
import type { CommandHost } from '../command-host.js';
import { queueOption } from '../queue/open-queue.js';
import { runBatch } from './run-batch.js';

export interface BatchFlags extends LoadFlags {
  readonly output?: string;
  readonly queue?: string;
  readonly cancel?: boolean;
  readonly errors?: string;
  readonly modelId?: string;
  readonly embeddingModel?: string;
  readonly embeddingModelId?: string;
  readonly reranker?: string;
  readonly rerankerId?: string;
  readonly pooling?: EmbeddingModel['pooling'];
  readonly prefixGrouping: boolean;
}

const examples = `
Examples:
  $ winnow batch requests.jsonl
  $ winnow batch requests.jsonl -m model.gguf --output answers.jsonl
  $ winnow batch texts.jsonl --embedding-model ./bge-small-en-v1.5
  $ winnow batch requests.jsonl --queue jobs.db
  $ winnow batch s3://bucket/requests.jsonl --output s3://bucket/answers.jsonl

IN has a request per line, as OpenAI's batches have: {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions",
"body": {"messages": [...]}}, also for /v1/completions, /v1/embeddings and /v1/rerank. The output has a line per answer,
in the order of IN; lines that fail are in the error file. After Ctrl-C, a crash or a power failure the same command
continues: answers so far are in OUTPUT.jobs until all are there. Several of the same commands at once share the lines.
With --queue, winnow worker --queue answers them, in any number of processes.
`;

export function registerBatch(program: Command, host: CommandHost): void {
  const command = program.command('batch').argument('<in>', 'the file of requests, a path or URL');
  addModelOption(command);
  addGroup(command, {
    heading: 'Batch',
    common: [
      flag('-o, --output <path>', 'file of the answers, a path or URL (default: IN with .output.jsonl)'),
      flag('--errors <path>', 'file of the lines that failed, a path or URL (default: OUTPUT with .errors.jsonl)'),
      queueOption('let the workers of a queue answer the lines, and wait for them'),
      flag('--model-id <id>', 'model that the lines ask for (default: its own name)'),
      flag('--embedding-model <model>', 'model for lines of /v1/embeddings (default: the model)'),
      flag('--reranker <model>', 'model for lines of /v1/rerank (default: the model)'),
      numberOption(
        '--max-sessions <n>',
        'maximum number of lines at once (default: as many as fit the memory, at most 32)',
        numberRules.count,
      ),
    ],
    advanced: [
      flag('--embedding-model-id <id>', 'embedding model that the lines ask for (default: its own name)'),
      flag('--reranker-id <id>', 'reranker that the lines ask for (default: its own name)'),
      poolingOption(),
      flag('--cancel', 'with --queue: take the lines out of the queue, without results'),
      flag('--no-prefix-grouping', 'answer lines in the order of IN, not those that begin alike one after the other'),
    ],
  });
  addSpeculativeOption(addLoadOptions(addAttentionOptions(command)));
  addSharedCacheOptions(command);
  addOutputOptions(command, 'print one JSON object: lines, answered, failed, ...');
  describe(command, "Answers a file of requests in OpenAI's batch format.", examples);
  command.action((input: string, flags: BatchFlags) => host.run(flags, (context) => runBatch(input, flags, context)));
}
