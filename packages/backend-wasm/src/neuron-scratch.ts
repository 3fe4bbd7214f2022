/** Scratch of the kernels of sparse feed-forward blocks; sizes named as in `assembly`. */
import type { OpRecord, Program, TensorRef } from '@winnow/ops';
import { tensorBytes } from '@winnow/tensor';
import { maxThreads } from './layout.generated.js';
import { isInt8Sparse } from './packing.js';
import { capacityOf } from './record-shapes.js';

// assembly/ops/sparse-matmul.ts and sparse-matmul-int8.ts
const panelRows = 32;
const panelColumns = 512;
const passTokens = 256;
const expandedBytes = 160;
const maxBlockBytes = 34 / 32; // per value
// assembly/ops/sparse-combine.ts
const columns = 256;
const depth = 64;
const combinedTokens = 64;
// assembly/ffn/sparse-combine-int8.ts
const tablesBytes = 128 + combinedTokens * 128 + 64 + 64 + 1024;
const fewTokens = 3;
// assembly/ops/sparse-feed-forward.ts
const maxParts = 32;
const sideBytes = 1024;
// assembly/ffn/gather-gemv-repacked.ts
const lanesBytes = 288 / 128; // per column, where codes are flipped

/** Bytes that all threads see; 0 for other ops. */
export function sharedNeuronBytes(program: Program, { op, inputs }: OpRecord): number {
  if (op === 'active-neurons') {
    const numNeurons = capacityOf(program, inputs['thresholds'] as TensorRef)[0] as number;
    return 64 * maxThreads + 4 * numNeurons;
  }
  if (op !== 'sparse-matmul' && op !== 'sparse-feed-forward') return 0;
  const [numTokens, numInputs] = capacityOf(program, inputs['x'] as TensorRef) as [number, number];
  const codes = Math.ceil(numTokens / 8) * 8 * numInputs * 4 + 256;
  if (op === 'sparse-matmul') return codes;
  const [numNeurons] = capacityOf(program, inputs['rows'] as TensorRef) as [number];
  const parts = maxParts * Math.min(numTokens, fewTokens) * numInputs * 4;
  return codes + 64 + Math.max(parts, 2 * numTokens * numNeurons * 4);
}

/** Bytes per thread; 0 for other ops. */
export function localNeuronBytes(program: Program, record: OpRecord): number {
  const { op } = record;
  if (op === 'sparse-matmul') return productBytes(program, record);
  if (op === 'sparse-combine') return sumBytes(program, record);
  if (op === 'sparse-feed-forward') {
    const width = capacityOf(program, record.inputs['weight'] as TensorRef).at(-1) as number;
    const side = sideBytes + fewTokens * (4 + lanesBytes) * width;
    return Math.max(productBytes(program, record), sumBytes(program, record), side);
  }
  return 0;
}

function sumBytes(program: Program, { inputs }: OpRecord): number {
  const numOutputs = capacityOf(program, inputs['weight'] as TensorRef).at(-1) as number;
  const sums = Math.max(combinedTokens * columns, fewTokens * numOutputs) * 4;
  return Math.max(tablesBytes, depth * columns * 4 + combinedTokens * depth * 4) + sums + 64;
}

function productBytes(program: Program, record: OpRecord): number {
  const { inputs } = record;
  const numInputs = capacityOf(program, inputs['weight'] as TensorRef).at(-1) as number;
  const byDots = 4 * numInputs * 4;
  const byTiles = panelRows * 4 + panelRows * panelColumns * 4 + panelRows * passTokens * 4;
  if (!isInt8Sparse(record)) return Math.max(byDots, byTiles);
  const { dtype } = inputs['weight'] as TensorRef;
  const numBlocks = Math.ceil(numInputs / 256) * 8;
  const plain = panelRows * 20;
  const interleaved = 4 * tensorBytes(dtype, [numInputs]) + 64 + numBlocks * expandedBytes;
  const panels =
    (panelRows / 4) * (panelColumns / 32) * expandedBytes + 4 * panelColumns * maxBlockBytes + 64 + panelRows * 128 * 4;
  // activations may be kept in f32 nevertheless
  return Math.max(byDots, byTiles, plain, interleaved, panels) + 64;
}
