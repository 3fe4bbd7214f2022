/** Options of a calibration, checked and completed. */
import type { Backend } from '@winnow/ops';
import { ArgumentError, checkOptions, type OptionNames } from '@winnow/tensor';
import { sha256 } from '../sidecar/sha256.js';
import { bytesOf } from '../bytes.js';
import { predictorKinds, type PredictorKind, type SidecarConfig } from '../sidecar/sidecar.js';
import type { CalibrationLayer, CalibrationSource } from './calibration-source.js';
import type { CheckpointStore } from './checkpoint.js';

/** Phases of a calibration, in their order. */
export type CalibrationPhase = 'scan' | 'train' | 'select' | 'verify';

/** Progress of a calibration. */
export interface CalibrationProgress {
  readonly phase: CalibrationPhase;
  /** Tokens of all phases together; a token counts twice in training. */
  readonly doneTokens: number;
  readonly totalTokens: number;
}

export interface CalibrateOptions {
  /** The backend for GEMMs. */
  readonly backend: Backend;
  /**
   * Tokenized pieces of text, at least 3. Of 10, 8 are for statistics and training, 1 for thresholds and 1 for the
   * report.
   */
  readonly samples: readonly ArrayLike<number>[];
  /**
   * `auto`: `low-rank` for ReLU and for blocks of two matrices; else `low-rank-product` if its default rank is at least
   * half of the hidden dim (up to 512), and `gate-threshold` in wider models. Default `auto`.
   */
  readonly predictor?: PredictorKind | 'auto';
  /**
   * Share of the truly active neurons that every layer's predictor should find. Default 0.95, unless you set
   * `targetSparsity`.
   */
  readonly targetRecall?: number;
  /** Share of the neurons to skip on average over the layers: each layer keeps the same share of its energy. */
  readonly targetSparsity?: number;
  /**
   * The truly active neurons are those with the largest contributions that have this share of the energy. Default 0.98.
   */
  readonly energyShare?: number;
  /**
   * Rank of low-rank predictors, a multiple of 32. Default: about a quarter of the hidden dim for `low-rank`, five
   * eighths for `low-rank-product`, from 32 to 256.
   */
  readonly rank?: number;
  /** Seed of all random numbers. Default 1. */
  readonly seed?: number;
  /** How often training sees each token. Default 4. */
  readonly epochs?: number;
  /** Default 0.003. */
  readonly learningRate?: number;
  /** Memory for hidden states and labels during training. Default 256 MiB. */
  readonly memoryBytes?: number;
  /** Where checkpoints are stored; a calibration resumes from a matching one. */
  readonly checkpoint?: CheckpointStore;
  readonly onProgress?: (progress: CalibrationProgress) => void;
  /** Called with a sentence that says whether the checkpoint is used. */
  readonly onNotice?: (text: string) => void;
  readonly signal?: AbortSignal;
}

const calibrateNames: OptionNames<CalibrateOptions> = {
  backend: true,
  samples: true,
  predictor: true,
  targetRecall: true,
  targetSparsity: true,
  energyShare: true,
  rank: true,
  seed: true,
  epochs: true,
  learningRate: true,
  memoryBytes: true,
  checkpoint: true,
  onProgress: true,
  onNotice: true,
  signal: true,
};

/** Options with their defaults. */
export interface CalibrationPlan {
  readonly kindOf: (layer: CalibrationLayer) => PredictorKind;
  readonly config: SidecarConfig;
  /** Maximum number of tokens of a group of samples, between checkpoints. */
  readonly groupTokens: number;
  /** Identifies source, samples and options: a checkpoint must have the same. */
  readonly fingerprint: string;
}

/** Tokens of a training step. */
export const batchTokens = 256;
const maxGroupTokens = 16384;
const minSamples = 3;

