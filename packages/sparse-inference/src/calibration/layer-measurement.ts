/** Measures the predictor of one layer on a text: counts over all tokens, and compares outputs of some of them. */
import { dotProduct, isNeuronActive } from '@winnow/ops';
import type { MatrixProducts } from '../training/matrix-products.js';
import type { LayerReport, PredictorTables } from '../sidecar/sidecar.js';
import {
  neuronValues,
  type CalibrationLayer,
  type CalibrationSource,
  type FeedForwardTrace,
} from './calibration-source.js';
import { expectedBytes } from './expected-bytes.js';

/** Maximum number of tokens per layer whose outputs are compared. */
const maxComparedTokens = 512;

/** The part of a sidecar layer that is measured. */
export interface MeasuredLayer {
  readonly predictor: PredictorTables;
  readonly contributionThreshold: number;
  readonly downNorms: Float32Array; // [F]
}

interface ComparedToken {
  readonly x: Float32Array; // [E]
  readonly exact: Float32Array; // [F]
  /** 0 for inactive neurons. */
  readonly sparse: Float32Array; // [F]
}

export class LayerMeasurement {
  readonly #shape: CalibrationLayer;
  readonly #layer: MeasuredLayer;
  /** Every how many tokens one is compared. */
  readonly #every: number;
  readonly #compared: ComparedToken[] = [];
  readonly #counts = { active: 0, chosen: 0, found: 0, energy: 0, foundEnergy: 0 };
  #numTokens = 0;
  #numInputs = 0;

  /** @param numTokens of the whole text */
  constructor(shape: CalibrationLayer, layer: MeasuredLayer, numTokens: number) {
    this.#shape = shape;
    this.#layer = layer;
    this.#every = Math.max(1, Math.ceil(numTokens / maxComparedTokens));
  }

