/** What a calibration is told, checked and completed. */
import type { Backend } from '@winnow/ops';
import { ArgumentError } from '@winnow/tensor';
import { sha256 } from '../plain/sha256.js';
import { bytesOf } from '../plain/bytes.js';
import { predictorKinds, type PredictorKind, type SidecarConfig } from '../sidecar/sidecar.js';
import type { CalibrationLayer, CalibrationSource } from './calibration-source.js';
import type { CheckpointStore } from './checkpoint.js';

/** Phases of a calibration, in their order. */
export type CalibrationPhase = 'scan' | 'train' | 'select' | 'verify';

/** How far a calibration is. */
export interface CalibrationProgress {
  readonly phase: CalibrationPhase;
  /** Of all phases together, in tokens; a token counts twice in training. */
  readonly doneTokens: number;
  readonly totalTokens: number;
}

export interface CalibrateOptions {
  /** Where products run. */
  readonly backend: Backend;
  /** Pieces of text as tokens. 8 of 10 are for statistics and training, 1 for thresholds, 1 for the report. At least 3. */
  readonly samples: readonly ArrayLike<number>[];
  /**
   * `auto`: `low-rank` for ReLU and for blocks of two matrices; else `low-rank-product` where its default rank is at least half
   * of the hidden dim (up to 512), and `gate-threshold` in wider models. Default `auto`.
   */
  readonly predictor?: PredictorKind | 'auto';
  /** Share of the truly active neurons that every layer's predictor shall find. Default 0.95, unless there is `targetSparsity`. */
  readonly targetRecall?: number;
  /** Share of the neurons that the layers shall skip on average: each of them keeps the same share of its energy. */
  readonly targetSparsity?: number;
  /** Share of the energy of the contributions that truly active neurons have, which says how many those are. Default 0.98. */
  readonly energyShare?: number;
  /**
   * Components of predictors of low rank, a multiple of 32. Default: about a quarter of the hidden dim for `low-rank`, five
   * eighths for `low-rank-product`, from 32 to 256.
   */
  readonly rank?: number;
  /** Decides everything that is drawn. Default 1. */
  readonly seed?: number;
  /** How often training sees each token. Default 4. */
  readonly epochs?: number;
  /** Default 0.003. */
  readonly learningRate?: number;
  /** Bytes of hidden states and labels that training holds at a time. Default 256 MiB. */
  readonly memoryBytes?: number;
  /** Where to go on from, and where to leave what the next run goes on from. */
  readonly checkpoint?: CheckpointStore;
  readonly onProgress?: (progress: CalibrationProgress) => void;
  /** Hears in words whether the checkpoint is used. */
  readonly onNotice?: (text: string) => void;
  readonly signal?: AbortSignal;
}

/** Options with their defaults. */
export interface CalibrationPlan {
  readonly kindOf: (layer: CalibrationLayer) => PredictorKind;
  readonly config: SidecarConfig;
  /** Most tokens of a group of samples, between checkpoints. */
  readonly groupTokens: number;
  /** Names source, samples and options: what a checkpoint has to fit. */
  readonly fingerprint: string;
}

/** Tokens of a training step. */
export const batchTokens = 256;
const maxGroupTokens = 16384;
const minSamples = 3;

