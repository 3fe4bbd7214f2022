/** Flags of the commands that embed, and the model they ask for. */
import { Option, type Command } from 'commander';
import type { DType } from '@winnow/tensor';
import type { EmbeddingLoadOptions, EmbeddingModel, EmbedOptions, TextOverflow } from '@winnow/engine';
import { createReferenceBackend } from '@winnow/ops';
import { defined, sparseOptionsOf } from './engine-options.js';
import { withFlags } from './errors.js';
import { locateModel, type OpenContext } from './open-model.js';
import {
  addSparseOption,
  choiceOption,
  memoryRule,
  numberOption,
  numberRules,
  sizeOption,
  type CommonFlags,
  type SparseFlags,
} from './options.js';
import { parseDType } from './parse-values.js';

export interface EmbeddingFlags extends CommonFlags, SparseFlags {
  readonly ctxSize?: number;
  readonly batch?: number;
  readonly threads?: number;
  readonly backend?: 'wasm' | 'reference';
  readonly activations?: 'f32' | 'int8';
  readonly quantize?: DType;
  readonly pooling?: EmbeddingModel['pooling'];
  readonly overflow?: TextOverflow;
  readonly prefix?: string;
  readonly promptName?: string;
  readonly dimensions?: number;
}

const { count } = numberRules;

export function addEmbeddingOptions(command: Command): Command {
  const poolings = ['mean', 'cls', 'last', 'max', 'weighted-mean', 'mean-sqrt'];
  return addSparseOption(command)
    .addOption(choiceOption('--pooling <kind>', 'how tokens become one vector; default: as the model says', poolings))
    .addOption(
      choiceOption('--overflow <policy>', 'what to do with texts beyond the context; default error', [
        'error',
        'truncate',
        'chunk-average',
      ]),
    )
    .option('--prefix <text>', 'put before each text, instead of what the model has for it')
    .option('--prompt-name <name>', 'put the prompt of this name before each text, such as query')
    .addOption(numberOption('--dimensions <n>', 'only the first dimensions, of Matryoshka models', count))
    .addOption(numberOption('-c, --ctx-size <n>', 'most tokens of a text; default: as the model says', count))
    .addOption(numberOption('-b, --batch <n>', 'most tokens per step; default 512', count))
    .addOption(
      new Option('--quantize <type>', 'store the weights as q8_0, f16, ... while loading').argParser((text) =>
        parseDType('--quantize', text),
      ),
    )
    .addOption(sizeOption('--memory <size>', `most memory of all, such as 2GB: ${memoryRule}`))
    .addOption(numberOption('-t, --threads <n>', 'threads; default: all of the machine', count))
    .addOption(
      choiceOption('--activations <type>', 'in products with quantised weights: int8, the default, or f32, exact', [
        'int8',
        'f32',
      ]),
    )
    .addOption(choiceOption('--backend <name>', 'what computes; default wasm', ['wasm', 'reference']));
}

export function embedOptionsOf(flags: EmbeddingFlags): EmbedOptions {
  return defined<EmbedOptions>({
    overflow: flags.overflow,
    prompt: flags.prefix,
    promptName: flags.promptName,
    dimensions: flags.dimensions,
  });
}

export async function openEmbeddingModel(
  model: string | undefined,
  flags: EmbeddingFlags,
  context: OpenContext,
  more: EmbeddingLoadOptions = {},
): Promise<EmbeddingModel> {
  const { io, progress, signal, warn } = context;
  const location = await locateModel(model, context);
  const engine = await io.engine();
  try {
    const loaded = await engine.loadEmbeddingModel(location, {
      ...defined<EmbeddingLoadOptions>({
        backend: flags.backend === 'reference' ? createReferenceBackend() : undefined,
        numThreads: flags.threads,
        activations: flags.activations,
        contextSize: flags.ctxSize,
        batchSize: flags.batch,
        pooling: flags.pooling,
        quantize: flags.quantize,
        memoryLimitBytes: flags.memory,
        ...sparseOptionsOf(flags),
        isMatryoshka: flags.dimensions === undefined ? undefined : true, // whoever asks for it knows
      }),
      ...more,
      signal,
      onProgress: ({ loadedBytes, totalBytes }) => progress.show('load', loadedBytes, totalBytes, 'bytes'),
    });
    for (const notice of loaded.notices) warn(withFlags(notice));
    for (const { op, reason, numRecords } of loaded.fallbacks) {
      warn(`${numRecords} × ${op} fell back to the reference: ${reason}`);
    }
    return loaded;
  } finally {
    progress.clear();
  }
}
