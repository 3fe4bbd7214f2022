/** `winnow eval --sparse FILE`: what a calibration finds and loses on a text. */
import {
  defaultText,
  evaluateSparse,
  evaluateSparseEmbeddings,
  formatDivergence,
  parseSentencePairs,
  type SparseEmbeddingsEvaluation,
} from '@winnow/evaluation';
import type { Sidecar } from '@winnow/sparse-inference';
import { paragraphsOf } from '../calibration-text.js';
import type { CommandContext } from '../command-host.js';
import { openCalculator } from '../calculator.js';
import { openEmbeddingModel, type EmbeddingFlags } from '../embedding-options.js';
import { defined } from '../engine-options.js';
import { UsageError } from '../errors.js';
import { formatJson, formatTable } from '../format.js';
import { tokensOf } from '../model-evaluation.js';
import { displayName } from '../model-location.js';
import { locateModel, openModel } from '../open-model.js';
import type { LoadFlags, SparseFlags } from '../options.js';
import { readText } from '../read-text.js';
import { openSidecar } from '../sparse-files.js';
import { formatReports, formatSummary, percent, summarise } from '../sparse-report.js';

type SkippingFlags = Omit<SparseFlags, 'sparse'>;

export interface EvalSparseFlags extends LoadFlags {
  readonly sparse: string;
  readonly text?: string;
  readonly tokens: number;
  readonly pairs?: string;
}

/** The dense base has no limit: what skips neurons or limits the memory is for the other model only. */
function partsOf(flags: EvalSparseFlags): { readonly plain: LoadFlags; readonly skipping: SkippingFlags } {
  const { sparse: _sparse, memory, maxActive, weightsHot, weightsCold, weightsWarm, weightsCopy, ...others } = flags;
  const { verifyWeights, ...plain } = others;
  const skipping = { memory, maxActive, weightsHot, weightsCold, weightsWarm, weightsCopy, verifyWeights };
  return { plain, skipping: defined<SkippingFlags>(skipping) };
}

export async function evaluateSidecar(
  modelName: string | undefined,
  flags: EvalSparseFlags,
  context: CommandContext,
): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  const text = flags.text === undefined ? undefined : await readText(io, { file: flags.text }, signal);
  const sidecar = await openSidecar(flags.sparse, signal);
  const { config } = await (await io.engine()).inspectModel(await locateModel(modelName, context), { signal });
  if (config.isEncoder === true) return evaluateEmbeddings(modelName, flags, context, { text, sidecar });
  if (flags.pairs !== undefined) throw new UsageError('--pairs: expected a model that embeds, got one that generates');
  const { plain, skipping } = partsOf(flags);
  const contextSize = Math.max(flags.tokens, flags.ctxSize ?? flags.ctx ?? 0);
  const shared = { contextSize, prefixSharing: false };
  await using dense = await openModel(modelName, plain, context, undefined, { ...shared, traceFeedForward: true });
  const tokens = tokensOf(dense, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const limited = { ...plain, ...skipping };
  await using sparse = await openModel(modelName, limited, context, undefined, { ...shared, sparse: sidecar });
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
    const summary = summarise(sidecar.layers, result.layers, flags.maxActive);
    const name = displayName(modelName, dense.name);
    if (flags.json === true) {
      await out.write(formatJson({ model: name, sidecar: flags.sparse, summary, ...result }));
      return;
    }
    const { decode, prefill } = result.logits;
    await out.write(
      [
        `${name}, ${flags.sparse}, ${result.numTokens} tokens\n\n`,
        formatReports(sidecar.layers, result.layers, flags.maxActive),
        `\n${formatSummary(summary)}`,
        `\ntoken by token\n${formatDivergence(decode)}`,
        `\nin batches, which compute what any of their tokens needs\n${formatDivergence(prefill)}`,
      ].join(''),
    );
  } finally {
    await backend.dispose();
  }
}

/** The same for models that embed: vectors instead of probabilities. */
async function evaluateEmbeddings(
  modelName: string | undefined,
  flags: EvalSparseFlags,
  context: CommandContext,
  { text, sidecar }: { readonly text: string | undefined; readonly sidecar: Sidecar },
): Promise<void> {
  const { io, signal, progress, out } = context;
  const { pairs: file } = flags;
  const pairs = file === undefined ? undefined : parseSentencePairs(file, (await readText(io, { file }, signal)) ?? '');
  const { threads, backend: kind, activations, quantize } = flags;
  const shared = defined<EmbeddingFlags>({ threads, backend: kind, activations, quantize });
  const limited = { ...shared, ...partsOf(flags).skipping };
  await using dense = await openEmbeddingModel(modelName, shared, context, { traceFeedForward: true });
  await using sparse = await openEmbeddingModel(modelName, limited, context, { sparse: sidecar });
  const count = (part: string): number => dense.encodeText(part).length;
  const texts = firstTexts(paragraphsOf(text ?? defaultText(flags.tokens, count)), count, flags.tokens);
  const backend = await openCalculator(flags);
  try {
    const result = await evaluateSparseEmbeddings({
      ...{ dense, sparse, sidecar, backend, texts, signal },
      ...(pairs === undefined ? {} : { pairs }),
      onProgress: (what, done, total) => progress.show(what, done, total, 'tokens'),
    });
    progress.clear();
    const name = displayName(modelName, dense.name);
    const summary = summarise(sidecar.layers, result.layers, flags.maxActive);
    await out.write(
      flags.json === true
        ? formatJson({ model: name, sidecar: flags.sparse, summary, ...result })
        : [
            `${name}, ${flags.sparse}, ${result.numTexts} texts, ${result.numTokens} tokens\n\n`,
            formatReports(sidecar.layers, result.layers, flags.maxActive),
            `\n${formatSummary(summary)}`,
            `\n${formatEmbeddings(result)}`,
          ].join(''),
    );
  } finally {
    await backend.dispose();
  }
}

/** As many of the texts as have so many tokens, at least one. */
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
    ['neurons computed', `${percent(computedRatio)}: what any token of a text needs`],
    ...(sts === undefined
      ? []
      : [['Spearman', `${sts.sparse.spearman.toFixed(4)}, dense ${sts.dense.spearman.toFixed(4)}`]]),
  ]);
}
