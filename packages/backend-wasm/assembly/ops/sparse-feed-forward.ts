/**
 * Gated blocks of chosen neurons whose rows of gate, up and down lie side by side. Tensors: x, weight, rows, count, previous, y.
 *
 * Up to three tokens, q8_0 and q4_0, machines with a fit dot product: a thread takes 32 neurons at a time from their first byte to
 * their last, and adds what they give to sums of its own; those of all groups are then added in the order of the neurons, so
 * that no number depends on threads. Anything else goes matrix by matrix, as the four ops do that this one stands for.
 */
import { Q4_0, Q8_0, bytesOf } from '../decode';
import { isExactForU8 } from '../dots8';
import { FLAG_INT8 } from '../layout';
import { metasAt, META_BYTES, quantiseTokens } from '../quantise';
import {
  addressOf,
  attributeI,
  dim,
  dtypeOf,
  hasFlag,
  isPresent,
  localScratch,
  setMatrix,
  setRowStride,
  sharedScratch,
} from '../record';
import { EIGHT, rowDots, rowSum } from '../row-dots';
import { addRows } from '../row-sums';
import { phaseBarrier, takeUnits, threads } from '../threads';
import { gated4, gatedActivation } from './pointwise';
import { sparseCombine } from './sparse-combine';
import { sparseMatmul } from './sparse-matmul';

/** Neurons of a group: `neuronGroup` of packages/ops. */
const GROUP: i32 = 32;
/** Neurons whose rows are walked side by side. */
const SIDE: i32 = 16;
/** Most groups whose sums are there at once. */
const MAX_PARTS: i32 = 32;
/** Most tokens that need no interleaving. */
const FEW_TOKENS: i32 = 3;
/** Columns of a unit where sums are added. */
const COLUMNS: i32 = 256;

// scratch per thread: addresses of rows of the three matrices; sums of products; gates; values; what sums of rows need
const TABLE_BYTES: usize = <usize>SIDE << 2;
const DOTS: usize = 3 * TABLE_BYTES;
const GATES: usize = DOTS + (<usize>SIDE << 4);
const VALUES: usize = GATES + TABLE_BYTES;
const REST: usize = VALUES + TABLE_BYTES;

export function sparseFeedForward(): void {
  const numTokens = dim(0, 0);
  const dtype = dtypeOf(1);
  let isNarrow = false;
  if (ASC_FEATURE_RELAXED_SIMD) isNarrow = dtype == Q4_0 || (dtype == Q8_0 && isExactForU8());
  if (hasFlag(FLAG_INT8) && isNarrow && numTokens <= FEW_TOKENS) sideBySide(numTokens, dim(0, 1), dtype);
  else matrixByMatrix(numTokens, dim(0, 1), dtype);
}

/** Where in the shared scratch that begins which products do not need; as in src/neuron-scratch.ts. */
function behindCodes(numTokens: i32, numInputs: i32): usize {
  return sharedScratch() + ((<usize>((numTokens + 7) & ~7) * <usize>numInputs * 4 + 256 + 63) & ~63);
}

function sideBySide(numTokens: i32, width: i32, dtype: i32): void {
  const count = load<i32>(addressOf(3));
  const numGroups = (count + GROUP - 1) / GROUP;
  const parts = behindCodes(numTokens, width);
  const partBytes = <usize>numTokens * <usize>width << 2;
  quantiseTokens(addressOf(0), numTokens, width, sharedScratch());
  phaseBarrier();
  // alone there is nobody to wait for
  let size = 1;
  if (threads() > 1) {
    const numRounds = max<i32>(1, (numGroups + MAX_PARTS - 1) / MAX_PARTS);
    size = (numGroups + numRounds - 1) / numRounds;
    size = min<i32>(MAX_PARTS, (size + threads() - 1) / threads() * threads());
  }
  let first = 0;
  do {
    const numParts = min<i32>(size, numGroups - first);
    for (let part = takeUnits(1); part < numParts; part = takeUnits(1)) {
      const to = parts + <usize>part * partBytes;
      memory.fill(to, 0, partBytes);
      const begin = (first + part) * GROUP;
      const end = min<i32>(count, begin + GROUP);
      for (let j = begin; j < end; j += SIDE) addNeurons(j, min<i32>(end, j + SIDE), numTokens, width, dtype, to);
    }
    phaseBarrier();
    const numColumns = numTokens * width;
    for (let c = takeUnits(COLUMNS); c < numColumns; c = takeUnits(COLUMNS)) {
      addParts(<usize>c << 2, <usize>min<i32>(numColumns, c + COLUMNS) << 2, first == 0, parts, numParts, partBytes);
    }
    first += size;
    if (first < numGroups) phaseBarrier();
  } while (first < numGroups);
}

