/**
 * Gated blocks of chosen neurons whose rows of gate, up and down lie side by side. Tensors: x, weight, rows, count, previous, y.
 *
 * Up to three tokens, q8_0 and q4_0, relaxed builds: a thread takes 32 neurons at a time, eight of them side by side
 * from their first byte to their last, and adds what they give to sums of its own; those of all groups are then added in the
 * order of the neurons, so that no number depends on threads. Rows are in the order of repack-neurons.ts, or as they lie in files
 * where something else reads them too; the bits are the same. Anything else goes matrix by matrix, as the four ops do that
 * this one stands for.
 */
import { Q4_0, Q8_0, bytesOf } from '../quant/dequantize';
import { FLAG_INT8, FLAG_REPACKED } from '../runtime/layout.generated';
import { codeBytesFor, codesFor, metasAt, META_BYTES, quantiseTokens } from '../quant/quantize-activations';
import {
  addressOf,
  attributeI,
  dim,
  dtypeOf,
  hasFlag,
  isPresent,
  localScratch,
  setMatrix,
  setRecordRow,
  setRowStride,
  sharedScratch,
} from '../runtime/record';
import { lanesBytes, quantiseLanes, recordDots } from '../ffn/gather-gemv-repacked';
import { addRecords } from '../ffn/axpy-repacked';
import { EIGHT, fourSums, rowDots } from '../ffn/gather-gemv';
import { addRows } from '../ffn/axpy';
import { phaseBarrier, sharers, takeUnits, thread } from '../runtime/threads';
import { activate, gatedActivation } from './pointwise';
import { sparseCombine } from './sparse-combine';
import { sparseMatmul } from './sparse-matmul';

/** Neurons of a group: `neuronGroup` of packages/ops. */
const GROUP: i32 = 32;
/** Most groups whose sums are there at once, and most of a thread that has nobody to wait for: they stay in its caches. */
const MAX_PARTS: i32 = 32;
const MAX_OWN_PARTS: i32 = 4;
/** Most tokens that need no interleaving: fewer than MIN_PANEL_TOKENS and MIN_MIXED_TOKENS, which alone know rows of records. */
const FEW_TOKENS: i32 = 3;

// scratch per thread: addresses of records; sums of products; values [token][8]; what sums of rows need; sums; lanes
const TABLE_BYTES: usize = (<usize>EIGHT) << 2;
const DOTS: usize = TABLE_BYTES;
const VALUES: usize = DOTS + ((<usize>EIGHT) << 4);
const REST: usize = VALUES + <usize>FEW_TOKENS * TABLE_BYTES;
const SUMS: usize = 1024;

export function sparseFeedForward(): void {
  const numTokens = dim(0, 0);
  const dtype = dtypeOf(1);
  const isNarrow = ASC_FEATURE_RELAXED_SIMD && (dtype === Q4_0 || dtype === Q8_0);
  if (hasFlag(FLAG_INT8) && isNarrow && numTokens <= FEW_TOKENS) sideBySide(numTokens, dim(0, 1), dtype);
  else matrixByMatrix(numTokens, dim(0, 1), dtype);
}

/** Where in the shared scratch that begins which products do not need; as in src/neuron-scratch.ts. */
function behindCodes(numTokens: i32, numInputs: i32): usize {
  return sharedScratch() + ((<usize>((numTokens + 7) & ~7) * <usize>numInputs * 4 + 256 + 63) & ~63);
}

/** Where activations are that rows of records are multiplied by. */
function lanesOf(numTokens: i32, width: i32): usize {
  return localScratch() + SUMS + ((<usize>numTokens * <usize>width) << 2);
}

