/** Synthetic calibrations with exact predictors for any FFN. */
import type { FeedForwardAccess } from '../../src/index.js';
import type {
  LowRankEstimate,
  PredictorKind,
  PredictorTables,
  Sidecar,
  SparseLayer,
  StoredMatrix,
} from '@winnow/sparse-inference';
import { encode, sizeOf } from '@winnow/tensor';

function matrix(values: Float32Array, numRows: number, numColumns: number): StoredMatrix {
  const dtype = numColumns % 32 === 0 ? 'q8_0' : 'f16';
  const bytes = new Uint8Array(sizeOf(dtype, values.length));
  encode(dtype, values, bytes);
  return { numRows, numColumns, dtype, bytes };
}

export interface SidecarDesign {
  /**
   * `low-rank` has full rank: P is the identity and Q the gate (or up, without a gate). `low-rank-product` has such a pair for
   * gate and up each.
   */
  readonly kind: PredictorKind;
  /** Threshold for scores, for `|act(gate)|`, or for values and inputs. Low-rank scores have 8-bit rounding errors. */
  readonly threshold: number;
  /** Declared share of active neurons of a layer. */
  readonly activeRatioOf?: (layer: number) => number;
  /** Declared share of tokens for which a neuron is active. */
  readonly frequencyOf?: (neuron: number) => number;
}

const estimates = new WeakMap<FeedForwardAccess, Map<string, Promise<LowRankEstimate>>>();

/** Exact estimates of a matrix, encoded once for all sidecars of a model. */
function estimateOf(access: FeedForwardAccess, layerIndex: number, part: 'gate' | 'up'): Promise<LowRankEstimate> {
  const ofModel = estimates.get(access) ?? new Map<string, Promise<LowRankEstimate>>();
  estimates.set(access, ofModel);
  const key = `${layerIndex} ${part}`;
  const estimate = ofModel.get(key) ?? makeEstimate(access, layerIndex, part);
  ofModel.set(key, estimate);
  return estimate;
}

async function makeEstimate(access: FeedForwardAccess, index: number, part: 'gate' | 'up'): Promise<LowRankEstimate> {
  const { layer, hiddenDim, ffnDim } = access.layers[index] as FeedForwardAccess['layers'][number];
  const rank = Math.ceil(hiddenDim / 32) * 32;
  const identity = new Float32Array(rank * hiddenDim);
  for (let i = 0; i < hiddenDim; i++) identity[i * hiddenDim + i] = 1;
  const rows = await access.readRows(layer, part, 0, ffnDim);
  const wide = new Float32Array(ffnDim * rank);
  for (let f = 0; f < ffnDim; f++) wide.set(rows.subarray(f * hiddenDim, (f + 1) * hiddenDim), f * rank);
  const bias = await access.readBias(layer, part);
  const pair = { p: matrix(identity, rank, hiddenDim), q: matrix(wide, ffnDim, rank) };
  return bias === undefined ? pair : { ...pair, bias };
}

export async function makeSidecar(access: FeedForwardAccess, design: SidecarDesign): Promise<Sidecar> {
  const { kind, threshold, frequencyOf = (): number => 0, activeRatioOf = (): number => 0 } = design;
  const layers: SparseLayer[] = [];
  for (const [index, { layer, hiddenDim, ffnDim, activation, isGated }] of access.layers.entries()) {
    const thresholds = new Float32Array(ffnDim).fill(threshold);
    let predictor: PredictorTables = { kind: 'gate-threshold', thresholds };
    const rank = Math.ceil(hiddenDim / 32) * 32;
    const estimate = (part: 'gate' | 'up'): Promise<LowRankEstimate> => estimateOf(access, index, part);
    if (kind === 'low-rank') {
      const { p, q } = await estimate(isGated ? 'gate' : 'up');
      predictor = { kind, rank, p, q, thresholds };
    }
    if (kind === 'low-rank-product') {
      predictor = { kind, rank, gate: await estimate('gate'), up: await estimate('up'), thresholds };
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
  const { weightsHash: modelHash, weightsChecksum } = access;
  return { modelHash, weightsChecksum, config, layers };
}