/** Bytes `[begin, end)` of y: those before plus all parts, one after the other. */
function addParts(begin: usize, end: usize, isFirst: bool, parts: usize, numParts: i32, partBytes: usize): void {
  const y = addressOf(5);
  const before = isFirst ? (isPresent(4) ? addressOf(4) : 0) : y;
  for (let at = begin; at < end; at += 16) {
    let sum = before != 0 ? v128.load(before + at) : f32x4.splat(0);
    let from = parts + at;
    for (let part = 0; part < numParts; part++, from += partBytes) sum = f32x4.add(sum, v128.load(from));
    v128.store(y + at, sum);
  }
}

/** Adds what the chosen neurons `[begin, end)` give to sums `[token][column]`. */
function addNeurons(begin: i32, end: i32, numTokens: i32, width: i32, dtype: i32, to: usize): void {
  const numBlocks = width >> 5;
  const isQ4 = dtype == Q4_0;
  const rowBytes = bytesOf(dtype, width);
  const kind = attributeI(0);
  const gates = localScratch();
  const ups = gates + TABLE_BYTES;
  const downs = ups + TABLE_BYTES;
  const dots = gates + DOTS;
  const values = gates + VALUES;
  const numEights = (end - begin + EIGHT - 1) / EIGHT;
  const numSide = numEights * EIGHT;
  for (let i = 0; i < numSide; i++) {
    // beyond the end the last neuron stands in
    const row = <usize>load<u32>(addressOf(2) + (<usize>min<i32>(begin + i, end - 1) << 2));
    const at = addressOf(1) + row * 3 * rowBytes;
    store<u32>(gates + (<usize>i << 2), <u32>at);
    store<u32>(ups + (<usize>i << 2), <u32>(at + rowBytes));
    store<u32>(downs + (<usize>i << 2), <u32>(at + 2 * rowBytes));
  }
  const metas = metasAt(sharedScratch(), numTokens, width);
  for (let t = 0; t < numTokens; t++) {
    const x = sharedScratch() + <usize>t * <usize>width;
    const meta = metas + <usize>(t * numBlocks) * META_BYTES;
    rowDots(isQ4, gates, numEights, x, meta, numBlocks, dots);
    for (let i = 0; i < numSide; i++) store<f32>(gates + GATES + (<usize>i << 2), rowSum(dots, i));
    rowDots(isQ4, ups, numEights, x, meta, numBlocks, dots);
    for (let i = 0; i < numSide; i++) store<f32>(values + (<usize>i << 2), rowSum(dots, i));
    for (let at: usize = 0; at < <usize>numSide << 2; at += 16) {
      v128.store(values + at, gated4(kind, v128.load(gates + GATES + at), v128.load(values + at)));
    }
    memory.fill(values + (<usize>(end - begin) << 2), 0, <usize>(numSide - (end - begin)) << 2);
    for (let eight: usize = 0; eight < <usize>numEights; eight++) {
      const offset = eight << 5;
      addRows(isQ4, downs + offset, values + offset, numBlocks, to + (<usize>t * <usize>width << 2), gates + REST);
    }
  }
}

function matrixByMatrix(numTokens: i32, width: i32, dtype: i32): void {
  const numRows = dim(1, 0);
  const numNeurons = dim(2, 0);
  const rowBytes = bytesOf(dtype, width);
  const weight = addressOf(1);
  const rows = addressOf(2);
  const count = addressOf(3);
  const previous = isPresent(4) ? addressOf(4) : 0;
  const y = addressOf(5);
  const dtypeOfX = dtypeOf(0);
  const dtypeOfRows = dtypeOf(2);
  const gate = behindCodes(numTokens, width);
  const up = gate + (<usize>numTokens * <usize>numNeurons << 2);
  setRowStride(3 * rowBytes);
  // x, weight, rows, count, bias, ids, y
  setMatrix(1, dtype, weight, numRows, width);
  setMatrix(4, 0, 0, 0, 0);
  setMatrix(5, 0, 0, 0, 0);
  setMatrix(6, dtypeOfX, gate, numTokens, numNeurons);
  sparseMatmul();
  phaseBarrier();
  setMatrix(1, dtype, weight + rowBytes, numRows, width);
  setMatrix(6, dtypeOfX, up, numTokens, numNeurons);
  sparseMatmul();
  phaseBarrier();
  // gate, up, count, y
  setMatrix(0, dtypeOfX, gate, numTokens, numNeurons);
  setMatrix(1, dtypeOfX, up, numTokens, numNeurons);
  setMatrix(2, dtypeOfRows, count, 1, 1);
  setMatrix(3, dtypeOfX, gate, numTokens, numNeurons);
  gatedActivation();
  phaseBarrier();
  // h, weight, rows, count, previous, y
  setMatrix(1, dtype, weight + 2 * rowBytes, numRows, width);
  setMatrix(2, dtypeOfRows, rows, 1, numNeurons);
  setMatrix(3, dtypeOfRows, count, 1, 1);
  setMatrix(4, dtypeOfX, previous, numTokens, width);
  setMatrix(5, dtypeOfX, y, numTokens, width);
  sparseCombine();
}
