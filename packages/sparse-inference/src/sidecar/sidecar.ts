/** The result of a calibration: which neurons of a model matter, and how to predict them from the hidden state. */
import type { DType } from '@winnow/tensor';
import type { FeedForwardShape } from '../blocks/feed-forward-weights.js';

/** Kinds of predictors: see the README. */
export type PredictorKind = 'low-rank' | 'low-rank-product' | 'gate-threshold' | 'input-threshold';

export const predictorKinds: readonly PredictorKind[] = [
  'low-rank',
  'low-rank-product',
  'gate-threshold',
  'input-threshold',
];

/** Whether a kind computes its scores from separate low-rank matrices. */
export function isLowRank(kind: PredictorKind): kind is 'low-rank' | 'low-rank-product' {
  return kind === 'low-rank' || kind === 'low-rank-product';
}

/** A matrix as programs read it: q8_0 or q4_0 if its rows are whole blocks, else f16. */
export interface StoredMatrix {
  readonly numRows: number;
  readonly numColumns: number;
  readonly dtype: 'q8_0' | 'q4_0' | 'f16';
  readonly bytes: Uint8Array;
}

/** `score = q (p x)`; active if it is at least the neuron's threshold. */
export interface LowRankTables {
  readonly kind: 'low-rank';
  readonly rank: number;
  readonly p: StoredMatrix; // [r, E]
  readonly q: StoredMatrix; // [F, r]
  readonly thresholds: Float32Array; // [F]
}

/** A low-rank estimate of a matrix-vector product of the block: `q (p x) + bias`. */
export interface LowRankEstimate {
  readonly p: StoredMatrix; // [r, E]
  readonly q: StoredMatrix; // [F, r]
  /** The bias of the model, if it has one. */
  readonly bias?: Float32Array; // [F]
}

/** Active if `|act(estimate of gate) * (estimate of up)|` is at least the neuron's threshold. */
export interface LowRankProductTables {
  readonly kind: 'low-rank-product';
  /** Rank of each of the two estimates. */
  readonly rank: number;
  readonly gate: LowRankEstimate;
  readonly up: LowRankEstimate;
  readonly thresholds: Float32Array; // [F]
}

/** Active if `|act(gate x)|` is at least the neuron's threshold. */
export interface GateThresholdTables {
  readonly kind: 'gate-threshold';
  readonly thresholds: Float32Array; // [F]
}

/** Inputs of gate and up are active if `|x|` is at least the threshold, those of down if `|act(gate x) * up x|` is. */
export interface InputThresholdTables {
  readonly kind: 'input-threshold';
  readonly inputThresholds: Float32Array; // [E]
  readonly thresholds: Float32Array; // [F]
}

export type PredictorTables = LowRankTables | LowRankProductTables | GateThresholdTables | InputThresholdTables;

/** A low-rank predictor without its thresholds. */
export type ScoreTables = Omit<LowRankTables, 'thresholds'> | Omit<LowRankProductTables, 'thresholds'>;

/** The estimates of a predictor by the prefix of their tensor names: none for kinds that compute parts of the block. */
export function estimatesOf(predictor: PredictorTables | ScoreTables): readonly (readonly [string, LowRankEstimate])[] {
  if (predictor.kind === 'low-rank') return [['', predictor]];
  if (predictor.kind !== 'low-rank-product') return [];
  return [
    ['gate.', predictor.gate],
    ['up.', predictor.up],
  ];
}

/** Measurements of a layer on text that neither training nor thresholds saw. Shares are from 0 to 1. */
export interface LayerReport {
  readonly numTokens: number;
  /** Share of neurons whose contribution is above `contributionThreshold`, per token. */
  readonly trueRatio: number;
  /** Share of neurons that the predictor selects. */
  readonly activeRatio: number;
  /** Share of inputs that are used; 1 except for `input-threshold`. */
  readonly inputRatio: number;
  /** Share of the truly active neurons that are selected. */
  readonly recall: number;
  /** Share of the selected neurons that are truly active. */
  readonly precision: number;
  /** Share of the energy `sum |contribution|^2` of the selected neurons. */
  readonly energy: number;
  /** Mean cosine between the sparse and the dense output of the block. */
  readonly cosine: number;
  /**
   * Bytes of weights that one token reads: with all neurons, and on average with the selected ones, including the
   * predictor.
   */
  readonly denseBytes: number;
  readonly sparseBytes: number;
}

/** The layout of matrices that are read neuron by neuron. */
export interface NeuronRows {
  /** Dtypes of gate, up and down, or of up and down. */
  readonly dtypes: readonly DType[];
  /** Whether the rows of a neuron are interleaved. */
  readonly areInterleaved: boolean;
}

export interface SparseLayer extends FeedForwardShape {
  /** Index in the model. */
  readonly layer: number;
  readonly predictor: PredictorTables;
  /** A neuron is active if `|value| * ||column of down||` is at least this. */
  readonly contributionThreshold: number;
  readonly downNorms: Float32Array; // [F]
  /** Share of tokens for which each neuron is truly active. */
  readonly frequencies: Float32Array; // [F]
  readonly report: LayerReport;
  /** Layout in the loaded model; not in files. */
  readonly rows?: NeuronRows;
}

/** The part of a layer that its predictor depends on. */
export type PredictedLayer = Omit<SparseLayer, 'frequencies' | 'report' | 'rows'>;

/** How a calibration was made. */
export interface SidecarConfig {
  readonly numSamples: number;
  readonly numTokens: number;
  readonly seed: number;
  readonly energyShare: number;
  readonly target: { readonly recall: number } | { readonly sparsity: number };
  /** Of `low-rank` and `low-rank-product` predictors. */
  readonly rank: number;
  readonly epochs: number;
  readonly learningRate: number;
}

/** A calibrated model. */
export interface Sidecar {
  /** Identifies the calibrated weights. */
  readonly modelHash: string;
  /** Checksum of all bytes of the weights, if the source of the calibration has one. */
  readonly weightsChecksum?: string;
  readonly config: SidecarConfig;
  /** In the order of the model; layers without a dense FFN are missing. */
  readonly layers: readonly SparseLayer[];
}

/** Metadata keys of the file. */
export const metadataKeys = { content: 'winnow.sparse', checksum: 'winnow.checksum' } as const;

/** The version that this code writes, and the newest that it reads. */
export const sidecarVersion = 1;
