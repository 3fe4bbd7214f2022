/** `winnow eval --sparsity FILE`: recall and quality of a calibration on a text. */
import { definedFields } from '@winnow/tensor';
import {
  defaultText,
  evaluateSparse,
  evaluateSparseEmbeddings,
  formatDivergence,
  parseSentencePairs,
  type SparseEmbeddingsEvaluation,
} from '@winnow/evaluation';
import type { EmbeddingLoadOptions } from '@winnow/engine';
import type { Sidecar } from '@winnow/sparse-inference';
import { paragraphsOf } from '../../models/calibration-text.js';
import type { CommandContext } from '../command-host.js';
import { openCalculator } from '../../models/calculator.js';
import { executionOptionsOf, maxActiveOf, loadOptionsOf, sparseOptionsOf } from '../../flags/engine-options.js';
import { UsageError } from '../../errors/errors.js';
import { formatJson, formatPercent, formatTable } from '../../terminal/format.js';
import { tokensOf } from '../../models/model-evaluation.js';
import { displayName } from '../../models/model-location.js';
import { locateModel, openModel } from '../../models/open-model.js';
import { readText } from '../../terminal/read-text.js';
import { openSidecar } from '../../models/sparse-files.js';
import { formatReports, formatSummary, summarize } from '../../terminal/sparse-report.js';
import { openEmbeddingModel } from '../../models/open-embedding-model.js';
import type { SparseFlags, LoadFlags } from '../../flags/load.js';

type SparsityFlags = Omit<SparseFlags, 'sparsity'>;

export interface EvalSparseFlags extends LoadFlags {
  readonly sparsity: string;
  readonly text?: string;
  readonly tokens: number;
  readonly pairs?: string;
}

const sparsityFlags = [
  ...['memory', 'memoryHot', 'memoryWarm', 'memoryCold', 'memoryFolder'],
  ...['sparsityMaxActive', 'sparsityUse', 'sparsityVerify'],
] as readonly (keyof SparsityFlags)[];

/** The dense model has no memory budget: sparsity and weight tiers apply to the other model only. */
function partsOf({ sparsity: _sparsity, ...flags }: EvalSparseFlags): {
  readonly plain: LoadFlags;
  readonly sparse: SparsityFlags;
} {
  const entries = Object.entries(flags);
  const isSparse = ([name]: [string, unknown]): boolean => (sparsityFlags as readonly string[]).includes(name);
  return {
    plain: Object.fromEntries(entries.filter((entry) => !isSparse(entry))) as LoadFlags,
    sparse: Object.fromEntries(entries.filter(isSparse)) as SparsityFlags,
  };
}

export async function evaluateSidecar(
  modelName: string | undefined,
  flags: EvalSparseFlags,
  context: CommandContext,
): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  const text = flags.text === undefined ? undefined : await readText(io, { file: flags.text }, signal);
  const sidecar = await openSidecar(flags.sparsity, signal);
  const { config } = await (await io.engine()).inspectModel(await locateModel(modelName, context), { signal });
  if (config.isEncoder === true) return evaluateEmbeddings(modelName, flags, context, { text, sidecar });
  if (flags.pairs !== undefined) throw new UsageError('--pairs: expected an embedding model, got a generative one');
  const { plain, sparse: sparseFlags } = partsOf(flags);
  const shared = { ...plain, context: Math.max(flags.tokens, flags.context ?? 0), kvPrefixSharing: false };
  const denseOptions = { ...loadOptionsOf(shared), trace: { feedForward: true } };
  await using dense = await openModel(modelName, denseOptions, context);
  const tokens = tokensOf(dense, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const limited = { ...shared, ...sparseFlags, sparsity: sidecar };
  await using sparse = await openModel(modelName, loadOptionsOf(limited), context);
  const backend = await openCalculator(flags);
  try {
    const result = await evaluateSparse({
      dense,
      sparse,
      sidecar,
      backend,
      tokens,
      signal,
      onProgress: (what, done, total) => progress.show(what, done, total, 'tokens'),
    });
    progress.clear();
    const maxActive = await maxActiveOf(flags);
    const summary = summarize(sidecar.layers, result.layers, maxActive);
    const name = displayName(modelName, dense.name);
    if (flags.json === true) {
      await out.write(formatJson({ model: name, sidecar: flags.sparsity, summary, ...result }));
      return;
    }
    const { decode, prefill } = result.logits;
    await out.write(
      [
        `${name}, ${flags.sparsity}, ${result.numTokens} tokens\n\n`,
        formatReports(sidecar.layers, result.layers, maxActive),
        `\n${formatSummary(summary)}`,
        `\ntoken by token\n${formatDivergence(decode)}`,
        `\nin batches, which compute the union of their tokens' neurons\n${formatDivergence(prefill)}`,
      ].join(''),
    );
  } finally {
    await backend.dispose();
  }
}