function sideBySide(numTokens: i32, width: i32, dtype: i32): void {
  const count = load<i32>(addressOf(3));
  const numGroups = (count + GROUP - 1) / GROUP;
  const parts = behindCodes(numTokens, width);
  const partBytes = (<usize>numTokens * <usize>width) << 2;
  const isPacked = hasFlag(FLAG_REPACKED);
  const rowBytes = bytesOf(dtype, width);
  if (isPacked) {
    // by every thread for itself: that takes no longer than waiting for each other
    const isQ4 = dtype === Q4_0;
    const lanes = lanesOf(numTokens, width);
    for (let t = 0; t < numTokens; t++) {
      quantiseLanes(
        isQ4,
        addressOf(0) + ((<usize>(t * width)) << 2),
        width >> 5,
        lanes + <usize>t * lanesBytes(isQ4, width >> 5),
      );
    }
  } else {
    quantiseTokens(addressOf(0), numTokens, width, sharedScratch());
    phaseBarrier();
  }
  const numSharers = sharers();
  const most = numSharers > 1 ? MAX_PARTS : MAX_OWN_PARTS;
  const numRounds = max<i32>(1, (numGroups + most - 1) / most);
  let size = (numGroups + numRounds - 1) / numRounds;
  size = min<i32>(most, ((size + numSharers - 1) / numSharers) * numSharers);
  const own = numSharers === 1 ? 0 : thread();
  let first = 0;
  do {
    const numParts = min<i32>(size, numGroups - first);
    // three quarters are dealt out, so that sums stay in the caches of their threads; the rest goes to whoever is free
    const numDealt = ((numParts * 3) / (4 * numSharers)) * numSharers;
    let part = own < numDealt ? own : numDealt + takeUnits(1);
    for (; part < numParts; part = part + numSharers < numDealt ? part + numSharers : numDealt + takeUnits(1)) {
      const begin = (first + part) * GROUP;
      const end = min<i32>(count, begin + GROUP);
      // neurons of a group are dealt out: streams of memory close to each other would be taken for one
      const numEights = (end - begin + EIGHT - 1) / EIGHT;
      let from: usize = 0;
      for (let eight = begin; eight < begin + numEights; eight++) {
        findRecords(eight, numEights, end, 3 * rowBytes);
        computeValues(isPacked, eight, numEights, end, numTokens, width, dtype);
        // only finished sums leave the thread's own memory, which its caches hold
        const isLast = eight + 1 === begin + numEights;
        const to = isLast || !isPacked ? parts + <usize>part * partBytes : localScratch() + SUMS;
        addValues(isPacked, numTokens, width, dtype, from, to);
        from = to;
      }
    }
    phaseBarrier();
    const numColumns = numTokens * width;
    const share = ((numColumns + numSharers - 1) / numSharers + 31) & ~31;
    const from = min<i32>(numColumns, own * share);
    addParts(
      (<usize>from) << 2,
      (<usize>min<i32>(numColumns, from + share)) << 2,
      first === 0,
      parts,
      numParts,
      partBytes,
    );
    first += size;
    if (first < numGroups) phaseBarrier();
  } while (first < numGroups);
}

/** Bytes `[begin, end)` of y: those before plus all parts, one after the other. */
function addParts(begin: usize, end: usize, isFirst: bool, parts: usize, numParts: i32, partBytes: usize): void {
  const y = addressOf(5);
  const before = isFirst ? (isPresent(4) ? addressOf(4) : 0) : y;
  for (let at = begin; at < end; at += 64) {
    let a = f32x4.splat(0);
    let b = a;
    let c = a;
    let d = a;
    if (before !== 0) {
      a = v128.load(before + at);
      b = v128.load(before + at, 16);
      c = v128.load(before + at, 32);
      d = v128.load(before + at, 48);
    }
    let from = parts + at;
    for (let part = 0; part < numParts; part++, from += partBytes) {
      a = f32x4.add(a, v128.load(from));
      b = f32x4.add(b, v128.load(from, 16));
      c = f32x4.add(c, v128.load(from, 32));
      d = f32x4.add(d, v128.load(from, 48));
    }
    v128.store(y + at, a);
    v128.store(y + at, b, 16);
    v128.store(y + at, c, 32);
    v128.store(y + at, d, 48);
  }
}

/** Notes where eight of the chosen neurons begin: every `step`th from `begin` on; the last one below `end` stands in for those beyond. */
function findRecords(begin: i32, step: i32, end: i32, recordBytes: usize): void {
  const rows = addressOf(2);
  const weight = addressOf(1);
  const table = localScratch();
  for (let i: usize = 0; i < TABLE_BYTES; i += 4, begin += step) {
    const neuron = <usize>load<u32>(rows + ((<usize>min<i32>(begin, end - 1)) << 2));
    store<u32>(table + i, <u32>(weight + neuron * recordBytes));
  }
}