/** @throws {ArgumentError} for options that make no sense */
export function planCalibration(source: CalibrationSource, options: CalibrateOptions): CalibrationPlan {
  const { samples, predictor = 'auto', targetRecall, targetSparsity, energyShare = 0.98, seed = 1 } = options;
  const {
    epochs = 4,
    learningRate = 0.003,
    memoryBytes = 256 * 2 ** 20,
    layers,
  } = { ...options, layers: source.layers };
  const refuse = (argument: string, expected: string, actual: unknown): never => {
    throw new ArgumentError({ argument, expected, actual: String(actual) });
  };
  const checkShare = (argument: string, share: number): void => {
    if (!(share > 0 && share <= 1)) refuse(argument, 'a share above 0 and up to 1', share);
  };
  if (layers.length === 0) refuse('model', 'feed-forward blocks', 'none (mixtures of experts are sparse already)');
  if (samples.length < minSamples) refuse('samples', `at least ${minSamples}`, samples.length);
  if (samples.some(({ length }) => length === 0)) refuse('samples', 'samples of at least one token', 'an empty one');
  if (predictor !== 'auto' && !predictorKinds.includes(predictor)) {
    refuse('predictor', ['auto', ...predictorKinds].join(' | '), predictor);
  }
  if (predictor === 'low-rank-product' && layers.some(({ isGated }) => !isGated)) {
    refuse('predictor', 'another one for blocks without a gate', predictor);
  }
  if (targetRecall !== undefined && targetSparsity !== undefined) {
    refuse('targetRecall and targetSparsity', 'one of them', 'both');
  }
  checkShare('energyShare', energyShare);
  if (targetSparsity === undefined) checkShare('targetRecall', targetRecall ?? 0.95);
  else if (!(targetSparsity >= 0 && targetSparsity < 1)) {
    refuse('targetSparsity', 'a share from 0 and below 1', targetSparsity);
  }
  if (!Number.isSafeInteger(seed)) refuse('seed', 'a safe integer', seed);
  if (!(epochs >= 0 && Number.isInteger(epochs))) refuse('epochs', 'an integer from 0', epochs);
  if (!(learningRate > 0 && learningRate < 10)) refuse('learningRate', 'a number above 0 and below 10', learningRate);
  const kindOf = (layer: CalibrationLayer): PredictorKind => (predictor === 'auto' ? bestKind(layer) : predictor);
  const rank = options.rank ?? Math.max(...layers.map((layer) => defaultRank(layer, kindOf(layer))));
  if (!(rank >= 32 && rank <= 4096 && rank % 32 === 0)) refuse('rank', 'a multiple of 32 from 32 to 4096', rank);
  const numTokens = samples.reduce((sum, { length }) => sum + length, 0);
  const config: SidecarConfig = {
    numSamples: samples.length,
    numTokens,
    seed,
    energyShare,
    target: targetSparsity === undefined ? { recall: targetRecall ?? 0.95 } : { sparsity: targetSparsity },
    rank,
    epochs,
    learningRate,
  };
  const bytesPerToken = layers.reduce((sum, { hiddenDim, ffnDim }) => sum + hiddenDim * 4 + ffnDim / 8, 0);
  const groupTokens = Math.max(batchTokens, Math.min(maxGroupTokens, Math.floor(memoryBytes / bytesPerToken)));
  const head = JSON.stringify({ config, predictor, groupTokens, hash: source.weightsHash, layers });
  const pieces = [
    new TextEncoder().encode(head),
    ...samples.map((tokens) => bytesOf(Int32Array.from([-1, ...tokensOf(tokens)]))),
  ];
  return {
    kindOf,
    config,
    groupTokens,
    fingerprint: sha256(pieces),
  };
}

function* tokensOf(tokens: ArrayLike<number>): Iterable<number> {
  for (let i = 0; i < tokens.length; i++) yield tokens[i];
}

/**
 * Gates of ReLU are 0 for most neurons, which one linear guess finds. With SiLU it takes both factors to tell what is small:
 * guesses of them lose less than half of what the gate alone does when their rank is half of the hidden dim, and more than it when it is
 * a quarter (figures: docs/guides/sparse-ffn.md).
 */
function bestKind(layer: CalibrationLayer): PredictorKind {
  const { activation, isGated, hiddenDim } = layer;
  if (!isGated || activation === 'relu' || activation === 'relu2') return 'low-rank';
  return 2 * defaultRank(layer, 'low-rank-product') >= hiddenDim ? 'low-rank-product' : 'gate-threshold';
}

/** Guesses that are multiplied have to be right in size, not only in order: they take more. */
function defaultRank({ hiddenDim }: CalibrationLayer, kind: PredictorKind): number {
  const share = kind === 'low-rank-product' ? 5 / 8 : 1 / 4;
  return Math.max(32, Math.min(256, Math.round((hiddenDim * share) / 32) * 32));
}
