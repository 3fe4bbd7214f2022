/**
 * Glu FFN of active neurons; the gate, up and down rows of a neuron are adjacent in memory.
 * The fused path is for up to three tokens, q8_0 and q4_0, and relaxed builds. A thread takes groups of 32 neurons, streams eight
 * of them in parallel, and accumulates their weighted down rows. The sums of the groups are then added in the order of the
 * neurons, so that results do not depend on the number of threads. Rows are repacked (repack-neurons.ts), or in file layout if
 * another op reads them too; both give the same bits. Everything else runs matrix by matrix, like the four ops that this one replaces.
 */
import * as combine from '../operands/sparse-combine.generated';
import * as gated from '../operands/glu.generated';
import * as product from '../operands/sparse-matmul.generated';
import { attributes, count, previous, rows, weight, x, y } from '../operands/sparse-feed-forward.generated';
import { axpy, beginAxpy } from '../ffn/axpy';
import { fourSums, gatherGemv, gatherGemvRepacked } from '../ffn/gather-gemv';
import { addSums } from '../ffn/sparse-combine-int8';
import { SIGN_MAGNITUDE_BYTES, lanesBytes, quantizeLanes } from '../ffn/repacked-lanes';
import { F32, I32, Q4_0, Q8_0, bytesOf } from '../quant/dtypes.generated';
import { codeBytesFor, codesFor, metasAt, quantizeTokens } from '../quant/quantize-activations';
import { AXPY_ROWS, FLAG_INT8, FLAG_REPACKED, META_BYTES } from '../runtime/layout.generated';
import { MIN_PANEL_TOKENS, NEURON_COLUMNS, NEURON_GROUP } from '../runtime/layout.generated';
import { hasFlag, localScratch, setMatrix, setNeuronMatrix, setRowStride, sharedScratch } from '../runtime/record';
import { phaseBarrier, sharers, nextItems, thread } from '../runtime/threads';
import { activate, plainGlu } from './pointwise';
import { sparseCombine, weightedSumBytes } from './sparse-combine';
import { gatheredGemmBytes, sparseMatmul } from './sparse-matmul';

/** Maximum number of groups whose sums are held at once, by several threads and by one, so that they fit its caches. */
const MAX_PARTS: i32 = 32;
const MAX_OWN_PARTS: i32 = 4;
/** Maximum number of tokens of the fused path. */
const FEW_TOKENS: i32 = MIN_PANEL_TOKENS - 1;

// per-thread scratch: addresses of neurons; dot products; values [token][8]; coefficients; sums; lanes of activations
const TABLE_BYTES: usize = (<usize>AXPY_ROWS) << 2;
const DOTS: usize = TABLE_BYTES;
const VALUES: usize = DOTS + ((<usize>AXPY_ROWS) << 4);
const REST: usize = VALUES + <usize>FEW_TOKENS * TABLE_BYTES;
const SUMS: usize = 1024;

// the current op, set by each thread
let numTokens: i32 = 0;
let width: i32 = 0;
let dtype: i32 = 0;
let isQ4: bool = false;
let isRepacked: bool = false;
let numBlocks: i32 = 0;
let rowBytes: usize = 0;
/** Bytes of a row of sums. */
let sumBytes: usize = 0;
let weightAt: usize = 0;
let numNeurons: i32 = 0;

export function sparseFeedForward(): void {
  numTokens = x.numTokens;
  width = x.dim;
  dtype = weight.dtype;
  isQ4 = dtype === Q4_0;
  isRepacked = hasFlag(FLAG_REPACKED);
  numBlocks = width >> 5;
  rowBytes = bytesOf(dtype, width);
  sumBytes = (<usize>width) << 2;
  const isInt8 = ASC_FEATURE_RELAXED_SIMD && hasFlag(FLAG_INT8) && (isQ4 || dtype === Q8_0);
  if (isInt8 && numTokens <= FEW_TOKENS) runFused();
  else matrixByMatrix();
}

/** Byte offset in the shared scratch after the part that GEMM needs. */
function behindGemm(numTokens: i32, width: i32): u64 {
  return (<u64>((numTokens + 7) & ~7) * width * 4 + 256 + 63) & ~63;
}

function sharedRest(): usize {
  return sharedScratch() + <usize>behindGemm(numTokens, width);
}

/** Address of the activations of a token, quantized for repacked rows. */
function lanesOf(token: i32): usize {
  return localScratch() + SUMS + <usize>numTokens * sumBytes + <usize>token * lanesBytes(isQ4, numBlocks);
}

