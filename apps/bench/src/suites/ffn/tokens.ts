/** Decoding with a model of realistic proportions, dense and sparse. */
import { loadModel, type Model } from '@winnow/engine';
import type { Sidecar, SparseLayer, StoredMatrix } from '@winnow/sparse-inference';
import { createRng, encode, sizeOf } from '@winnow/tensor';
import { milliseconds, type Figure } from '../../harness/figure.js';
import { measure } from '../../harness/measure.js';
import { measureOptions, threadsText, type Suite, type SuiteContext } from '../../harness/suite.js';
import { modelShape, type ModelShape } from '../../models/model-shapes.js';
import { syntheticModel } from '../../models/synthetic-model.js';
import { firstWordId } from '../../models/synthetic-vocabulary.js';
import { greedy } from '../end-to-end.js';

const suite = 'ffn-tokens';
const dtype = 'q8_0';
/** Threshold of standard normal scores, which exceed it with a probability of 12 %. */
const threshold = 1.175;
/** Number of tokens in the cache, and of a run. */
const [promptTokens, runTokens] = [64, 16];

/**
 * A Llama with ReLU gates and the blocks of TinyLlama, but only 8 of 22 layers, so that the output matrix weighs more.
 * The weights are random, and so are the predictors of the calibration, whose thresholds select about 12 % of the
 * neurons: the times are those of an equally sparse model, the tokens are meaningless.
 */
export const ffnTokens: Suite = {
  name: suite,
  summary: 'decoding with a model of realistic proportions, with all neurons and with 12 % of them',
  run: measureTokens,
};

async function* measureTokens(context: SuiteContext): AsyncIterable<Figure> {
  const { options, say } = context;
  const base = modelShape(options.quick ? 'winnow-tiny/2' : 'tinyllama-1.1b/8');
  const shape: ModelShape = { ...base, name: `${base.name}-relu`, activation: 'relu' };
  const path = await syntheticModel(shape, dtype, options.modelsFolder, say);
  const sizes = { context: 128, maxSessions: 1, batchSize: promptTokens };
  for (const threads of options.threads) {
    const backend = await context.createBackend(threads, 'default');
    const models: Model[] = [];
    try {
      say(`loading ${shape.name} twice`);
      const traced = await loadModel(path, { ...sizes, backend, trace: { feedForward: true } });
      const modelHash = traced.feedForward?.weightsHash ?? '';
      await traced.dispose();
      const dense = await loadModel(path, { ...sizes, backend });
      models.push(dense);
      const sparse = await loadModel(path, {
        ...sizes,
        backend,
        sparsity: { calibration: randomSidecar(shape, modelHash) },
      });
      models.push(sparse);
      const [denseRun, sparseRun] = [await decoder(dense, shape), await decoder(sparse, shape)];
      const timings = await measure(
        { dense: { run: denseRun }, sparse: { run: sparseRun } },
        measureOptions(options, 9),
      );
      const layers = sparse.metrics().feedForward?.layers ?? [];
      const active = layers.reduce((sum, { activeRatio }) => sum + activeRatio, 0) / Math.max(1, layers.length);
      const [whole, part] = [timings['dense']!, timings['sparse']!];
      const name = `relu ${shape.hiddenDim}x${shape.ffnDim}, ${shape.numLayers} layers, ${dtype}, ${threadsText(threads)}`;
      const label = `${name}: ${(100 * active).toFixed(1)} % active`;
      yield {
        suite,
        case: `${name}: dense`,
        ...milliseconds(whole, runTokens),
        unit: 'ms',
        ratio: 1,
        ratioOf: 'itself',
      };
      const ratio = part.medianMs / whole.medianMs;
      yield { suite, case: label, ...milliseconds(part, runTokens), unit: 'ms', ratio, ratioOf: 'dense' };
      const speedUp = { value: whole.medianMs / part.medianMs, best: whole.minMs / part.minMs, unit: 'x' };
      yield { suite, case: `${label}: speed-up`, ...speedUp, ratio: 1 / ratio, ratioOf: 'dense' };
    } finally {
      for (const model of models) await model.dispose();
      await backend.dispose();
    }
  }
}

/** Decodes after a context that is restored. */
async function decoder(model: Model, { vocabSize }: ModelShape): Promise<() => Promise<number>> {
  const rng = createRng(11);
  const prompt = Array.from({ length: promptTokens }, () => firstWordId + rng.nextInt(vocabSize - firstWordId));
  const session = model.createSession();
  await greedy(session, prompt, 1);
  return async () => (await greedy(session, prompt, runTokens)).timeMs;
}

/** Predictors of the default rank of calibrations, with scores of unit variance. */
function randomSidecar({ hiddenDim, ffnDim, numLayers }: ModelShape, modelHash: string): Sidecar {
  const rank = Math.min(256, Math.max(32, Math.round(hiddenDim / 128) * 32));
  const rng = createRng(23);
  const matrix = (numRows: number, numColumns: number): StoredMatrix => {
    const values = Float32Array.from(
      { length: numRows * numColumns },
      () => rng.nextGaussian() / Math.sqrt(numColumns),
    );
    const bytes = new Uint8Array(sizeOf('q8_0', values.length));
    encode('q8_0', values, bytes);
    return { numRows, numColumns, dtype: 'q8_0', bytes };
  };
  const thresholds = new Float32Array(ffnDim).fill(threshold);
  const none = { trueRatio: 0, activeRatio: 0, inputRatio: 1, recall: 0, precision: 0, energy: 0, cosine: 0 };
  const layers = Array.from({ length: numLayers }, (_, layer): SparseLayer => {
    const [p, q] = [matrix(rank, hiddenDim), matrix(ffnDim, rank)];
    return {
      ...{ layer, hiddenDim, ffnDim, activation: 'relu', isGated: true },
      predictor: { kind: 'low-rank', rank, p, q, thresholds },
      contributionThreshold: 0,
      downNorms: new Float32Array(ffnDim).fill(1),
      frequencies: new Float32Array(ffnDim),
      report: { numTokens: 0, ...none, denseBytes: 0, sparseBytes: 0 },
    };
  });
  const config = { numSamples: 0, numTokens: 0, seed: 0, energyShare: 0, target: { recall: 0 }, rank, epochs: 0 };
  return { modelHash, config: { ...config, learningRate: 0 }, layers };
}
