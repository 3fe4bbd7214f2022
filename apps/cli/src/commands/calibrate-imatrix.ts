/** `winnow calibrate --imatrix`: collects the importance matrix of a model for `winnow convert --imatrix`. */
import { fileSink } from '@winnow/bytes/node';
import { ImportanceCollector } from '@winnow/convert';
import type { LoadOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import type { CommandContext } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { openCalculator } from '../models/calculator.js';
import { cutText } from '../models/calibration-text.js';
import { loadProgress, locateModel } from '../models/open-model.js';
import { checkWritable } from '../models/sparse-files.js';
import { formatJson } from '../terminal/format.js';
import { readText } from '../terminal/read-text.js';

export interface ImatrixFlags {
  readonly imatrix: string;
  readonly text?: string;
  readonly samples: number;
  readonly sampleTokens: number;
  readonly threads?: number;
  readonly backend?: 'wasm' | 'reference';
  readonly quantize?: LoadOptions['quantize'];
  readonly json?: boolean;
}

export async function collectImatrix(
  modelName: string | undefined,
  flags: ImatrixFlags,
  context: CommandContext,
): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  const text = flags.text === undefined ? undefined : await readText(io, { file: flags.text }, signal);
  if (text === undefined) warn('collecting on a built-in text: use --text and a real one');
  const location = await locateModel(modelName, context);
  await checkWritable(flags.imatrix);
  const engine = await io.engine();
  const { config } = await engine.inspectModel(location, { signal });
  if (config.isEncoder === true) throw new UsageError('--imatrix: expected a model that generates, got an encoder');
  const size = Math.min(flags.sampleTokens, config.contextLength);
  const collector = new ImportanceCollector();
  const backend = collector.observe(await openCalculator(flags));
  try {
    await using model = await engine.loadModel(location, {
      ...definedFields<LoadOptions>({ quantize: flags.quantize }),
      ...{ backend, context: size, batchSize: size, maxSessions: 1, signal, onProgress: loadProgress(progress) },
    });
    const { samples } = cutText(text, (part, addSpecialTokens) => model.tokenizer.encode(part, { addSpecialTokens }), {
      numSamples: flags.samples,
      sampleTokens: size,
      restTokens: 0,
    });
    if (samples.length < flags.samples) warn(`the text has ${samples.length} samples, not ${flags.samples}`);
    for (const [index, sample] of samples.entries()) {
      await model.logprobs(sample, { signal });
      progress.show('collect', (index + 1) * size, samples.length * size, 'tokens');
    }
    progress.clear();
    await collector.write(await fileSink(flags.imatrix), flags.text ?? 'built-in text', samples.length, size);
    const result = { path: flags.imatrix, numMatrices: collector.names.length, numSamples: samples.length };
    if (flags.json === true) await out.write(formatJson(result));
    else await out.write(`written: ${flags.imatrix}, ${result.numMatrices} matrices\n`);
  } finally {
    progress.clear();
    await backend.dispose();
  }
}
