/**
 * The quality loss of activation sparsity in embedding models: predictors per layer, and vectors compared with those of
 * the dense model.
 */
import type { EmbeddingModel, FeedForwardMetrics } from '@winnow/engine';
import type { Backend } from '@winnow/ops';
import { measureSidecar, type LayerReport, type Sidecar } from '@winnow/sparse-inference';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { cosineOf } from '../logits/correlation.js';
import { evaluateSts, type SentencePair, type StsReport } from '../tasks/sts.js';

export interface EvaluateSparseEmbeddingsOptions {
  /** Loaded with `trace: { feedForward: true }`. */
  readonly dense: EmbeddingModel;
  /** The same model, loaded with the sidecar. */
  readonly sparse: EmbeddingModel;
  readonly sidecar: Sidecar;
  /** Token sequences to measure predictors on. */
  readonly backend: Backend;
  /** Each is embedded separately; text beyond the context is truncated. */
  readonly texts: readonly string[];
  /** Sentence pairs with human similarity scores. Default: none. */
  readonly pairs?: readonly SentencePair[];
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((what: string, doneTexts: number, totalTexts: number) => void) | undefined;
}

const evaluateNames: OptionNames<EvaluateSparseEmbeddingsOptions> = {
  dense: true,
  sparse: true,
  sidecar: true,
  backend: true,
  texts: true,
  pairs: true,
  signal: true,
  onProgress: true,
};

export interface SparseEmbeddingsEvaluation {
  readonly numTexts: number;
  readonly numTokens: number;
  /** One report per layer of the sidecar. */
  readonly layers: readonly LayerReport[];
  /** Cosine of the vectors to those of the dense model. */
  readonly cosine: { readonly mean: number; readonly least: number };
  /** Share of computed neurons: a step computes the union of the neurons that the tokens of a text need. */
  readonly computedRatio: number;
  /** With `pairs`. */
  readonly sts?: { readonly dense: StsReport; readonly sparse: StsReport };
}

/** @throws {ArgumentError} when the dense model was loaded without `trace.feedForward`, and without texts */
export async function evaluateSparseEmbeddings(
  options: EvaluateSparseEmbeddingsOptions,
): Promise<SparseEmbeddingsEvaluation> {
  checkOptions(options, evaluateNames);
  const { dense, sparse, sidecar, backend, texts, pairs, signal, onProgress } = options;
  if (dense.feedForward === undefined) {
    const [expected, actual] = ['a model loaded with trace.feedForward', 'one without'];
    throw new ArgumentError({ argument: 'dense', expected, actual });
  }
  if (texts.length === 0) throw new ArgumentError({ argument: 'texts', expected: 'at least one', actual: 'none' });
  const withSignal = signal === undefined ? {} : { signal };
  const samples = texts.map((text) => dense.encodeText(text).slice(0, dense.contextSize));
  const layers = await measureSidecar(dense.feedForward, sidecar, { backend, samples, ...withSignal });
  const embedding = { normalize: true, overflow: 'truncate', ...withSignal } as const;
  const cosines: number[] = [];
  for (const [index, text] of texts.entries()) {
    const [[exact], [tested]] = [await dense.embed([text], embedding), await sparse.embed([text], embedding)];
    cosines.push(Math.min(1, cosineOf(exact as Float32Array, tested as Float32Array)));
    onProgress?.('texts', index + 1, texts.length);
  }
  const computedRatio = computedShare(sparse.feedForwardMetrics());
  const { overflow } = embedding;
  return {
    numTexts: texts.length,
    numTokens: samples.reduce((sum, { length }) => sum + length, 0),
    layers,
    cosine: { mean: cosines.reduce((sum, cosine) => sum + cosine, 0) / cosines.length, least: Math.min(...cosines) },
    computedRatio,
    ...(pairs === undefined
      ? {}
      : {
          sts: {
            dense: await evaluateSts(dense, pairs, { overflow, ...withSignal }),
            sparse: await evaluateSts(sparse, pairs, { overflow, ...withSignal }),
          },
        }),
  };
}

/** The mean over layers and steps. */
function computedShare(metrics: FeedForwardMetrics | undefined): number {
  let [sum, numSteps] = [0, 0];
  for (const layer of metrics?.layers ?? []) {
    sum += layer.numSteps * layer.activeRatio + layer.numBatches * layer.batchActiveRatio;
    numSteps += layer.numSteps + layer.numBatches;
  }
  return numSteps === 0 ? 1 : sum / numSteps;
}
