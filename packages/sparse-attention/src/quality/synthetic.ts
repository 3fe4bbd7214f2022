/** Structured synthetic queries, keys and values: shaped like heads of trained models. */
import { ropeFrequencies, RowRotation } from '@winnow/ops';
import { ArgumentError, checkOptions, createRng, type OptionNames, type Rng, Tensor3 } from '@winnow/tensor';
import type { Rotate } from '../layer/call.js';

/**
 * What a head attends to: `local` its neighborhood through slowly drifting low-rank content; `sinks` the first token;
 * `heavy-hitters` a few planted tokens; `retrieval` content that recurs far away; `diffuse` nearly everything.
 */
export type HeadKind = 'local' | 'sinks' | 'heavy-hitters' | 'retrieval' | 'diffuse';

/** All kinds of heads. */
export const headKinds: readonly HeadKind[] = ['local', 'sinks', 'heavy-hitters', 'retrieval', 'diffuse'];

/** Sizes and seed of synthetic attention. */
export interface SyntheticOptions {
  readonly kind: HeadKind;
  readonly seqLen: number;
  /** Default: 2. */
  readonly numHeads?: number;
  /** Default: 1. */
  readonly numKvHeads?: number;
  /** Even. Default: 64. */
  readonly headDim?: number;
  /** Rank of the content that queries and keys share. Default: 8. */
  readonly rank?: number;
  readonly seed?: number;
}

const syntheticNames: OptionNames<SyntheticOptions> = {
  kind: true,
  seqLen: true,
  numHeads: true,
  numKvHeads: true,
  headDim: true,
  rank: true,
  seed: true,
};

/** Queries, keys and values of one layer, `[seqLen, heads, headDim]`; queries and keys after RoPE (base 10000). */
export interface SyntheticAttention {
  readonly q: Tensor3;
  readonly k: Tensor3;
  readonly v: Tensor3;
  /** The queries before RoPE, for policies that rotate them. */
  readonly unrotatedQ: Tensor3;
  readonly rotate: Rotate;
  /** Positions of planted tokens: sinks or heavy hitters. */
  readonly planted: readonly number[];
}

/** Rotation of pairs (i, i + headDim / 2) with base 10000. */
export function createRotate(headDim: number): Rotate {
  const { frequencies } = ropeFrequencies({ base: 10_000, rotaryDim: headDim });
  const rotation = new RowRotation(frequencies, 'halves');
  return (source, offset, position, out, outOffset) => {
    rotation.moveTo(position);
    rotation.apply(source, offset, out, outOffset, headDim);
  };
}

/**
 * Size of content logits; bonus of the token itself, which fades with distance as a constant direction does under RoPE;
 * bonus of planted tokens; how fast content drifts (correlation of neighbors).
 */
interface Profile {
  readonly logit: number;
  readonly recency: number;
  readonly bonus: number;
  readonly drift: number;
}

const profiles: Readonly<Record<HeadKind, Profile>> = {
  local: { logit: 2, recency: 14, bonus: 0, drift: 0.9 },
  sinks: { logit: 1.5, recency: 4, bonus: 10, drift: 0.9 },
  'heavy-hitters': { logit: 1.5, recency: 4, bonus: 6, drift: 0.9 },
  retrieval: { logit: 6, recency: 2, bonus: 0, drift: 0.9 },
  diffuse: { logit: 0.3, recency: 1, bonus: 0, drift: 0.9 },
};

