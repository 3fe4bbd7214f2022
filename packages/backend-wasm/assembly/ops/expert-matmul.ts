/**
 * expert-matmul. Every thread sorts the (token, choice) pairs by expert in scratch of its own. Work items: runs of rows of an expert
 * that some pair chose, then experts without a slot, whose results are 0. A few pairs of an expert go through GEMV; more go in
 * panels that are dequantized or unpacked once for all of them.
 */
import { beginRows, listMatrix, multiplyFew, multiplyPanel, rowsBytes } from '../gemm/f32-panels';
import { beginPanel, MC, multiplyRepacked, panelBytes } from '../gemm/int8-panels';
import { beginQgemv, qgemvRows } from '../gemm/qgemv';
import { beginTokens, orderTokens, outputsOf, setCodes } from '../gemm/tokens';
import { ids, slots, weight, x, y } from '../operands/expert-matmul.generated';
import { bytesOf } from '../quant/dequantize';
import { quantizeTokens } from '../quant/quantize-activations';
import { FLAG_INT8, FLAG_REUSE } from '../runtime/layout.generated';
import { hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';

/** Rows of a work item when few pairs are computed: longer streams of weights. */
const MANY_ROWS: i32 = 64;
/** Maximum number of pairs that count as few. */
const FEW_PAIRS: i32 = 32;
/** Pairs of one pass over the weights. */
const NC: i32 = 64;
/** Fewest pairs of an expert that go through panels; streams of repacked rows need no unpacking, and pay longer. */
const MIN_PANEL_PAIRS: i32 = 4;
const MIN_PANEL_PAIRS_STREAMED: i32 = 6;

// of this op, set on each thread
let numInputs: i32 = 0;
let numOutputs: i32 = 0;
let dtype: i32 = 0;
let isInt8: bool = false;
let starts: usize = 0; // where the pairs of each expert start in the order
let active: usize = 0; // chosen experts with a slot; from the end those without
let order: usize = 0; // pairs, those of an expert side by side
let work: usize = 0; // scratch behind the tables
let numExperts: i32 = 0;
let numAbsent: i32 = 0; // chosen experts without a slot

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
  const unitRows = numPairs <= FEW_PAIRS ? MANY_ROWS : MC;
  const perExpert = (numOutputs + unitRows - 1) / unitRows;
  const numUnits = numActive * perExpert;
  for (let unit = nextItems(1); unit < numUnits + numAbsent; unit = nextItems(1)) {
    if (unit >= numUnits) {
      clearExpert(<usize>load<u32>(active + ((<usize>(numExperts - 1 - unit + numUnits)) << 2)));
      continue;
    }
    const begin = (unit % perExpert) * unitRows;
    multiplyExpert(
      <usize>load<u32>(active + ((<usize>(unit / perExpert)) << 2)),
      begin,
      min<i32>(numOutputs, begin + unitRows),
    );
  }
}

/** Rows `[begin, end)` of an expert times its pairs. */
function multiplyExpert(expert: usize, begin: i32, end: i32): void {
  const matrix = weight.address + <usize>slotOf(expert) * bytesOf(dtype, numInputs) * <usize>numOutputs;
  const first = load<i32>(starts + (expert << 2));
  const last = load<i32>(starts + (expert << 2), 4);
  const isStreamed = ASC_FEATURE_RELAXED_SIMD && isInt8;
  const minPairs = isStreamed ? MIN_PANEL_PAIRS_STREAMED : MIN_PANEL_PAIRS;
  if (last - first >= minPairs) {
    for (let o = begin; o < end; o += MC) {
      const stop = min<i32>(end, o + MC);
      for (let p = first; p < last; p += NC) multiplyPairs(matrix, o, stop, p, min<i32>(last, p + NC));
    }
  } else if (isInt8) {
    beginQgemv(dtype, numInputs, first, last, work);
    qgemvRows(matrix, begin, end);
  } else {
    beginRows(work, dtype, numInputs, begin, end);
    listMatrix(matrix);
    multiplyFew(first, last);
  }
}

