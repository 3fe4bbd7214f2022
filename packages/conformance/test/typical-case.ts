import { kernelCases, type KernelCase } from '../src/index.js';

/**
 * A case with ordinary values, neither empty nor the largest: the named one, else one of 67 columns, else the middle one of
 * the list.
 */
export function typicalCase(op: string): KernelCase {
  const names: Readonly<Record<string, string>> = {
    matmul: 'q8_0, 5 x 64 -> 33, bias, gaussian',
    'gated-matmul': 'silu, q8_0, 3 x 64 -> 33',
    'norm-matmul': 'q8_0, 3 x 64 -> 33',
    rope: 'halves, plain, 64 of 64 dims, 3 heads, positions 0 1 5000',
    'embedding-lookup': 'q4_0, 4 rows of 64, scale 11.3137',
    'gather-rows': '5 rows of 33',
    'scatter-rows': '9 rows of 33',
    'position-append': '7 tokens, blocks of 5',
    'kv-append': 'f16 / f16, 17 tokens, 2 heads of 32 / 64, blocks of 8',
    attention: 'several sequences',
    'attention-partial': 'several sequences, parts: 3',
    'attention-merge': '3 + 0 parts, 3 x 2 x 16',
    'attention-finish': '3 x 3 x 67',
    scale: '3 x 67, times 0.1',
    'expert-route': 'sigmoid, normalized, 5 of 17 x 33, bias',
    'expert-matmul': 'q8_0, 13 x 32 -> 2 of 3 x 9, shared rows',
    'short-conv': '4 sequences, 33 channels, 4 taps, silu',
    'selective-scan': '4 sequences, 4 heads of 8 x 16 in 2 groups, bias',
    'gated-delta': '4 sequences, 4 heads of 16 over 2 of 16, tiled',
    'block-mean-append': 'next token',
    'block-box-append': 'next token',
    'key-columns-append': 'f16 to f16, 9 tokens, heads of 20, blocks of 4',
    'clamp-positions': '7 positions, at most 9',
    'subquadratic-attention': 'several sequences, local 4, landmarks compat',
    'streaming-attention': 'several sequences, local 9, sinks 3',
    'sparq-attention': 'several sequences, rank 5, top 9, local 3',
    'page-topk-attention': 'several sequences, budget 2, epsilon 0, sinks 2, local 5, 1 parts',
    'verified-topk-attention': 'several sequences, epsilon 0.2, budget 1, sample 6, sinks 2, local 5, 1 parts, seed 0',
    'delta-correction': 'several sequences, delta 3, from -1 -1 -1',
    'oracle-topk-attention': 'several sequences, k 6',
    'state-carry': '4 sequences, f32, 2 x 7',
    'attention-mass': 'several sequences',
    hadamard: '5 x 3 x 24',
    'active-neurons': '3 x 67, thresholds near 0.5, magnitudes, at most 0.75',
    'sparse-matmul': 'q8_0, 5 x 64 -> all of 37, bias by id',
    'gather-columns': 'slots of 5 x 67',
    'sparse-combine': 'q8_0, 5 x all of 37 -> 64',
    'sparse-feed-forward': 'q8_0, silu, 5 x 64, all of 37',
    'h2o-attention': 'prompt of 23, chunk 8, local 2, heavy 3, sinks 0, from -1',
  };
  const cases = kernelCases[op];
  const name = names[op];
  if (name === undefined) return cases.find((other) => other.name.endsWith('x 67')) ?? cases[cases.length >> 1];
  const found = cases.find((other) => other.name === name);
  if (found === undefined) throw new Error(`no typical case of ${op}`);
  return found;
}
