/** `winnow calibrate`: fits neuron predictors to a model and writes the sidecar file. */
import type { Command } from 'commander';
import type { EmbeddingLoadOptions, FeedForwardAccess, LoadOptions, Model, SparsityOptions } from '@winnow/engine';
import { DivergenceCollector, type DivergenceReport } from '@winnow/evaluation';
import { createReferenceBackend } from '@winnow/ops';
import {
  calibrate,
  runsDense,
  type CalibrateOptions,
  type Sidecar,
  type SidecarConfig,
} from '@winnow/sparse-inference';
import { definedFields, invariant } from '@winnow/tensor';
import { openCalculator } from '../models/calculator.js';
import { cutParagraphs, cutText, type CalibrationText } from '../models/calibration-text.js';
import { collectImatrix } from './calibrate-imatrix.js';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { formatBytes, formatJson, formatPercent } from '../terminal/format.js';
import { displayName } from '../models/model-location.js';
import { loadProgress, locateModel } from '../models/open-model.js';
import { readText } from '../terminal/read-text.js';
import { checkpointFile, checkWritable, sidecarSuffix, writeSidecar } from '../models/sparse-files.js';
import { formatReports, formatSummary, summarize, type SparseSummary } from '../terminal/sparse-report.js';
import { maxActiveOf } from '../flags/engine-options.js';
import { addGroup, choiceOption, flag, numberOption, numberRules } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import {
  addModelOption,
  addOutputOptions,
  chooseModel,
  maxActiveOption,
  threadsOption,
  backendOption,
  quantizeOption,
  type CommonFlags,
} from '../flags/load.js';
import { type NumberRule } from '../flags/parse-values.js';

interface CalibrateFlags extends CommonFlags {
  readonly text?: string;
  readonly samples: number;
  readonly sampleTokens: number;
  readonly targetRecall?: number;
  readonly targetSparsity?: number;
  readonly energy: number;
  readonly predictor: NonNullable<CalibrateOptions['predictor']>;
  readonly rank?: number;
  readonly epochs: number;
  readonly seed: number;
  readonly output?: string;
  readonly imatrix?: string;
  readonly threads?: number;
  readonly backend?: 'wasm' | 'reference';
  readonly quantize?: LoadOptions['quantize'];
  readonly evalTokens: number;
  readonly sparsityMaxActive?: number;
}

const examples = `
Examples:
  $ winnow calibrate
  $ winnow calibrate model.gguf --text book.txt --target-recall 0.95
  $ winnow calibrate model.gguf --text book.txt --predictor gate-threshold --target-sparsity 0.5
  $ winnow calibrate model.gguf --text book.txt --imatrix imatrix.gguf
  $ winnow run model.gguf --sparsity model${sidecarSuffix} -p 'Once upon a time'

Predictors: low-rank predicts from the hidden state (auto for ReLU and ungated FFNs), low-rank-product predicts gate and
up (auto for SwiGLU and other gated FFNs up to a hidden size of 512), gate-threshold computes the gate (auto for wider
models), input-threshold skips small inputs. Layers above --sparsity-max-active run dense. Ctrl-C stops; the same command resumes.
docs/guides/sparse-ffn.md explains the figures.
`;

const rankRule: NumberRule = {
  integer: true,
  expected: 'a multiple of 32',
  isValid: (value) => value > 0 && value % 32 === 0,
};

function addCalibrationOptions(command: Command): void {
  const { count, share, shareOrZero, fromZero } = numberRules;
  const predictors = ['auto', 'low-rank', 'low-rank-product', 'gate-threshold', 'input-threshold'];
  addGroup(command, {
    heading: 'Calibration',
    common: [
      flag('--text <path>', 'text to calibrate on, - for stdin (default: a built-in text, too simple for real use)'),
      numberOption('--target-recall <share>', 'minimum recall of active neurons in every layer (default: 0.95)', share),
      numberOption(
        '--target-sparsity <share>',
        'mean share of skipped neurons, instead of a target recall',
        shareOrZero,
      ),
      choiceOption('--predictor <kind>', 'neuron predictor', predictors).default('auto', 'auto'),
      flag('--imatrix <file>', 'write an importance matrix for "convert --imatrix" instead'),
      flag('-o, --output <file>', `output file (default: the model's name with ${sidecarSuffix})`),
    ],
    advanced: [
      numberOption('--samples <n>', 'number of text samples', count).default(512),
      numberOption('--sample-tokens <n>', 'tokens per sample', count).default(128),
      numberOption(
        '--energy <share>',
        'share of the output energy that active neurons have to account for',
        share,
      ).default(0.98),
      numberOption(
        '--rank <n>',
        'rank of low-rank predictors, a multiple of 32 (default: depends on the hidden size)',
        rankRule,
      ),
      numberOption('--epochs <n>', 'training epochs', fromZero).default(4),
      numberOption('-s, --seed <n>', 'random seed', fromZero).default(1),
      numberOption(
        '--eval-tokens <n>',
        'number of tokens at the end of the text to measure perplexity on; 0: none',
        fromZero,
      ).default(1024),
      maxActiveOption(),
    ],
  });
}