/** What these neurons give for each token, 0 for those beyond `end`. */
function computeValues(isPacked: bool, begin: i32, step: i32, end: i32, numTokens: i32, width: i32, dtype: i32): void {
  const numBlocks = width >> 5;
  const isQ4 = dtype === Q4_0;
  const rowBytes = bytesOf(dtype, width);
  const kind = attributeI(0);
  const table = localScratch();
  const dots = table + DOTS;
  const metas = metasAt(sharedScratch(), numTokens, width);
  const codes = codesFor(dtype, sharedScratch(), numTokens, width);
  const lanes = lanesOf(numTokens, width);
  let values = table + VALUES;
  for (let t = 0; t < numTokens; t++, values += TABLE_BYTES) {
    const x = isPacked ? lanes + <usize>t * lanesBytes(isQ4, numBlocks) : codes + <usize>t * codeBytesFor(dtype, width);
    const meta = metas + <usize>(t * numBlocks) * META_BYTES;
    if (isPacked) recordDots(isQ4, table, 0, x, numBlocks, dots);
    else rowDots(isQ4, table, 0, 1, x, meta, numBlocks, dots);
    // long before they are needed: while products of up are computed
    v128.store(values, activate(kind, fourSums(dots, 0)));
    v128.store(values, activate(kind, fourSums(dots, 4)), 16);
    if (isPacked) recordDots(isQ4, table, rowBytes, x, numBlocks, dots);
    else rowDots(isQ4, table, rowBytes, 1, x, meta, numBlocks, dots);
    v128.store(values, f32x4.mul(v128.load(values), fourSums(dots, 0)));
    v128.store(values, f32x4.mul(v128.load(values, 16), fourSums(dots, 4)), 16);
    for (let at = values, i = begin; at < values + TABLE_BYTES; at += 4, i += step) if (i >= end) store<f32>(at, 0);
  }
}

/**
 * `to = from + ` the down rows of these neurons times their values, `[token][column]`, from nothing where `from` is 0. Rows as they lie
 * in files have all their sums in one place: `from` is 0 or `to`.
 */
function addValues(isPacked: bool, numTokens: i32, width: i32, dtype: i32, from: usize, to: usize): void {
  const isQ4 = dtype === Q4_0;
  const numBlocks = width >> 5;
  const down = 2 * bytesOf(dtype, width);
  const table = localScratch();
  const sumBytes = (<usize>width) << 2;
  let values = table + VALUES;
  for (let t = 0; t < numTokens; t++, values += TABLE_BYTES, to += sumBytes) {
    if (isPacked) {
      addRecords(isQ4, table, down, values, numBlocks, from, to, table + REST);
    } else {
      if (from === 0) memory.fill(to, 0, sumBytes);
      addRows(isQ4, table, down, values, numBlocks, to, table + REST);
    }
    if (from !== 0) from += sumBytes;
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
  const isPacked = hasFlag(FLAG_REPACKED);
  const between = isPacked ? 0 : rowBytes;
  if (isPacked) setRecordRow(0);
  const up = gate + ((<usize>numTokens * <usize>numNeurons) << 2);
  setRowStride(3 * rowBytes);
  // x, weight, rows, count, bias, ids, y
  setMatrix(1, dtype, weight, numRows, width);
  setMatrix(4, 0, 0, 0, 0);
  setMatrix(5, 0, 0, 0, 0);
  setMatrix(6, dtypeOfX, gate, numTokens, numNeurons);
  sparseMatmul();
  phaseBarrier();
  if (isPacked) setRecordRow(1);
  setMatrix(1, dtype, weight + between, numRows, width);
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
  if (isPacked) setRecordRow(2);
  setMatrix(1, dtype, weight + 2 * between, numRows, width);
  setMatrix(2, dtypeOfRows, rows, 1, numNeurons);
  setMatrix(3, dtypeOfRows, count, 1, 1);
  setMatrix(4, dtypeOfX, previous, numTokens, width);
  setMatrix(5, dtypeOfX, y, numTokens, width);
  sparseCombine();
}