/** The same for embedding models, with cosines instead of divergence. */
async function evaluateEmbeddings(
  modelName: string | undefined,
  flags: EvalSparseFlags,
  context: CommandContext,
  { text, sidecar }: { readonly text: string | undefined; readonly sidecar: Sidecar },
): Promise<void> {
  const { io, signal, progress, out } = context;
  const { pairs: file } = flags;
  const pairs = file === undefined ? undefined : parseSentencePairs(file, (await readText(io, { file }, signal)) ?? '');
  const { quantize } = flags;
  const shared = { ...executionOptionsOf(flags), ...definedFields<EmbeddingLoadOptions>({ quantize }) };
  const sparsity = sparseOptionsOf({ ...partsOf(flags).sparse, sparsity: sidecar });
  await using dense = await openEmbeddingModel(modelName, { ...shared, trace: { feedForward: true } }, context);
  await using sparse = await openEmbeddingModel(modelName, { ...shared, ...sparsity }, context);
  const count = (part: string): number => dense.encodeText(part).length;
  const texts = firstTexts(paragraphsOf(text ?? defaultText(flags.tokens, count)), count, flags.tokens);
  const backend = await openCalculator(flags);
  try {
    const result = await evaluateSparseEmbeddings({
      ...{ dense, sparse, sidecar, backend, texts, signal },
      ...(pairs === undefined ? {} : { pairs }),
      onProgress: (what, done, total) => progress.show(what, done, total, 'texts'),
    });
    progress.clear();
    const name = displayName(modelName, dense.name);
    const maxActive = await maxActiveOf(flags);
    const summary = summarize(sidecar.layers, result.layers, maxActive);
    await out.write(
      flags.json === true
        ? formatJson({ model: name, sidecar: flags.sparsity, summary, ...result })
        : [
            `${name}, ${flags.sparsity}, ${result.numTexts} texts, ${result.numTokens} tokens\n\n`,
            formatReports(sidecar.layers, result.layers, maxActive),
            `\n${formatSummary(summary)}`,
            `\n${formatEmbeddings(result)}`,
          ].join(''),
    );
  } finally {
    await backend.dispose();
  }
}

/** As many texts as fit into a number of tokens, at least one. */
function firstTexts(texts: readonly string[], count: (text: string) => number, numTokens: number): string[] {
  let rest = numTokens;
  const chosen = texts.filter((text, index) => {
    if (index > 0 && rest <= 0) return false;
    rest -= count(text);
    return true;
  });
  if (chosen.length === 0) throw new UsageError('--text: expected at least one paragraph, got none');
  return chosen;
}

function formatEmbeddings({ cosine, computedRatio, sts }: SparseEmbeddingsEvaluation): string {
  return formatTable([
    ['vectors, cosine to dense', `mean ${cosine.mean.toFixed(4)}, least ${cosine.least.toFixed(4)}`],
    ['neurons computed', `${formatPercent(computedRatio)} (the union over the tokens of a text)`],
    ...(sts === undefined
      ? []
      : [['Spearman', `${sts.sparse.spearman.toFixed(4)}, dense ${sts.dense.spearman.toFixed(4)}`]]),
  ]);
}
