/**
 * expert-matmul. Every thread sorts the (token, choice) pairs by expert in its own scratch. Work items: runs of output rows of
 * selected experts with a slot, then selected experts without one, whose outputs are 0. An expert with few pairs uses GEMV, others
 * use GEMM over panels that are dequantized or unpacked once for all pairs.
 */
import { beginRows, setRowAddresses, multiplyFew, multiplyPanel, rowsBytes } from '../gemm/f32-panels';
import { beginPanel, MC, multiplyRepacked, panelBytes } from '../gemm/int8-panels';
import { beginQgemv, qgemvRows, streamsInvariant } from '../gemm/qgemv';
import { beginTokens, orderTokens, outputsOf, setCodes } from '../gemm/tokens';
import { ids, slots, weight, x, y } from '../operands/expert-matmul.generated';
import { bytesOf } from '../quant/dequantize';
import { quantizeTokens } from '../quant/quantize-activations';
import { FLAG_INT8, FLAG_REUSE } from '../runtime/layout.generated';
import { intAt, setInt } from '../runtime/arrays';
import { hasFlag, isInvariant, localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Rows of a work item when there are few pairs: more rows are a longer stream of weights. */
const MANY_ROWS: i32 = 64;
/** Maximum number of pairs that count as few. */
const FEW_PAIRS: i32 = 32;
/** Pairs per pass over the weights. */
const NC: i32 = 64;
/** Minimum number of pairs of an expert for GEMM. It is larger for repacked rows, which GEMV need not unpack. */
const MIN_PANEL_PAIRS: i32 = 4;
const MIN_PANEL_PAIRS_STREAMED: i32 = 6;

// the current op, set by each thread
let numInputs: i32 = 0;
let numOutputs: i32 = 0;
let dtype: i32 = 0;
let isInt8: bool = false;
let starts: usize = 0; // where the pairs of each expert start in `order`
let active: usize = 0; // selected experts with a slot, from the front; those without one, from the back
let order: usize = 0; // pairs, grouped by expert
let work: usize = 0; // scratch after the tables
let numExperts: i32 = 0;
let numAbsent: i32 = 0; // selected experts without a slot

export function expertMatmul(): void {
  const numPairs = ids.numElements;
  numOutputs = weight.numOutputs;
  numInputs = weight.numInputs;
  dtype = weight.dtype;
  isInt8 = hasFlag(FLAG_INT8);
  const numRows = x.numTokens * x.rowsPerToken;
  beginTokens(x.address, numInputs, y.address, numOutputs);
  if (isInt8 && !hasFlag(FLAG_REUSE)) {
    quantizeTokens(x.address, numRows, numInputs, sharedScratch());
    phaseBarrier();
  }
  const numActive = sortPairs(numPairs);
  orderTokens(order, x.rowsPerToken === 1 ? ids.k : 1);
  setCodes(dtype, sharedScratch(), numRows, numInputs);
  const rowsOfItem = numPairs <= FEW_PAIRS ? MANY_ROWS : MC;
  const perExpert = (numOutputs + rowsOfItem - 1) / rowsOfItem;
  const numItems = numActive * perExpert;
  for (let item = nextItems(1); item < numItems + numAbsent; item = nextItems(1)) {
    const begin = (item % perExpert) * rowsOfItem;
    if (item >= numItems) clearExpert(intAt(active, numExperts - 1 - item + numItems));
    else multiplyExpert(intAt(active, item / perExpert), begin, min<i32>(numOutputs, begin + rowsOfItem));
  }
}

/** Multiplies rows `[begin, end)` of an expert by the activations of its pairs. */
function multiplyExpert(expert: i32, begin: i32, end: i32): void {
  const matrix = weight.address + <usize>slotOf(expert) * bytesOf(dtype, numInputs) * <usize>numOutputs;
  const first = intAt(starts, expert);
  const last = intAt(starts, expert + 1);
  const isStreamed = ASC_FEATURE_RELAXED_SIMD && isInt8;
  const minPairs = isStreamed ? MIN_PANEL_PAIRS_STREAMED : MIN_PANEL_PAIRS;
  // GEMM in f32 has another order of summation than GEMV
  const isAlone = isInt8 ? streamsInvariant(dtype, x.numTokens) : isInvariant(x.numTokens);
  if (last - first >= minPairs && !isAlone) {
    for (let o = begin; o < end; o += MC) {
      const stop = min<i32>(end, o + MC);
      for (let p = first; p < last; p += NC) multiplyPairs(matrix, o, stop, p, min<i32>(last, p + NC));
    }
  } else if (isInt8) {
    beginQgemv(dtype, numInputs, first, last, work);
    qgemvRows(matrix, begin, end);
  } else {
    beginRows(work, dtype, numInputs, begin, end);
    setRowAddresses(matrix);
    multiplyFew(first, last);
  }
}

/** The same for pairs `[first, last)`, by a panel. */
function multiplyPairs(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  if (isInt8) {
    beginPanel(work, dtype, end - begin, last - first);
    multiplyRepacked(matrix, numInputs, begin, end, first, last);
    return;
  }
  beginRows(work, dtype, numInputs, begin, end);
  setRowAddresses(matrix);
  multiplyPanel(first, last, 0, 0);
}

/** Slot of an expert's matrix among those in memory; negative when it has none. */
function slotOf(expert: i32): i32 {
  return slots.isPresent ? intAt(slots.address, expert) : expert;
}

/** Zeros the outputs of an expert without a slot. */
function clearExpert(expert: i32): void {
  const last = intAt(starts, expert + 1);
  for (let p = intAt(starts, expert); p < last; p++) memory.fill(outputsOf(p), 0, (<usize>numOutputs) << 2);
}

/**
 * Counting sort: the pairs of expert e are `order[starts[e], starts[e + 1])`, ascending. Returns the number of selected experts
 * with a slot; the `numAbsent` others are listed from the end of `active`.
 */
function sortPairs(numPairs: i32): i32 {
  numExperts = slots.isPresent ? slots.numExperts : weight.numSlots;
  starts = localScratch();
  active = starts + ((<usize>(numExperts + 1)) << 2);
  order = active + ((<usize>numExperts) << 2);
  work = (order + ((<usize>numPairs) << 2) + 63) & ~63;
  memory.fill(starts, 0, (<usize>(numExperts + 1)) << 2);
  for (let pair = 0; pair < numPairs; pair++) {
    const next = intAt(ids.address, pair) + 1;
    setInt(starts, next, intAt(starts, next) + 1);
  }
  const numActive = listExperts();
  // each start advances past the pairs of its expert and ends up as the start of the next one
  for (let pair = 0; pair < numPairs; pair++) {
    const expert = intAt(ids.address, pair);
    const place = intAt(starts, expert);
    setInt(order, place, pair);
    setInt(starts, expert, place + 1);
  }
  memory.copy(starts + 4, starts, (<usize>numExperts) << 2);
  setInt(starts, 0, 0);
  return numActive;
}

/** Lists the selected experts, and turns their counts into starts (a prefix sum). */
function listExperts(): i32 {
  let numActive = 0;
  numAbsent = 0;
  for (let expert = 0; expert < numExperts; expert++) {
    const count = intAt(starts, expert + 1);
    if (count > 0) {
      if (slotOf(expert) >= 0) setInt(active, numActive++, expert);
      else setInt(active, numExperts - ++numAbsent, expert);
    }
    setInt(starts, expert + 1, intAt(starts, expert) + count);
  }
  return numActive;
}

/** Tables of the sort, then rows or panels, in f32 or as 8-bit codes. */
export function expertMatmulLocalBytes(): u64 {
  const experts = slots.isPresent ? slots.numExperts : weight.numSlots;
  const tables = ((<u64>(2 * experts + 1) + ids.numElements) << 2) + 128;
  return tables + max<u64>(rowsBytes(weight.numInputs), panelBytes(NC));
}

/** Activations as 8-bit codes. */
export function expertMatmulSharedBytes(): u64 {
  return ((<u64>x.numTokens * (x.rowsPerToken * x.numInputs)) << 2) + 256;
}
