import { ArgumentError, ShapeError } from '@winnow/tensor';
import { activationFunction } from '../numerics/activation-functions.js';
import { softplus } from '../numerics/softplus.js';
import { f32Only } from '../spec/dtypes.js';
import type { OpSpec } from '../spec/op-spec.js';
import { eachSequence, stateInputs } from '../spec/recurrent-state.js';

const sigmoid = activationFunction('sigmoid');

/** The key head (of G) of value head h (of N): `h mod G`, or `floor(h * G / N)`. */
export const headMappings: readonly string[] = ['tiled', 'grouped'];

/**
 * The gated delta rule: linear attention with a decaying, self-correcting memory. Per value head with memory `M [V, S]`
 * and per token, with `q`, `k` of its key head:
 *
 *     q = q / sqrt(sum q^2 + eps) / sqrt(S),  k = k / sqrt(sum k^2 + eps)
 *     M = exp(softplus(alpha + alphaBias) * decay) * M
 *     M = M + sigmoid(beta) * (v - M k) k^T
 *     y = M q
 *
 * Shapes: qkv `[T, C]` with q `[G, S]`, k `[G, S]`, v `[N, V]` concatenated, `C = 2 G S + N V`, G = `numKeyHeads`
 * dividing N; alpha, beta `[T, N]`; alphaBias, decay `[N]`, decay negative or 0; y `[T, N, V]`, all f32.
 * State `[R, N, V, S]` f32: the memories; its rows: see `recurrent-state.ts`.
 * Numerics: the reference computes a step in f64 and rounds the memory to f32 at its end.
 * Cost: `7 V S` operations per token and value head.
 * Source: arXiv:2412.06464, the gated delta rule. Rows of M are independent, so blocks of rows stay in the L1 cache
 * over all tokens of a step. The chunked form of that paper needs no fewer operations.
 */
export const gatedDelta: OpSpec = {
  name: 'gated-delta',
  inputs: {
    qkv: { dtypes: f32Only, shape: 'T C' },
    alpha: { dtypes: f32Only, shape: 'T N' },
    beta: { dtypes: f32Only, shape: 'T N' },
    alphaBias: { dtypes: f32Only, shape: 'N' },
    decay: { dtypes: f32Only, shape: 'N' },
    ...stateInputs,
  },
  outputs: {
    state: { dtypes: f32Only, shape: 'R N V S', updates: true },
    y: { dtypes: f32Only, shape: 'T N V' },
  },
  axes: {
    T: 'numTokens',
    C: 'numColumns',
    N: 'numHeads',
    B: 'numSequences',
    R: 'numStates',
    V: 'valueDim',
    S: 'keyDim',
  },
  attributes: {
    numKeyHeads: { kind: 'number', integer: true },
    eps: { kind: 'number' },
    heads: { kind: 'string', values: headMappings, default: 'tiled' },
  },
  fixedAxes: ['C', 'N', 'R', 'V', 'S'],
  partition: 'heads',
  work: 'y.numElements * state.keyDim',
  check({ qkv, state }, { numKeyHeads }) {
    const [, numHeads, valueDim, keyDim] = state.map(Number);
    const groups = Number(numKeyHeads);
    if (groups < 1 || numHeads % groups !== 0) {
      const expected = `a divisor of ${numHeads}`;
      throw new ArgumentError({ argument: 'gated-delta: numKeyHeads', expected, actual: String(groups) });
    }
    const numChannels = 2 * groups * keyDim + numHeads * valueDim;
    if (Number(qkv[1]) !== numChannels) {
      const [expected, actual] = [String(numChannels), String(qkv[1])];
      throw new ShapeError({ op: 'gated-delta', rule: 'channels of q, k and v', expected, actual });
    }
  },
  bindReference({ inputs, outputs: { state, y }, attributes }) {
    const { qkv, alpha, beta, alphaBias, decay } = inputs;
    const numKeyHeads = attributes['numKeyHeads'] as number;
    const eps = attributes['eps'] as number;
    const isTiled = attributes['heads'] === 'tiled';
    const [, numHeads, valueDim, keyDim] = state.shape;
    const numChannels = qkv.shape[1];
    const memory = new Float64Array(valueDim * keyDim);
    const q = new Float64Array(keyDim);
    const k = new Float64Array(keyDim);
    const readUnit = (begin: number, target: Float64Array, factor: number): void => {
      let squares = 0;
      for (let j = 0; j < keyDim; j++) squares += qkv.data[begin + j] ** 2;
      const scale = factor / Math.sqrt(squares + eps);
      for (let j = 0; j < keyDim; j++) target[j] = qkv.data[begin + j] * scale;
    };
    return () => {
      eachSequence(inputs, (begin, end, from, to) => {
        for (let head = 0; head < numHeads; head++) {
          const keyHead = isTiled ? head % numKeyHeads : Math.floor((head * numKeyHeads) / numHeads);
          const source = (from * numHeads + head) * memory.length;
          for (let i = 0; i < memory.length; i++) memory[i] = from < 0 ? 0 : state.data[source + i];
          for (let t = begin; t < end; t++) {
            const row = t * numChannels;
            readUnit(row + keyHead * keyDim, q, keyDim ** -0.5);
            readUnit(row + (numKeyHeads + keyHead) * keyDim, k, 1);
            const gate = t * numHeads + head;
            const kept = Math.exp(softplus(alpha.data[gate] + alphaBias.data[head]) * decay.data[head]);
            const rate = sigmoid(beta.data[gate]);
            const values = row + 2 * numKeyHeads * keyDim + head * valueDim;
            for (let i = 0; i < valueDim; i++) {
              let recalled = 0;
              for (let j = 0; j < keyDim; j++) {
                memory[i * keyDim + j] *= kept;
                recalled += memory[i * keyDim + j] * k[j];
              }
              const delta = rate * (qkv.data[values + i] - recalled);
              let sum = 0;
              for (let j = 0; j < keyDim; j++) {
                memory[i * keyDim + j] += delta * k[j];
                sum += memory[i * keyDim + j] * q[j];
              }
              y.data[gate * valueDim + i] = sum;
            }
          }
          const target = (to * numHeads + head) * memory.length;
          for (let i = 0; i < memory.length; i++) state.data[target + i] = memory[i];
        }
      });
    };
  },
  flops: ({ y: [numTokens, numHeads, valueDim], state }) => 7 * numTokens * numHeads * valueDim * state[3],
  bytes: ({ qkv, y, stateTo, state: [, numHeads, valueDim, keyDim] }) =>
    4 * (qkv[0] * qkv[1] + y[0] * y[1] * (y[2] + 2) + 2 * stateTo[0] * numHeads * valueDim * keyDim),
};