export function registerCalibrate(program: Command, host: CommandHost): void {
  const command = program.command('calibrate').argument('[model]', 'the model (default: the demo model)');
  addModelOption(command);
  addCalibrationOptions(command);
  addGroup(command, {
    heading: 'Execution',
    common: [threadsOption()],
    advanced: [backendOption(), quantizeOption()],
  });
  addOutputOptions(command, 'print one JSON object');
  describe(command, 'Finds the FFN neurons that can be skipped and writes a .sparse.safetensors file.', examples);
  command.action((model: string | undefined, flags: CalibrateFlags) =>
    host.run(flags, (context) => {
      const { imatrix } = flags;
      const name = chooseModel(model, flags.model);
      if (imatrix === undefined) return calibrateModel(name, flags, context);
      refusePredictorFlags(flags);
      return collectImatrix(name, { ...flags, imatrix }, context);
    }),
  );
}

/** @throws {UsageError} for flags of neuron predictors beside `--imatrix` */
function refusePredictorFlags({ output, targetRecall, targetSparsity, rank, predictor }: CalibrateFlags): void {
  const given = {
    '--output': output,
    '--target-recall': targetRecall,
    '--target-sparsity': targetSparsity,
    '--rank': rank,
  };
  const [name] = Object.entries(given).find(([, value]) => value !== undefined) ?? [];
  const wrong = name ?? (predictor === 'auto' ? undefined : '--predictor');
  if (wrong !== undefined) throw new UsageError(`${wrong}: expected no flag of neuron predictors with --imatrix`);
}

async function calibrateModel(
  modelName: string | undefined,
  flags: CalibrateFlags,
  context: CommandContext,
): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  if (flags.targetRecall !== undefined && flags.targetSparsity !== undefined) {
    throw new UsageError('--target-recall: expected one target, got --target-sparsity as well');
  }
  const text = flags.text === undefined ? undefined : await readText(io, { file: flags.text }, signal);
  if (text === undefined)
    warn('calibrating on a built-in text: pass real text with --text for figures that apply to real use');
  await using subject = await openSubject(modelName, flags, text, context);
  const { samples } = subject.text;
  if (samples.length < flags.samples) warn(`the text has ${samples.length} samples, not ${flags.samples}`);
  const path = flags.output ?? `${fileNameOf(displayName(modelName, subject.name))}${sidecarSuffix}`;
  await checkWritable(path);
  const checkpoint = checkpointFile(path);
  const backend = await openCalculator(flags);
  let sidecar: Sidecar;
  try {
    sidecar = await calibrate(subject.access, {
      backend,
      samples,
      checkpoint,
      seed: flags.seed,
      epochs: flags.epochs,
      predictor: flags.predictor,
      energyShare: flags.energy,
      ...definedFields<Pick<CalibrateOptions, 'rank' | 'targetRecall' | 'targetSparsity'>>({
        rank: flags.rank,
        targetRecall: flags.targetRecall,
        targetSparsity: flags.targetSparsity,
      }),
      signal,
      onNotice: (text) => warn(`${checkpoint.path}: ${text}`),
      onProgress: ({ phase, doneTokens, totalTokens }) => progress.show(phase, doneTokens, totalTokens, 'tokens'),
    });
  } catch (error) {
    if (signal.aborted && (await checkpoint.exists())) warn(`run the same command to resume from ${checkpoint.path}`);
    throw error;
  } finally {
    progress.clear();
    await backend.dispose();
  }
  const sizeBytes = await writeSidecar(path, sidecar);
  await checkpoint.remove();
  await subject.close();
  const divergence = await subject.compare(sidecar);
  await printReport(flags, out, { path, sizeBytes, sidecar, divergence });
}

interface CalibrationResult {
  readonly path: string;
  readonly sizeBytes: number;
  readonly sidecar: Sidecar;
  readonly divergence: Awaited<ReturnType<Subject['compare']>>;
}

async function printReport(
  flags: CalibrateFlags,
  out: CommandContext['out'],
  { path, sizeBytes, sidecar, divergence }: CalibrationResult,
): Promise<void> {
  const reports = sidecar.layers.map(({ report }) => report);
  const maxRatio = await maxActiveOf(flags);
  const summary = summarize(sidecar.layers, reports, maxRatio);
  if (flags.json === true) {
    const layers = sidecar.layers.map((layer) => ({
      layer: layer.layer,
      kind: layer.predictor.kind,
      runsDense: runsDense(layer, maxRatio),
      ...layer.report,
    }));
    await out.write(formatJson({ path, sizeBytes, config: sidecar.config, summary, layers, divergence }));
    return;
  }
  await out.writeTables(`${formatReports(sidecar.layers, reports, maxRatio)}\n${formatSummary(summary)}`);
  if (divergence !== undefined) {
    const { pplRatio, divergence: kld } = divergence;
    await out.write(
      `perplexity ratio             ${pplRatio.mean.toFixed(4)} ` +
        `(mean KLD ${kld.mean.toFixed(4)}, decoding ${divergence.numTokens} tokens)\n`,
    );
  }
  await out.write(`${met(sidecar.config, summary)}\nwritten: ${path}, ${formatBytes(sizeBytes)}\n`);
}

