/** FFN blocks of the goldens, and random ones. */
import { readFileSync } from 'node:fs';
import type { ActivationKind } from '@winnow/ops';
import { createRng } from '@winnow/tensor';
import type { FeedForwardShape, FeedForwardWeights } from '../src/index.js';

interface GoldenBlock {
  readonly activation: ActivationKind;
  readonly x: readonly number[];
  readonly gate?: readonly number[];
  readonly up: readonly number[];
  readonly upBias?: readonly number[];
  readonly down: readonly number[];
  readonly downBias?: readonly number[];
  readonly contributions: readonly number[];
  /** Indices of the largest contributions that have 90 % of the energy. */
  readonly numActiveAt90: number;
  readonly dense: readonly number[];
  readonly active: readonly (readonly number[])[];
  readonly sparse: readonly number[];
}

interface Goldens {
  readonly hiddenDim: number;
  readonly ffnDim: number;
  readonly blocks: readonly GoldenBlock[];
  readonly lowRank: {
    readonly hiddenDim: number;
    readonly ffnDim: number;
    readonly rank: number;
    readonly numRows: number;
    readonly x: readonly number[];
    readonly weight: readonly number[];
    readonly bestMeanSquare: number;
  };
  readonly step: {
    readonly numRows: number;
    readonly hiddenDim: number;
    readonly rank: number;
    readonly ffnDim: number;
    readonly positiveWeight: number;
    readonly learningRate: number;
    readonly x: readonly number[];
    readonly labels: readonly number[];
    readonly p: readonly number[];
    readonly q: readonly number[];
    readonly bias: readonly number[];
    readonly loss: number;
    readonly after: Readonly<Record<'p' | 'q' | 'bias', readonly number[]>>;
  };
  /** Low-rank estimates of gate and up of a SwiGLU block as codes with a scale, and `|act(gate) * up|` of some tokens. */
  readonly product: {
    readonly hiddenDim: number;
    readonly ffnDim: number;
    readonly rank: number;
    readonly scale: number;
    readonly x: readonly number[];
    readonly estimates: Readonly<Record<'gate' | 'up', Readonly<Record<'p' | 'q' | 'bias', readonly number[]>>>>;
    readonly scores: readonly number[];
  };
}

export function goldens(): Goldens {
  return JSON.parse(readFileSync(new URL('../src/__fixtures__/goldens.json', import.meta.url), 'utf8')) as Goldens;
}

export interface NamedBlock {
  readonly name: string;
  readonly weights: FeedForwardWeights;
  readonly golden: GoldenBlock;
  readonly rows: readonly Float32Array[];
}

export function goldenBlocks(): NamedBlock[] {
  const { hiddenDim, ffnDim, blocks } = goldens();
  return blocks.map((golden) => {
    const { activation, gate, up, upBias, down, downBias } = golden;
    const floats = (name: string, values: readonly number[] | undefined): object =>
      values === undefined ? {} : { [name]: Float32Array.from(values) };
    const weights: FeedForwardWeights = {
      hiddenDim,
      ffnDim,
      activation,
      up: Float32Array.from(up),
      down: Float32Array.from(down),
      ...floats('gate', gate),
      ...floats('upBias', upBias),
      ...floats('downBias', downBias),
    };
    const rows = Array.from({ length: golden.x.length / hiddenDim }, (_, t) =>
      Float32Array.from(golden.x.slice(t * hiddenDim, (t + 1) * hiddenDim)),
    );
    return { name: `${gate === undefined ? 'two matrices' : 'gated'}, ${activation}`, weights, golden, rows };
  });
}

/** Two-matrix blocks have biases. */
export function randomBlock(shape: FeedForwardShape, seed: number): FeedForwardWeights {
  const { isGated, ...dims } = shape;
  const { hiddenDim, ffnDim } = dims;
  const rng = createRng(seed);
  const normal = (length: number, scale: number): Float32Array =>
    Float32Array.from({ length }, () => scale * rng.nextGaussian());
  const up = normal(hiddenDim * ffnDim, 1 / Math.sqrt(hiddenDim));
  const down = normal(hiddenDim * ffnDim, 1 / Math.sqrt(ffnDim));
  return isGated
    ? { ...dims, gate: normal(hiddenDim * ffnDim, 1 / Math.sqrt(hiddenDim)), up, down }
    : { ...dims, up, upBias: normal(ffnDim, 0.3), down, downBias: normal(hiddenDim, 0.3) };
}

const rows = new Map<string, Float32Array>();

export function randomRow(length: number, seed: number): Float32Array {
  const key = `${length} ${seed}`;
  const row = rows.get(key) ?? drawRow(length, seed);
  rows.set(key, row);
  return row.slice();
}

function drawRow(length: number, seed: number): Float32Array {
  const rng = createRng(seed);
  return Float32Array.from({ length }, () => rng.nextGaussian());
}

/**
 * A block with sparse gates that a low-rank predictor can predict: neurons depend on a few directions of the hidden state and
 * have a negative bias, carried by the last input, which is always 1.
 */
export function predictableBlock(
  {
    hiddenDim,
    ffnDim,
    directions,
  }: { readonly hiddenDim: number; readonly ffnDim: number; readonly directions: number },
  seed: number,
): { readonly weights: FeedForwardWeights; readonly hiddenState: (token: number) => Float32Array } {
  const weights = randomBlock({ activation: 'relu', isGated: true, hiddenDim, ffnDim }, seed);
  const rng = createRng(seed + 1);
  const gate = weights.gate as Float32Array;
  for (let id = 0; id < ffnDim; id++) {
    for (let i = 0; i < hiddenDim; i++) gate[id * hiddenDim + i] = i < directions ? rng.nextGaussian() : 0;
    gate[id * hiddenDim + hiddenDim - 1] = -1.2 * Math.sqrt(directions);
  }
  return {
    weights,
    hiddenState(token) {
      const x = randomRow(hiddenDim, token + 1000);
      x[hiddenDim - 1] = 1;
      return x;
    },
  };
}
