/** `h2o` over its two budgets: how perplexity depends on local tokens L and heavy hitters H. */
import { parsePolicy, type H2oPrefillPolicy } from '@winnow/sparse-attention';
import { createConfigurations, openOptionsOf, type OpenModel } from '../configuration.js';
import type { DivergenceReport } from '../logits/divergence.js';
import { compareForced, type BaseRows } from '../logits/forced-decoding.js';

export interface H2oGridOptions {
  readonly open: OpenModel;
  /** Perplexity of the dense model over `tokens`. */
  readonly base: BaseRows;
  readonly tokens: Int32Array;
  readonly chunk: number;
  readonly sinks: number;
  readonly locals: readonly number[];
  readonly heavies: readonly number[];
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((policy: string, done: number, total: number) => void) | undefined;
}

/** One cell of the table. */
export interface H2oGridCell {
  readonly policy: string;
  readonly local: number;
  readonly heavy: number;
  /** Undefined where `sinks + local + heavy` is not smaller than a chunk, so that the memory saves nothing. */
  readonly divergence: DivergenceReport | undefined;
}

/** The policy of one cell. @throws {ArgumentError} for invalid budgets */
export function h2oPolicy(chunk: number, local: number, heavy: number, sinks: number): H2oPrefillPolicy {
  return parsePolicy(`h2o:chunk=${chunk},local=${local},heavy=${heavy},sinks=${sinks}`) as H2oPrefillPolicy;
}

/** Runs the tokens under each pair of budgets and compares with the dense base: rows by L, columns by H. */
export async function measureH2oGrid(options: H2oGridOptions): Promise<H2oGridCell[]> {
  const { open, base, tokens, chunk, sinks, locals, heavies, signal, onProgress } = options;
  const cells: H2oGridCell[] = [];
  const total = locals.length * heavies.length;
  for (const local of locals) {
    for (const heavy of heavies) {
      h2oPolicy(chunk, local, heavy, sinks); // validated before anything runs
      const policy = `h2o:chunk=${chunk},local=${local},heavy=${heavy},sinks=${sinks}`;
      onProgress?.(policy, cells.length, total);
      signal?.throwIfAborted();
      if (sinks + local + heavy >= chunk) {
        cells.push({ policy, local, heavy, divergence: undefined });
        continue;
      }
      const [configuration] = createConfigurations([`prefill=${policy}`], []);
      const model = await open(openOptionsOf(configuration, tokens.length));
      try {
        cells.push({ policy, local, heavy, divergence: await compareForced(base, model, { tokens, signal }) });
      } finally {
        await model.dispose();
      }
    }
  }
  return cells;
}