function quantizeInputs(): void {
  if (isRepacked) {
    // every thread quantizes for itself, which takes no longer than a barrier
    for (let t = 0; t < numTokens; t++) {
      quantizeLanes(isQ4, x.address + <usize>t * sumBytes, numBlocks, lanesOf(t));
    }
    return;
  }
  quantizeTokens(x.address, numTokens, width, sharedScratch());
  phaseBarrier();
}

function runFused(): void {
  quantizeInputs();
  const numGroups = (load<i32>(count.address) + NEURON_GROUP - 1) / NEURON_GROUP;
  const numSharers = sharers();
  const maxParts = numSharers > 1 ? MAX_PARTS : MAX_OWN_PARTS;
  const numRounds = max<i32>(1, (numGroups + maxParts - 1) / maxParts);
  let size = (numGroups + numRounds - 1) / numRounds;
  size = min<i32>(maxParts, ((size + numSharers - 1) / numSharers) * numSharers);
  let first = 0;
  do {
    const numParts = min<i32>(size, numGroups - first);
    computeParts(first, numParts);
    phaseBarrier();
    addParts(first === 0, numParts);
    first += size;
    if (first < numGroups) phaseBarrier();
  } while (first < numGroups);
}

function partBytes(): usize {
  return <usize>numTokens * sumBytes;
}

/** Computes the sums of groups `[first, first + numParts)`, one thread per group. */
function computeParts(first: i32, numParts: i32): void {
  const numSharers = sharers();
  // three quarters are assigned statically, so that sums stay in the caches of their threads; the rest balances the load
  const numDealt = ((numParts * 3) / (4 * numSharers)) * numSharers;
  const own = numSharers === 1 ? 0 : thread();
  let part = own < numDealt ? own : numDealt + nextItems(1);
  while (part < numParts) {
    computePart((first + part) * NEURON_GROUP, sharedRest() + <usize>part * partBytes());
    part = part + numSharers < numDealt ? part + numSharers : numDealt + nextItems(1);
  }
}

/** Computes the sums of the group whose first active neuron is `begin`. */
function computePart(begin: i32, sums: usize): void {
  const end = min<i32>(load<i32>(count.address), begin + NEURON_GROUP);
  // each eight takes neurons with a stride, because memory streams within one page disturb each other
  const numEights = (end - begin + AXPY_ROWS - 1) / AXPY_ROWS;
  let from: usize = 0;
  for (let eight = begin; eight < begin + numEights; eight++) {
    gatherAddresses(eight, numEights, end);
    computeValues(eight, numEights, end);
    // accumulate in the thread's own scratch, which stays cached; only the final sums go to shared scratch
    const isLast = eight + 1 === begin + numEights;
    const to = isLast ? sums : localScratch() + SUMS;
    addValues(from, to);
    from = to;
  }
}

/** Adds all parts, in order, to this thread's share of y, which the first call initializes with `previous` or zeros. */
function addParts(isFirst: bool, numParts: i32): void {
  const numSharers = sharers();
  const own = numSharers === 1 ? 0 : thread();
  const numColumns = numTokens * width;
  const share = ((numColumns + numSharers - 1) / numSharers + 31) & ~31;
  const begin = (<usize>min<i32>(numColumns, own * share)) << 2;
  const sizeBytes = ((<usize>min<i32>(numColumns, (own + 1) * share)) << 2) - begin;
  const to = y.address + begin;
  if (isFirst && previous.isPresent) memory.copy(to, previous.address + begin, sizeBytes);
  else if (isFirst) memory.fill(to, 0, sizeBytes);
  for (let part = 0; part < numParts; part++) addSums(to, sharedRest() + <usize>part * partBytes() + begin, sizeBytes);
}

/** Gathers the addresses of eight active neurons: every `step`th from `begin` on, padded with the last one before `end`. */
function gatherAddresses(begin: i32, step: i32, end: i32): void {
  const table = localScratch();
  for (let i: usize = 0; i < TABLE_BYTES; i += 4, begin += step) {
    const neuron = <usize>load<u32>(rows.address + ((<usize>min<i32>(begin, end - 1)) << 2));
    store<u32>(table + i, <u32>(weight.address + neuron * 3 * rowBytes));
  }
}

/** Multiplies the gate rows (`offset` 0) or up rows of the gathered neurons by the activations of a token. */
function multiply(offset: usize, t: i32): void {
  const table = localScratch();
  const dots = table + DOTS;
  if (isRepacked) {
    gatherGemvRepacked(isQ4, table, offset, lanesOf(t), numBlocks, dots);
    return;
  }
  const meta = metasAt(sharedScratch(), numTokens, width) + <usize>(t * numBlocks) * META_BYTES;
  const codes = codesFor(dtype, sharedScratch(), numTokens, width) + <usize>t * codeBytesFor(dtype, width);
  gatherGemv(isQ4, table, offset, 1, codes, meta, numBlocks, dots);
}

