/** Calibrations made by hand: predictors that are right by construction, for any FFN. */
import type { FeedForwardAccess } from '../src/index.node.js';
import type { PredictorTables, Sidecar, SparseLayer, StoredMatrix } from '@winnow/sparse-inference';
import { encode, sizeOf } from '@winnow/tensor';

function matrix(values: Float32Array, numRows: number, numColumns: number): StoredMatrix {
  const dtype = numColumns % 32 === 0 ? 'q8_0' : 'f16';
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  return { numRows, numColumns, dtype, bytes };
}

export interface SidecarDesign {
  /** `low-rank` of full rank: P is the identity and Q the gate itself (or up, where there is none). */
  readonly kind: 'low-rank' | 'gate-threshold' | 'input-threshold';
  /** Of scores, or of `|act(gate)|`, or of values and inputs; scores of `low-rank` are off by the rounding of 8 bits. */
  readonly threshold: number;
  /** Share of neurons that a layer is said to compute. */
  readonly activeRatioOf?: (layer: number) => number;
  /** Share of tokens that a neuron is said to be active for. */
  readonly frequencyOf?: (neuron: number) => number;
}

export async function makeSidecar(access: FeedForwardAccess, design: SidecarDesign): Promise<Sidecar> {
  const { kind, threshold, frequencyOf = (): number => 0, activeRatioOf = (): number => 0 } = design;
  const layers: SparseLayer[] = [];
  for (const { layer, hiddenDim, ffnDim, activation, isGated } of access.layers) {
    const thresholds = new Float32Array(ffnDim).fill(threshold);
    let predictor: PredictorTables = { kind: 'gate-threshold', thresholds };
    if (kind === 'low-rank') {
      const rank = Math.ceil(hiddenDim / 32) * 32;
      const identity = new Float32Array(rank * hiddenDim);
      for (let i = 0; i < hiddenDim; i++) identity[i * hiddenDim + i] = 1;
      const gate = await access.readRows(layer, isGated ? 'gate' : 'up', 0, ffnDim);
      const wide = new Float32Array(ffnDim * rank);
      for (let f = 0; f < ffnDim; f++) wide.set(gate.subarray(f * hiddenDim, (f + 1) * hiddenDim), f * rank);
      const [p, q] = [matrix(identity, rank, hiddenDim), matrix(wide, ffnDim, rank)];
      predictor = { kind, rank, p, q, thresholds };
    }
    if (kind === 'input-threshold') {
      predictor = { kind, thresholds, inputThresholds: new Float32Array(hiddenDim).fill(threshold) };
    }
    const zero = {
      numTokens: 1,
      trueRatio: 0,
      activeRatio: activeRatioOf(layer),
      inputRatio: kind === 'input-threshold' ? 0.5 : 1,
      recall: 1,
      precision: 1,
      energy: 1,
    };
    layers.push({
      ...{ layer, hiddenDim, ffnDim, activation, isGated, predictor },
      contributionThreshold: 0,
      downNorms: new Float32Array(ffnDim).fill(1),
      frequencies: Float32Array.from({ length: ffnDim }, (_, neuron) => frequencyOf(neuron)),
      report: { ...zero, cosine: 1, denseBytes: 0, sparseBytes: 0 },
    });
  }
  const target = { recall: 0.95 };
  const config = {
    numSamples: 1,
    numTokens: 1,
    seed: 1,
    energyShare: 0.95,
    target,
    rank: 32,
    epochs: 1,
    learningRate: 1,
  };
  return { modelHash: access.weightsHash, config, layers };
}
