/** The quality loss of activation sparsity: predictors per layer, and the sparse model compared with the dense one. */
import type { Model } from '@winnow/engine';
import type { Backend } from '@winnow/ops';
import { measureSidecar, type LayerReport, type Sidecar } from '@winnow/sparse-inference';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import type { Phase } from '../configuration.js';
import type { DivergenceReport } from '../logits/divergence.js';
import { compareForced, createBaseRows } from '../logits/forced-decoding.js';

export interface EvaluateSparseOptions {
  /** Loaded with `trace: { feedForward: true }`. */
  readonly dense: Model;
  /** The same model, loaded with the sidecar. */
  readonly sparse: Model;
  readonly sidecar: Sidecar;
  /** Token sequences to measure predictors on. */
  readonly backend: Backend;
  readonly tokens: Int32Array;
  /** Number of tokens per sequence for measuring predictors. Default 128. */
  readonly sampleTokens?: number;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((what: string, doneTokens: number, totalTokens: number) => void) | undefined;
}

const evaluateNames: OptionNames<EvaluateSparseOptions> = {
  dense: true,
  sparse: true,
  sidecar: true,
  backend: true,
  tokens: true,
  sampleTokens: true,
  signal: true,
  onProgress: true,
};

export interface SparseEvaluation {
  readonly numTokens: number;
  /** One report per layer of the sidecar. */
  readonly layers: readonly LayerReport[];
  /** `decode`: token by token; `prefill`: in batches, which compute the union of the neurons that their tokens need. */
  readonly logits: Readonly<Record<Phase, DivergenceReport>>;
}

/** @throws {ArgumentError} when the dense model was loaded without `trace.feedForward` */
export async function evaluateSparse(options: EvaluateSparseOptions): Promise<SparseEvaluation> {
  checkOptions(options, evaluateNames);
  const { dense, sparse, sidecar, backend, tokens, sampleTokens = 128, signal, onProgress } = options;
  if (dense.feedForward === undefined) {
    const [expected, actual] = ['a model loaded with trace.feedForward', 'one without'];
    throw new ArgumentError({ argument: 'dense', expected, actual });
  }
  const samples: Int32Array[] = [];
  for (let at = 0; at < tokens.length; at += sampleTokens) samples.push(tokens.subarray(at, at + sampleTokens));
  const layers = await measureSidecar(dense.feedForward, sidecar, {
    backend,
    samples,
    onProgress: (done, total) => onProgress?.('predictors', done, total),
    ...(signal === undefined ? {} : { signal }),
  });
  const base = await createBaseRows(dense, tokens, { signal });
  const compare = async (phase: Phase, done: number): Promise<DivergenceReport> => {
    onProgress?.(phase, done, 2 * tokens.length);
    return compareForced(base, sparse, { tokens, phase, signal });
  };
  const decode = await compare('decode', 0);
  return { numTokens: tokens.length, layers, logits: { decode, prefill: await compare('prefill', tokens.length) } };
}
