/** Flags of embedding commands, and the engine's options for them. */
import { ArgumentError, definedFields } from '@winnow/tensor';
import type { Command, Option } from 'commander';
import type { EmbeddingLoadOptions, EmbeddingModel, EmbedOptions, TextOverflow } from '@winnow/engine';
import { executionOptionsOf, sparseOptionsOf } from './engine-options.js';
import { addGroup, choiceOption, flag, numberOption, numberRules } from './builders.js';
import {
  activationsOption,
  addSparseOptions,
  backendOption,
  nativeOption,
  batchSizeOptions,
  contextOptions,
  memoryOption,
  quantizeOption,
  threadsOption,
  type CommonFlags,
  type ExecutionFlags,
  type SparseFlags,
} from './load.js';

export interface EmbeddingFlags extends CommonFlags, ExecutionFlags, SparseFlags {
  readonly context?: number;
  readonly batchSize?: number;
  readonly quantize?: EmbeddingLoadOptions['quantize'];
  readonly pooling?: EmbeddingModel['pooling'];
  readonly overflow?: TextOverflow;
  readonly prefix?: string;
  readonly promptName?: string;
  readonly dimensions?: number;
}

const poolings = ['mean', 'cls', 'last', 'max', 'weighted-mean', 'mean-sqrt'] as const;

export function poolingOption(): Option {
  return choiceOption('--pooling <kind>', 'how token vectors are pooled', poolings, 'as the model declares');
}

export function addEmbeddingOptions(command: Command): Command {
  const { count } = numberRules;
  addGroup(command, {
    heading: 'Embedding',
    common: [
      poolingOption(),
      choiceOption('--overflow <policy>', 'texts beyond the context', ['error', 'truncate', 'chunk-average'], 'error'),
      flag('--prefix <text>', "prefix for each text, instead of the model's own"),
      flag('--prompt-name <name>', "name of one of the model's prompts, such as query"),
      numberOption('--dimensions <n>', 'keep the first n dimensions of a Matryoshka model', count),
      ...contextOptions('maximum number of tokens per text (default: as the model declares)', count),
    ],
    advanced: batchSizeOptions('maximum number of tokens per step (default: 512)'),
  });
  addGroup(command, { heading: 'Weights and memory', common: [memoryOption()], advanced: [quantizeOption()] });
  addSparseOptions(command);
  return addGroup(command, {
    heading: 'Execution',
    common: [threadsOption()],
    advanced: [activationsOption(), nativeOption(), backendOption()],
  });
}

export function embedOptionsOf(flags: EmbeddingFlags): EmbedOptions {
  return definedFields<EmbedOptions>({
    overflow: flags.overflow,
    prompt: flags.prefix,
    promptName: flags.promptName,
    dimensions: flags.dimensions,
  });
}

/** An error of embedding in the words of the command line, where --prompt has the texts. @param hint what prints vectors of tokens */
export function embeddingError(error: unknown, hint = ''): unknown {
  if (!ArgumentError.isInstance(error)) return error;
  const { argument, expected, actual } = error;
  if (argument === 'prompt') return new ArgumentError({ argument: '--prefix', expected, actual });
  if (argument !== 'outputs') return error;
  const found = `one with a vector per token${hint}`;
  return new ArgumentError({ argument: 'MODEL', expected: 'one with vectors of whole texts', actual: found });
}

export function embeddingLoadOptionsOf(flags: EmbeddingFlags): EmbeddingLoadOptions {
  return definedFields<EmbeddingLoadOptions>({
    ...executionOptionsOf(flags),
    context: flags.context,
    batchSize: flags.batchSize,
    pooling: flags.pooling,
    quantize: flags.quantize,
    ...sparseOptionsOf(flags),
    isMatryoshka: flags.dimensions === undefined ? undefined : true, // requesting dimensions asserts it
  });
}