/** The same options give the same tensors. @throws {ArgumentError} for impossible sizes */
export function syntheticAttention(options: SyntheticOptions): SyntheticAttention {
  checkOptions(options, syntheticNames);
  const { kind, seqLen, numHeads = 2, numKvHeads = 1, headDim = 64, rank = 8, seed = 1 } = options;
  if (headDim % 2 !== 0 || headDim < 4 || numHeads % numKvHeads !== 0 || seqLen < 1) {
    const actual = JSON.stringify({ seqLen, numHeads, numKvHeads, headDim });
    throw new ArgumentError({ argument: 'syntheticAttention', expected: 'an even head size and whole groups', actual });
  }
  const rng = createRng(seed);
  const { logit, recency, bonus, drift } = profiles[kind];
  const content = contentOf(rng, seqLen, rank, drift, kind === 'retrieval');
  const planted = plantedOf(rng, kind, seqLen);
  const q = Tensor3.create(seqLen, numHeads, headDim);
  const k = Tensor3.create(seqLen, numKvHeads, headDim);
  const v = Tensor3.create(seqLen, numKvHeads, headDim);
  // The slowest pair of RoPE hardly turns within any context: a bonus there reaches every distance.
  const still = headDim / 2 - 1;
  for (let kvHead = 0; kvHead < numKvHeads; kvHead++) {
    const toKey = gaussians(rng, headDim * rank, 1 / Math.sqrt(rank));
    const toValue = gaussians(rng, headDim * rank, 1 / Math.sqrt(rank));
    project(content, toKey, rank, k, kvHead, 1, rng, 0.3);
    project(content, toValue, rank, v, kvHead, 1, rng, 0.5);
    addConstant(k, kvHead, 1);
    for (let j = 0; j < seqLen; j++) k.row(j, kvHead)[still] = 0;
    for (const j of planted) {
      k.row(j, kvHead)[still] = bonus;
      if (kind === 'sinks') for (let d = 0; d < headDim; d++) v.row(j, kvHead)[d] *= 0.1; // sinks carry little content
    }
    const groupSize = numHeads / numKvHeads;
    for (let head = kvHead * groupSize; head < (kvHead + 1) * groupSize; head++) {
      project(content, toKey, rank, q, head, logit, rng, 0.3); // |q . k| / sqrt(d) is about `logit` for equal content
      addConstant(q, head, recency / (Math.sqrt(headDim) / 2)); // `recency` = this x headDim / 2 pairs / sqrt(headDim)
      for (let i = 0; i < seqLen; i++) q.row(i, head)[still] = Math.sqrt(headDim);
    }
  }
  const rotate = createRotate(headDim);
  return { q: rotateAll(q, rotate), k: rotateAll(k, rotate), v, unrotatedQ: q, rotate, planted };
}

/** A copy whose rows are rotated for their positions. */
function rotateAll(tensor: Tensor3, rotate: Rotate): Tensor3 {
  const { seqLen, numHeads, headDim } = tensor;
  const rotated = Tensor3.create(seqLen, numHeads, headDim);
  for (let row = 0; row < seqLen * numHeads; row++) {
    rotate(tensor.data, row * headDim, Math.floor(row / numHeads), rotated.data, row * headDim);
  }
  return rotated;
}

function gaussians(rng: Rng, length: number, size: number): Float64Array {
  return Float64Array.from({ length }, () => size * rng.nextGaussian());
}

/** [seqLen, rank]: an autoregressive drift; with repeats, stretches of 16 tokens recur from any earlier position. */
function contentOf(rng: Rng, seqLen: number, rank: number, drift: number, repeats: boolean): Float64Array {
  const content = new Float64Array(seqLen * rank);
  const noise = Math.sqrt(1 - drift * drift);
  let source = -1;
  for (let j = 0; j < seqLen; j++) {
    if (repeats && j % 16 === 0) source = j >= 64 && rng.nextFloat() < 0.5 ? rng.nextInt(j - 32) : -1;
    for (let i = 0; i < rank; i++) {
      const before = j === 0 ? rng.nextGaussian() : content[(j - 1) * rank + i];
      const copied = source >= 0 ? content[(source + (j % 16)) * rank + i] : undefined;
      content[j * rank + i] = copied ?? drift * before + noise * rng.nextGaussian();
    }
  }
  return content;
}

function plantedOf(rng: Rng, kind: HeadKind, seqLen: number): number[] {
  if (kind === 'sinks') return [0];
  if (kind !== 'heavy-hitters') return [];
  const count = Math.max(1, Math.floor(seqLen / 100));
  return [...new Set(Array.from({ length: count }, () => rng.nextInt(seqLen)))].toSorted((a, b) => a - b);
}

/** Adds the same to every pair: after rotation, the dot product of two such vectors fades with their distance. */
function addConstant(target: Tensor3, head: number, size: number): void {
  for (let j = 0; j < target.seqLen; j++) {
    const row = target.row(j, head);
    for (let d = 0; d < row.length / 2; d++) row[d] += size;
  }
}

function project(
  content: Float64Array,
  matrix: Float64Array,
  rank: number,
  target: Tensor3,
  head: number,
  size: number,
  rng: Rng,
  noise: number,
): void {
  for (let j = 0; j < target.seqLen; j++) {
    const row = target.row(j, head);
    for (let d = 0; d < row.length; d++) {
      let sum = noise * rng.nextGaussian();
      for (let i = 0; i < rank; i++) sum += matrix[d * rank + i] * content[j * rank + i];
      row[d] = size === 1 ? sum : (sum * size) / Math.sqrt(row.length);
    }
  }
}
