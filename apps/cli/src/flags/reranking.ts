/** Flags of reranking commands, and the engine's options for them. */
import { definedFields } from '@winnow/tensor';
import type { Command } from 'commander';
import type { RerankerLoadOptions, RerankOptions } from '@winnow/engine';
import { executionOptionsOf } from './engine-options.js';
import { addGroup, choiceOption, flag, numberRules } from './builders.js';
import {
  activationsOption,
  backendOption,
  batchSizeOptions,
  contextOptions,
  memoryOption,
  nativeOption,
  quantizeOption,
  threadsOption,
  type CommonFlags,
  type ExecutionFlags,
} from './load.js';

export interface RerankingFlags extends CommonFlags, ExecutionFlags {
  readonly overflow?: 'error' | 'truncate';
  readonly instruction?: string;
  readonly context?: number;
  readonly batchSize?: number;
  readonly memory?: number;
  readonly quantize?: RerankerLoadOptions['quantize'];
}

export function addRerankingOptions(command: Command): Command {
  addGroup(command, {
    heading: 'Ranking',
    common: [
      choiceOption('--overflow <policy>', 'documents beyond the context', ['error', 'truncate'], 'error'),
      flag('--instruction <text>', 'what makes a document relevant, for Qwen3-Reranker'),
      ...contextOptions(
        'maximum number of tokens of query and document (default: as the model declares)',
        numberRules.count,
      ),
    ],
    advanced: batchSizeOptions('maximum number of tokens per step (default: 512)'),
  });
  addGroup(command, { heading: 'Weights and memory', common: [memoryOption()], advanced: [quantizeOption()] });
  return addGroup(command, {
    heading: 'Execution',
    common: [threadsOption()],
    advanced: [activationsOption(), nativeOption(), backendOption()],
  });
}

export function rerankOptionsOf({ overflow, instruction }: RerankingFlags): RerankOptions {
  return definedFields<RerankOptions>({ overflow, instruction });
}

export function rerankerLoadOptionsOf(flags: RerankingFlags): RerankerLoadOptions {
  const { context, batchSize, memory, quantize } = flags;
  return definedFields<RerankerLoadOptions>({ ...executionOptionsOf(flags), context, batchSize, memory, quantize });
}
