/** Scratch per thread of the kernels of sparse attention; sizes named as in `assembly`. */
import type { OpRecord, Program, TensorRef } from '@winnow/ops';
import { capacityOf } from './record-shapes.js';

// assembly/attention/query-panels.ts, assembly/ops/subquadratic-attention.ts and assembly/attention/subquadratic-edges.ts
const lanes = 64;
const panelRows = 256;
const span = 512;
const maxEdges = 160;
const landmarkRows = 40;
const maxGlobals = 16;
// assembly/attention/subquadratic-panels.ts and assembly/attention/landmark-pivots.ts
const maxDistances = 32;
const pivotRows = 32;

// assembly/ops/h2o-attention.ts
const tile = 32;
const unitTokens = 64;

// assembly/ops/streaming-attention.ts and oracle-topk-attention.ts
const alone = 64;

/** Bytes per thread; 0 for other ops. */
export function sparseScratchBytes(program: Program, { op, inputs, outputs, attributes }: OpRecord): number {
  const sizeOf = (name: string, axis: number): number =>
    capacityOf(program, (inputs[name] ?? outputs[name]) as TensorRef)[axis] as number;
  if (op === 'block-mean-append' || op === 'block-box-append')
    return 4 * (sizeOf('keys', 3) + sizeOf('values', 3)) + 64;
  if (op === 'key-columns-append') return 4 * sizeOf('keys', 3);
  if (!(op in scratchOf)) return 0;
  const numHeads = sizeOf('q', 1);
  const sizes: Sizes = {
    ...{ headDim: sizeOf('q', 2), valueDim: sizeOf('values', 3), blockSize: sizeOf('keys', 2) },
    groupSize: numHeads / sizeOf('keys', 1),
    numSlots: sizeOf('blockTable', 1) * sizeOf('keys', 2),
    numPages: op === 'page-topk-attention' ? sizeOf('blockTable', 1) * sizeOf('keyMin', 1) : 0,
    chunk: Number(attributes['chunk'] ?? 0),
    memory: op === 'h2o-attention' ? sizeOf('memory', 2) : 0,
  };
  return scratchOf[op as keyof typeof scratchOf](sizes) + 256;
}

/** Bytes that all threads share: sums of weights of the units of `h2o-attention`. */
export function sharedSparseBytes(program: Program, { op, inputs, outputs, attributes }: OpRecord): number {
  if (op !== 'h2o-attention') return 0;
  const [numTokens, numHeads] = capacityOf(program, inputs['q'] as TensorRef) as [number, number];
  const [numSequences] = capacityOf(program, inputs['contextLengths'] as TensorRef) as [number];
  const [, numKvHeads, capacity] = capacityOf(program, outputs['memory'] as TensorRef) as [number, number, number];
  const chunk = Number(attributes['chunk']);
  const tokenTile = Math.max(1, Math.floor(tile / Math.min(numHeads / numKvHeads, tile)));
  const tokensOfUnit = Math.max(1, Math.floor(unitTokens / tokenTile)) * tokenTile;
  const numParts = Math.ceil(Math.min(numTokens, numSequences * chunk) / tokensOfUnit) + numSequences;
  return numParts * numKvHeads * (chunk + capacity) * 4;
}

interface Sizes {
  readonly headDim: number;
  readonly valueDim: number;
  readonly blockSize: number;
  readonly groupSize: number;
  /** Slots and pages that a block table can name. */
  readonly numSlots: number;
  readonly numPages: number;
  readonly chunk: number;
  readonly memory: number;
}

function rowBytes({ headDim, valueDim }: Sizes): number {
  return 4 * (headDim + valueDim);
}

/** What `layPanels` lays out. */
function panelBytes({ headDim, valueDim }: Sizes, rows = panelRows): number {
  return 4 * lanes * (headDim + Math.ceil(valueDim / 8) * 8 + 3) + (rows + 8) * 32;
}

/** Panels, and rows of keys and values beside them. */
function gatheredBytes(sizes: Sizes): number {
  return panelBytes(sizes) + panelRows * rowBytes(sizes) + 64;
}

/** What `layWhole` lays out. */
function wholeBytes({ headDim, valueDim }: Sizes): number {
  return (
    8 * (panelRows + 16) + 64 + 96 * maxDistances + 16 * pivotRows + 4 * Math.max(headDim, valueDim) + 32 * valueDim
  );
}

const scratchOf = {
  'subquadratic-attention': (sizes: Sizes): number =>
    panelBytes(sizes) +
    (span + maxEdges) * (16 + rowBytes(sizes)) +
    8 * (16 + 4 * (sizes.valueDim + 8)) +
    landmarkRows * rowBytes(sizes) +
    wholeBytes(sizes) +
    4 * (maxGlobals + maxEdges) +
    128,
  'streaming-attention': (sizes: Sizes): number => gatheredBytes(sizes) + alone * 16 + 32 + 4 * sizes.valueDim,
  'oracle-topk-attention': (sizes: Sizes): number =>
    20 * sizes.numSlots + alone * (16 + rowBytes(sizes)) + 4 * sizes.valueDim + 128,
  'attention-mass': ({ groupSize, numSlots, blockSize, headDim }: Sizes): number =>
    4 * (groupSize * (numSlots + 4) + blockSize * headDim) + 64,
  'sparq-attention': (sizes: Sizes): number =>
    gatheredBytes(sizes) +
    (5 + sizes.groupSize) * (4 * sizes.numSlots + 64) +
    4 * sizes.headDim * (sizes.groupSize + 3 + sizes.blockSize) +
    12 * sizes.valueDim +
    4 * sizes.numSlots +
    160,
  'page-topk-attention': (sizes: Sizes): number =>
    gatheredBytes(sizes) +
    8 * sizes.numSlots +
    (6 + 3 * sizes.groupSize) * (4 * sizes.numPages + 16) +
    4 * sizes.groupSize * (sizes.headDim + 1) +
    64,
  'h2o-attention': (sizes: Sizes): number =>
    panelBytes(sizes, Math.max(sizes.chunk, sizes.memory)) + (sizes.chunk + sizes.memory) * (32 + rowBytes(sizes)) + 64,
};