/** @throws {ArgumentError} for invalid options */
export function planCalibration(source: CalibrationSource, options: CalibrateOptions): CalibrationPlan {
  checkOptions(options, calibrateNames);
  const { samples, predictor = 'auto', memoryBytes = 256 * 2 ** 20 } = options;
  const { layers } = source;
  checkSamples(layers, samples);
  checkPredictor(layers, predictor);
  const kindOf = (layer: CalibrationLayer): PredictorKind => (predictor === 'auto' ? bestKind(layer) : predictor);
  const rank = options.rank ?? Math.max(...layers.map((layer) => defaultRank(layer, kindOf(layer))));
  if (!(rank >= 32 && rank <= 4096 && rank % 32 === 0)) refuse('rank', 'a multiple of 32 from 32 to 4096', rank);
  const config = configOf(options, rank);
  const bytesPerToken = layers.reduce((sum, { hiddenDim, ffnDim }) => sum + hiddenDim * 4 + ffnDim / 8, 0);
  const groupTokens = Math.max(batchTokens, Math.min(maxGroupTokens, Math.floor(memoryBytes / bytesPerToken)));
  const head = JSON.stringify({ config, predictor, groupTokens, hash: source.weightsHash, layers });
  const pieces = [
    new TextEncoder().encode(head),
    ...samples.map((tokens) => bytesOf(Int32Array.from([-1, ...tokensOf(tokens)]))),
  ];
  return { kindOf, config, groupTokens, fingerprint: sha256(pieces) };
}

function checkSamples(layers: readonly CalibrationLayer[], samples: CalibrateOptions['samples']): void {
  if (layers.length === 0) refuse('model', 'feed-forward blocks', 'none (mixtures of experts are sparse already)');
  if (samples.length < minSamples) refuse('samples', `at least ${minSamples}`, samples.length);
  if (samples.some(({ length }) => length === 0)) refuse('samples', 'samples of at least one token', 'an empty one');
}

function checkPredictor(layers: readonly CalibrationLayer[], predictor: PredictorKind | 'auto'): void {
  if (predictor !== 'auto' && !predictorKinds.includes(predictor)) {
    refuse('predictor', ['auto', ...predictorKinds].join(' | '), predictor);
  }
  if (predictor === 'low-rank-product' && layers.some(({ isGated }) => !isGated)) {
    refuse('predictor', 'another one for blocks without a gate', predictor);
  }
}

function configOf(options: CalibrateOptions, rank: number): SidecarConfig {
  const { samples, energyShare = 0.98, seed = 1, epochs = 4, learningRate = 0.003 } = options;
  const target = targetOf(options);
  checkShare('energyShare', energyShare);
  if (!Number.isSafeInteger(seed)) refuse('seed', 'a safe integer', seed);
  if (!(epochs >= 0 && Number.isInteger(epochs))) refuse('epochs', 'an integer from 0', epochs);
  if (!(learningRate > 0 && learningRate < 10)) refuse('learningRate', 'a number above 0 and below 10', learningRate);
  const numTokens = samples.reduce((sum, { length }) => sum + length, 0);
  return { numSamples: samples.length, numTokens, seed, energyShare, target, rank, epochs, learningRate };
}

function targetOf({ targetRecall, targetSparsity }: CalibrateOptions): SidecarConfig['target'] {
  if (targetSparsity === undefined) {
    const recall = targetRecall ?? 0.95;
    checkShare('targetRecall', recall);
    return { recall };
  }
  if (targetRecall !== undefined) refuse('targetRecall and targetSparsity', 'one of them', 'both');
  if (!(targetSparsity >= 0 && targetSparsity < 1)) {
    refuse('targetSparsity', 'a share from 0 and below 1', targetSparsity);
  }
  return { sparsity: targetSparsity };
}

function checkShare(argument: string, share: number): void {
  if (!(share > 0 && share <= 1)) refuse(argument, 'a share above 0 and up to 1', share);
}

function refuse(argument: string, expected: string, actual: unknown): never {
  throw new ArgumentError({ argument, expected, actual: String(actual) });
}

function* tokensOf(tokens: ArrayLike<number>): Iterable<number> {
  for (let i = 0; i < tokens.length; i++) yield tokens[i];
}

/**
 * ReLU gates are 0 for most neurons, and a linear predictor finds them. With SiLU, both factors are needed to find
 * small products: low-rank estimates lose less than half as much as the gate alone if their rank is half of the hidden
 * dim, but more than the gate if it is a quarter (docs/benchmarks/calibrations.md).
 */
function bestKind(layer: CalibrationLayer): PredictorKind {
  const { activation, isGated, hiddenDim } = layer;
  if (!isGated || activation === 'relu' || activation === 'relu2') return 'low-rank';
  return 2 * defaultRank(layer, 'low-rank-product') >= hiddenDim ? 'low-rank-product' : 'gate-threshold';
}

/** Estimates that are multiplied must be right in magnitude, not only in order, so they need a higher rank. */
function defaultRank({ hiddenDim }: CalibrationLayer, kind: PredictorKind): number {
  const share = kind === 'low-rank-product' ? 5 / 8 : 1 / 4;
  return Math.max(32, Math.min(256, Math.round((hiddenDim * share) / 32) * 32));
}