/** Whether the target was met on held-out text, for the layers as they run. */
function met({ target }: SidecarConfig, { skippedRatio, recall, leastRecall }: SparseSummary): string {
  const asPrinted = (share: number): number => Math.round(1000 * share);
  const verdict = (share: number, wanted: number): string => (asPrinted(share) >= asPrinted(wanted) ? 'met' : 'missed');
  if ('recall' in target) {
    const worst = `worst layer ${formatPercent(leastRecall)}`;
    return `target recall ${formatPercent(target.recall)}: ${verdict(leastRecall, target.recall)} with ${formatPercent(recall)}, ${worst}`;
  }
  return `target sparsity ${formatPercent(target.sparsity)}: ${verdict(skippedRatio, target.sparsity)} with ${formatPercent(skippedRatio)}`;
}

/** A model with traced FFN blocks, and text for it. */
interface Subject extends AsyncDisposable {
  readonly name: string;
  readonly access: FeedForwardAccess;
  readonly text: CalibrationText;
  close(): Promise<void>;
  /** Compares sparse with dense token by token; undefined for embedding models and without held-out text. */
  compare(sidecar: Sidecar): Promise<DivergenceReport | undefined>;
}

async function openSubject(
  modelName: string | undefined,
  flags: CalibrateFlags,
  text: string | undefined,
  context: CommandContext,
): Promise<Subject> {
  const { io, signal, progress } = context;
  const location = await locateModel(modelName, context);
  const engine = await io.engine();
  const shared = {
    ...definedFields<LoadOptions & EmbeddingLoadOptions>({
      threads: flags.threads,
      quantize: flags.quantize,
      backend: flags.backend === 'reference' ? createReferenceBackend() : undefined,
    }),
    signal,
    onProgress: loadProgress(progress),
  };
  const { config } = await engine.inspectModel(location, { signal });
  const size = Math.min(flags.sampleTokens, config.contextLength);
  const traced = { ...shared, trace: { feedForward: true }, context: size };
  const sizes = { numSamples: flags.samples, sampleTokens: size, restTokens: flags.evalTokens };
  if (config.isEncoder === true) {
    const model = await engine.loadEmbeddingModel(location, traced);
    const encode = (part: string, addSpecialTokens: boolean): ArrayLike<number> =>
      model.tokenizer.encode(part, { addSpecialTokens });
    const samples = cutParagraphs(text, encode, sizes);
    return subjectOf(model, { samples, rest: new Int32Array() }, () => Promise.resolve(undefined));
  }
  const model = await engine.loadModel(location, { ...traced, batchSize: size, maxSessions: 1 });
  const cut = cutText(text, (part, addSpecialTokens) => model.tokenizer.encode(part, { addSpecialTokens }), sizes);
  return subjectOf(model, cut, async (sidecar) => {
    const { rest } = cut;
    if (rest.length < 16) return undefined;
    const options = { ...shared, context: Math.min(rest.length, config.contextLength), maxSessions: 1 };
    await using dense = await engine.loadModel(location, options);
    const sparsity = {
      calibration: sidecar,
      ...definedFields<SparsityOptions>({ maxActive: flags.sparsityMaxActive }),
    };
    await using sparse = await engine.loadModel(location, { ...options, sparsity });
    progress.clear();
    return await compareModels(dense, sparse, rest, signal);
  });
}

/** Next-token distributions over parts of a text that fit the context; the sparse model decodes token by token. */
async function compareModels(
  dense: Model,
  sparse: Model,
  tokens: Int32Array,
  signal: AbortSignal,
): Promise<DivergenceReport> {
  const collector = new DivergenceCollector();
  for (let at = 0; at + 1 < tokens.length; at += dense.contextSize) {
    const piece = tokens.subarray(at, at + dense.contextSize);
    const positions = Array.from({ length: piece.length - 1 }, (_, position) => position);
    const rows: Float32Array[] = [];
    await dense.logprobs(piece, { positions, signal, onRow: (_position, row) => void rows.push(row) });
    await sparse.logprobs(piece, {
      positions,
      phase: 'decode',
      signal,
      onRow: (position, row) =>
        collector.add(at + position, rows[position] as Float32Array, row, piece[position + 1] as number),
    });
  }
  return collector.report();
}

function subjectOf(
  model: { readonly name: string; readonly feedForward: FeedForwardAccess | undefined; dispose(): Promise<void> },
  text: CalibrationText,
  compare: Subject['compare'],
): Subject {
  const access = model.feedForward;
  invariant(access !== undefined, 'the model traces its feed-forward layers');
  const close = (): Promise<void> => model.dispose();
  return { name: model.name, access, text, close, compare, [Symbol.asyncDispose]: close };
}

/** The last component of a path or URL without its file extension. */
function fileNameOf(model: string): string {
  const last =
    model
      .replaceAll(/[/\\]+$/g, '')
      .split(/[/\\]/)
      .at(-1) ?? model;
  return last.replace(/\.(gguf|safetensors)$/i, '').replaceAll(/[^\w.-]+/g, '-') || 'model';
}