/** The same by a panel. */
function multiplyPairs(matrix: usize, begin: i32, end: i32, first: i32, last: i32): void {
  if (isInt8) {
    beginPanel(work, dtype, end - begin, last - first);
    multiplyRepacked(matrix, numInputs, begin, end, first, last, 0, 0, 0);
    return;
  }
  beginRows(work, dtype, numInputs, begin, end);
  listMatrix(matrix);
  multiplyPanel(first, last, 0, 0);
}

/** Where an expert's matrix is among those in memory; negative: nowhere. */
function slotOf(expert: usize): i32 {
  return slots.isPresent ? load<i32>(slots.address + (expert << 2)) : <i32>expert;
}

/** The results of an expert without a slot. */
function clearExpert(expert: usize): void {
  const last = load<i32>(starts + (expert << 2), 4);
  for (let p = load<i32>(starts + (expert << 2)); p < last; p++) memory.fill(outputsOf(p), 0, (<usize>numOutputs) << 2);
}

/**
 * Counting sort: pairs of expert e are `order[starts[e], starts[e + 1])`, ascending. Returns how many chosen experts have a
 * slot; the list of the others, `numAbsent`, grows from its end.
 */
function sortPairs(numPairs: i32): i32 {
  numExperts = slots.isPresent ? slots.numExperts : weight.numSlots;
  starts = localScratch();
  active = starts + ((<usize>(numExperts + 1)) << 2);
  order = active + ((<usize>numExperts) << 2);
  work = (order + ((<usize>numPairs) << 2) + 63) & ~63;
  const chosen = ids.address;
  memory.fill(starts, 0, (<usize>(numExperts + 1)) << 2);
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const count = starts + ((<usize>load<u32>(chosen + (pair << 2))) << 2);
    store<i32>(count, load<i32>(count, 4) + 1, 4);
  }
  const numActive = listExperts();
  // each start moves on as its pairs come; afterwards it is the start of the next expert
  for (let pair: usize = 0; pair < <usize>numPairs; pair++) {
    const at = starts + ((<usize>load<u32>(chosen + (pair << 2))) << 2);
    const place = load<i32>(at);
    store<u32>(order + ((<usize>place) << 2), <u32>pair);
    store<i32>(at, place + 1);
  }
  for (let expert = <usize>numExperts; expert > 0; expert--) {
    store<i32>(starts + (expert << 2), load<i32>(starts + ((expert - 1) << 2)));
  }
  store<i32>(starts, 0);
  return numActive;
}

/** Lists the chosen experts, and turns their counts into starts. */
function listExperts(): i32 {
  let numActive: usize = 0;
  numAbsent = 0;
  for (let expert: usize = 0; expert < <usize>numExperts; expert++) {
    const at = starts + (expert << 2);
    const count = load<i32>(at, 4);
    if (count > 0) {
      if (slotOf(expert) >= 0) store<u32>(active + (numActive++ << 2), <u32>expert);
      else store<u32>(active + ((<usize>(numExperts - ++numAbsent)) << 2), <u32>expert);
    }
    store<i32>(at, load<i32>(at) + count, 4);
  }
  return <i32>numActive;
}

/** Pairs by expert; then rows or panels, in f32 or as 8-bit codes. */
export function expertMatmulLocalBytes(): u64 {
  const experts = slots.isPresent ? slots.numExperts : weight.numSlots;
  const tables = ((<u64>(2 * experts + 1) + ids.numElements) << 2) + 128;
  return tables + max<u64>(rowsBytes(weight.numInputs), panelBytes(NC));
}

/** Activations as 8-bit codes. */
export function expertMatmulSharedBytes(): u64 {
  return ((<u64>x.numTokens * (x.rowsPerToken * x.numInputs)) << 2) + 256;
}
