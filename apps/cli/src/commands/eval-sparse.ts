/** `winnow eval --sparse FILE`: what a calibration finds and loses on a text. */
import { evaluateSparse, formatDivergence } from '@winnow/evaluation';
import type { CommandContext } from '../command-host.js';
import { openCalculator } from '../calculator.js';
import { loadOptionsOf } from '../engine-options.js';
import { formatJson } from '../format.js';
import { tokensOf } from '../model-evaluation.js';
import { displayName } from '../model-location.js';
import { openModel } from '../open-model.js';
import type { LoadFlags } from '../options.js';
import { readText } from '../read-text.js';
import { openSidecar } from '../sparse-files.js';
import { formatReports, formatSummary, summarise } from '../sparse-report.js';

export interface EvalSparseFlags extends LoadFlags {
  readonly sparse: string;
  readonly text?: string;
  readonly tokens: number;
}

export async function evaluateSidecar(
  modelName: string | undefined,
  flags: EvalSparseFlags,
  context: CommandContext,
): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  const text = flags.text === undefined ? undefined : await readText(io, { file: flags.text }, signal);
  const sidecar = await openSidecar(flags.sparse, signal);
  const { sparse: _sparse, memory: _memory, ...rest } = flags; // the dense base has no limit
  const contextSize = Math.max(flags.tokens, flags.ctxSize ?? flags.ctx ?? 0);
  const shared = { contextSize, prefixSharing: false };
  await using dense = await openModel(modelName, rest, context, undefined, { ...shared, traceFeedForward: true });
  const tokens = tokensOf(dense, text, flags.tokens);
  if (tokens.length < flags.tokens) warn(`the text has ${tokens.length} tokens, not ${flags.tokens}`);
  const limit = loadOptionsOf(flags).memoryLimitBytes;
  const limited = limit === undefined ? {} : { memoryLimitBytes: limit };
  await using sparse = await openModel(modelName, rest, context, undefined, { ...shared, ...limited, sparse: sidecar });
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
    const summary = summarise(result.layers);
    const name = displayName(modelName, dense.name);
    if (flags.json === true) {
      await out.write(formatJson({ model: name, sidecar: flags.sparse, summary, ...result }));
      return;
    }
    const { decode, prefill } = result.logits;
    await out.write(
      [
        `${name}, ${flags.sparse}, ${result.numTokens} tokens\n\n`,
        formatReports(sidecar.layers, result.layers),
        `\n${formatSummary(summary)}`,
        `\ntoken by token\n${formatDivergence(decode)}`,
        `\nin batches, which compute what any of their tokens needs\n${formatDivergence(prefill)}`,
      ].join(''),
    );
  } finally {
    await backend.dispose();
  }
}