  /** @param scores `[n, F]` of a low-rank predictor */
  observe({ x, gate, up, numTokens }: FeedForwardTrace, scores?: Float32Array): void {
    const { hiddenDim, ffnDim } = this.#shape;
    const { predictor } = this.#layer;
    const values = neuronValues(this.#shape, gate, up);
    const predicted = scores ?? (gate === undefined ? values : neuronValues(this.#shape, undefined, gate));
    for (let t = 0; t < numTokens; t++) {
      const isCompared = this.#numTokens++ % this.#every === 0;
      if (predictor.kind === 'input-threshold' && !isCompared) continue;
      const exact = values.slice(t * ffnDim, (t + 1) * ffnDim);
      const row = x.slice(t * hiddenDim, (t + 1) * hiddenDim);
      const sparse = exact.slice();
      if (predictor.kind !== 'input-threshold') {
        const scoresOfToken = predicted.subarray(t * ffnDim, (t + 1) * ffnDim);
        this.#count(exact, sparse, scoresOfToken);
      }
      if (isCompared) this.#compared.push({ x: row, exact, sparse });
    }
  }

  /** Reads the weights of the layer. */
  async report(source: CalibrationSource, products: MatrixProducts): Promise<LayerReport> {
    const { layer, hiddenDim, ffnDim } = this.#shape;
    const { predictor } = this.#layer;
    if (predictor.kind === 'input-threshold') await this.#compareInputs(source, products, predictor.inputThresholds);
    const down = await source.readRows(layer, 'down', 0, hiddenDim);
    const cosine = await this.#cosine(products, down);
    const isSampled = predictor.kind === 'input-threshold';
    const numTokens = Math.max(1, isSampled ? this.#compared.length : this.#numTokens);
    const { active, chosen, found, energy, foundEnergy } = this.#counts;
    const activeRatio = chosen / (numTokens * ffnDim);
    const inputRatio = isSampled ? this.#numInputs / (numTokens * hiddenDim) : 1;
    return {
      numTokens: this.#numTokens,
      trueRatio: active / (numTokens * ffnDim),
      activeRatio,
      inputRatio,
      recall: active === 0 ? 1 : found / active,
      precision: chosen === 0 ? 1 : found / chosen,
      energy: energy === 0 ? 1 : Math.min(1, foundEnergy / energy),
      cosine,
      ...expectedBytes(this.#shape, predictor, { activeRatio, inputRatio }),
    };
  }

  /** Selects the neurons of one token, counts them, and sets the others of `sparse` to 0. */
  #count(exact: Float32Array, sparse: Float32Array, scores: Float32Array): void {
    const { predictor, contributionThreshold, downNorms } = this.#layer;
    const isAbsolute = predictor.kind !== 'low-rank';
    const counts = this.#counts;
    for (let id = 0; id < exact.length; id++) {
      const contribution = Math.fround(Math.abs(exact[id]) * downNorms[id]);
      const isActive = contribution >= contributionThreshold;
      counts.energy += contribution * contribution;
      if (isActive) counts.active += 1;
      if (!isNeuronActive(scores[id], predictor.thresholds[id], isAbsolute)) {
        sparse[id] = 0;
        continue;
      }
      counts.chosen += 1;
      counts.foundEnergy += contribution * contribution;
      if (isActive) counts.found += 1;
    }
  }

  /** Computes values from active inputs, and selects the active ones. */
  async #compareInputs(source: CalibrationSource, products: MatrixProducts, thresholds: Float32Array): Promise<void> {
    const { layer, hiddenDim, ffnDim, isGated } = this.#shape;
    const numRows = this.#compared.length;
    const x = new Float32Array(numRows * hiddenDim);
    for (const [row, token] of this.#compared.entries()) {
      for (let i = 0; i < hiddenDim; i++) {
        if (!isNeuronActive(token.x[i], thresholds[i], true)) continue;
        x[row * hiddenDim + i] = token.x[i];
        this.#numInputs += 1;
      }
    }
    const product = async (part: 'gate' | 'up'): Promise<Float32Array> => {
      const out = new Float32Array(numRows * ffnDim);
      const weight = await source.readRows(layer, part, 0, ffnDim);
      await products.multiply(x, weight, out, { numRows, numInputs: hiddenDim, numOutputs: ffnDim });
      const bias = await source.readBias(layer, part);
      if (bias !== undefined) for (let i = 0; i < out.length; i++) out[i] += bias[i % ffnDim];
      return out;
    };
    const values = neuronValues(this.#shape, isGated ? await product('gate') : undefined, await product('up'));
    for (const [row, { exact, sparse }] of this.#compared.entries()) {
      const predicted = values.slice(row * ffnDim, (row + 1) * ffnDim);
      sparse.set(predicted);
      this.#count(exact, sparse, predicted);
    }
  }

  /** Mean over the compared tokens of the cosine between `down exact` and `down sparse`. */
  async #cosine(products: MatrixProducts, down: Float32Array): Promise<number> {
    const { hiddenDim, ffnDim } = this.#shape;
    const numRows = this.#compared.length;
    if (numRows === 0) return 1;
    const output = async (part: 'exact' | 'sparse'): Promise<Float32Array> => {
      const values = new Float32Array(numRows * ffnDim);
      for (const [row, token] of this.#compared.entries()) values.set(token[part], row * ffnDim);
      const out = new Float32Array(numRows * hiddenDim);
      await products.multiply(values, down, out, { numRows, numInputs: ffnDim, numOutputs: hiddenDim });
      return out;
    };
    const [exact, sparse] = [await output('exact'), await output('sparse')];
    let sum = 0;
    for (let row = 0; row < numRows; row++) sum += cosineOf(exact, sparse, row * hiddenDim, hiddenDim);
    return Math.max(-1, Math.min(1, sum / numRows));
  }
}

function cosineOf(a: Float32Array, b: Float32Array, begin: number, length: number): number {
  const aa = dotProduct(a, begin, a, begin, length);
  const bb = dotProduct(b, begin, b, begin, length);
  if (aa === 0 || bb === 0) return aa === bb ? 1 : 0;
  return dotProduct(a, begin, b, begin, length) / Math.sqrt(aa * bb);
}
