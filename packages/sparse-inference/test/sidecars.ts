/** Sidecars for tests, and their files in memory. */
import { memorySink, memorySource } from '@winnow/bytes';
import { createRng } from '@winnow/tensor';
import { openSafetensors, writeSafetensors } from '@winnow/safetensors';
import {
  type StoredMatrix,
  columnNorms,
  sidecarContent,
  type FeedForwardWeights,
  type PredictorKind,
  type PredictorTables,
  type Sidecar,
  type SidecarContent,
  type SidecarFile,
  type SparseLayer,
} from '../src/index.js';
import { encodeMatrix } from '../src/sidecar/stored-matrix.js';

export async function fileOf(content: SidecarContent): Promise<Uint8Array> {
  const sink = memorySink('test.sparse.safetensors');
  await writeSafetensors(sink, content);
  return sink.toBytes();
}

export function open(bytes: Uint8Array): Promise<SidecarFile> {
  return openSafetensors(memorySource(bytes, 'test.sparse.safetensors'));
}

export async function sidecarBytes(sidecar: Sidecar): Promise<Uint8Array> {
  return fileOf(sidecarContent(sidecar));
}

const report = {
  numTokens: 100,
  trueRatio: 0.05,
  activeRatio: 0.1,
  inputRatio: 1,
  recall: 0.95,
  precision: 0.5,
  energy: 0.98,
  cosine: 0.99,
};

/** Random predictor tables that select about half of the neurons for random inputs. */
export function randomTables(
  kind: PredictorKind,
  { hiddenDim, ffnDim }: FeedForwardWeights,
  seed: number,
): PredictorTables {
  const rng = createRng(seed);
  const positive = (length: number): Float32Array => Float32Array.from({ length }, () => 0.3 * rng.nextFloat());
  const normal = (length: number): Float32Array => Float32Array.from({ length }, () => rng.nextGaussian());
  const thresholds = positive(ffnDim);
  if (kind === 'gate-threshold') return { kind, thresholds };
  if (kind === 'input-threshold') return { kind, thresholds, inputThresholds: positive(hiddenDim) };
  const rank = 32;
  const pair = (): { p: StoredMatrix; q: StoredMatrix } => ({
    p: encodeMatrix(normal(rank * hiddenDim), rank, hiddenDim),
    q: encodeMatrix(normal(ffnDim * rank), ffnDim, rank, kind === 'low-rank' ? 'q8_0' : 'q4_0'),
  });
  if (kind === 'low-rank') return { kind, rank, ...pair(), thresholds };
  return { kind, rank, gate: pair(), up: { ...pair(), bias: normal(ffnDim) }, thresholds };
}

export function sparseLayer(
  kind: PredictorKind,
  layer: number,
  weights: FeedForwardWeights,
  seed: number,
): SparseLayer {
  const { hiddenDim, ffnDim, activation, gate, down } = weights;
  const rng = createRng(seed + 1);
  const denseBytes = 4 * (gate === undefined ? 2 : 3) * hiddenDim * ffnDim; // f32
  const sparseBytes = report.activeRatio * denseBytes;
  return {
    layer,
    hiddenDim,
    ffnDim,
    activation,
    isGated: gate !== undefined,
    predictor: randomTables(kind, weights, seed),
    contributionThreshold: 0.1,
    downNorms: columnNorms(down, hiddenDim, ffnDim),
    frequencies: Float32Array.from({ length: ffnDim }, () => rng.nextFloat()),
    report: { ...report, denseBytes, sparseBytes, inputRatio: kind === 'input-threshold' ? 0.5 : 1 },
  };
}

export function sidecarOf(layers: readonly SparseLayer[]): Sidecar {
  const config = {
    numSamples: 10,
    numTokens: 1000,
    seed: 1,
    energyShare: 0.95,
    target: { recall: 0.95 },
    rank: 32,
    epochs: 4,
    learningRate: 0.003,
  };
  return { modelHash: 'xxh:1', config, layers };
}