/** Computes `activation(gate) * up` of the gathered neurons for each token; 0 for neurons from `end` on. */
function computeValues(begin: i32, step: i32, end: i32): void {
  const kind = attributes.kind;
  const dots = localScratch() + DOTS;
  let values = localScratch() + VALUES;
  for (let t = 0; t < numTokens; t++, values += TABLE_BYTES) {
    multiply(0, t);
    // before the GEMV of up, which hides the latency of the activations
    v128.store(values, activate(kind, fourSums(dots, 0)));
    v128.store(values, activate(kind, fourSums(dots, 4)), 16);
    multiply(rowBytes, t);
    v128.store(values, f32x4.mul(v128.load(values), fourSums(dots, 0)));
    v128.store(values, f32x4.mul(v128.load(values, 16), fourSums(dots, 4)), 16);
    for (let at = values, i = begin; at < values + TABLE_BYTES; at += 4, i += step) if (i >= end) store<f32>(at, 0);
  }
}

/** `to = from +` the down rows of the gathered neurons times their values, `[token][column]`; a `from` of 0 means zeros. */
function addValues(from: usize, to: usize): void {
  const table = localScratch();
  beginAxpy(isQ4, isRepacked, table, table + REST);
  let values = table + VALUES;
  for (let t = 0; t < numTokens; t++, values += TABLE_BYTES, to += sumBytes) {
    axpy(2 * rowBytes, values, numBlocks, from, to);
    if (from !== 0) from += sumBytes;
  }
}

/** Selects the weights of the next of the four ops: gate, up or down of all neurons. */
function selectMatrix(index: i32): void {
  // repacked neurons are addressed as a whole
  const offset = isRepacked ? 0 : <usize>index * rowBytes;
  if (isRepacked) setNeuronMatrix(index);
  setMatrix(product.weight.index, dtype, weightAt + offset, numNeurons, width);
}

/** Runs the four ops: gate, up, glu, down. Reads the operands of this op before those of the four overwrite them. */
function matrixByMatrix(): void {
  weightAt = weight.address;
  numNeurons = weight.numNeurons;
  const maxActive = rows.maxActive;
  const rowsAt = rows.address;
  const countAt = count.address;
  const previousAt = previous.isPresent ? previous.address : 0;
  const to = y.address;
  const gate = sharedRest();
  const up = gate + ((<usize>numTokens * <usize>maxActive) << 2);
  setRowStride(3 * rowBytes);
  setMatrix(product.bias.index, F32, 0, 0, 0);
  setMatrix(product.ids.index, F32, 0, 0, 0);
  for (let matrix = 0; matrix < 2; matrix++) {
    selectMatrix(matrix);
    setMatrix(product.y.index, F32, matrix === 0 ? gate : up, numTokens, maxActive);
    sparseMatmul();
    phaseBarrier();
  }
  setMatrix(gated.gate.index, F32, gate, numTokens, maxActive);
  setMatrix(gated.up.index, F32, up, numTokens, maxActive);
  setMatrix(gated.count.index, I32, countAt, 1, 1);
  setMatrix(gated.y.index, F32, gate, numTokens, maxActive);
  plainGlu();
  phaseBarrier();
  // glu has overwritten gate with h
  selectMatrix(2);
  setMatrix(combine.rows.index, I32, rowsAt, 1, maxActive);
  setMatrix(combine.count.index, I32, countAt, 1, 1);
  setMatrix(combine.previous.index, F32, previousAt, numTokens, width);
  setMatrix(combine.y.index, F32, to, numTokens, width);
  sparseCombine();
}

export function sparseFeedForwardLocalBytes(): u64 {
  const lanes = <u64>((weight.dim + NEURON_COLUMNS - 1) / NEURON_COLUMNS) * SIGN_MAGNITUDE_BYTES;
  const fused = SUMS + FEW_TOKENS * (((<u64>weight.dim) << 2) + lanes);
  const separate = max<u64>(gatheredGemmBytes(weight.dtype, weight.dim), weightedSumBytes(weight.dim));
  return max<u64>(separate, fused);
}

/** Scratch of GEMM; then sums of parts, or gate and up of all active neurons. */
export function sparseFeedForwardSharedBytes(): u64 {
  const parts = (<u64>(MAX_PARTS * min<i32>(x.numTokens, FEW_TOKENS)) * x.dim) << 2;
  const gateAndUp = (<u64>x.numTokens * (2 * rows.maxActive)) << 2;
  return behindGemm(x.numTokens, x.dim) + max<u64>(parts, gateAndUp) + 64;
}
