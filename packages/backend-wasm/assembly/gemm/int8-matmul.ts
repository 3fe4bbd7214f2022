/**
 * matmul of repacked weights, activations as 8-bit integers. Work items: groups of four rows. Up to
 * three tokens go through qgemv, more through panels. Rows beyond the last whole group are computed in f32.
 */
import { Q8_0, bytesOf } from '../quant/dequantize';
import {
  codeBytesFor,
  codesFor,
  META_BYTES,
  metasAt,
  paddedTokens,
  quantizeAlone,
  quantizeColumns,
  quantizeTokens,
} from '../quant/quantize-activations';
import { FLAG_REUSE, MAX_OWN_CODES, MIN_PANEL_TOKENS } from '../runtime/layout.generated';
import { bias, weight, x, y } from '../operands/matmul.generated';
import { hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { firstUnit, nextUnit, phaseBarrier, setAhead, takeUnits, thread, threads } from '../runtime/threads';
import { lastRows } from '../ops/matmul';
import { beginPanel, KC, MC, multiplyPanel, multiplyRepackedQ8, panelSums, unpackRows } from './int8-panels';
import { addToken, beginTokens, qgemvRows, streamsOf } from './qgemv';
import { GROUP } from './repack';

/** Tokens of one pass over the weights. */
const NC: i32 = 128;
/** A thread takes one part in so many of its share of what is left. */
const SHARES: i32 = 2;
/** Where in a thread's own scratch they are, behind what rows and sums take. */
const OWN_CODES: usize = 0x8000;

// of this op, set on each thread
let numTokens: i32 = 0;
let numInputs: i32 = 0;
let dtype: i32 = 0;
/** Where the codes of the activations are. */
let codesAt: usize = 0;

export function matmulInt8(): void {
  const numOutputs = weight.numOutputs;
  numTokens = x.numTokens;
  numInputs = weight.numInputs;
  dtype = weight.dtype;
  const isPanels = numTokens >= MIN_PANEL_TOKENS;
  codesAt = sharedScratch();
  if (!isPanels && numTokens * numInputs <= MAX_OWN_CODES) {
    codesAt = localScratch() + OWN_CODES;
    quantizeAlone(x.address, numTokens, numInputs, codesAt);
  } else if (!hasFlag(FLAG_REUSE)) {
    if (isPanels) quantizeColumns(x.address, numTokens, numInputs, codesAt);
    else quantizeTokens(x.address, numTokens, numInputs, codesAt);
    phaseBarrier();
  }
  const numRepacked = numOutputs & -GROUP;
  const isLast = isPanels ? gemm(numRepacked) : gemv(numRepacked);
  if (numRepacked < numOutputs && isLast) lastRows(numRepacked);
}

/**
 * Units become smaller towards the end: long streams are prefetched well, and short ones let all threads end together. The
 * first unit of each thread is the one of its number, so that it knows beforehand what to prefetch.
 * Returns whether this thread got the first unit beyond the repacked rows, which just one thread does.
 */
function gemv(numRepacked: i32): bool {
  const rows = GROUP * streamsOf(dtype);
  const biasAt = bias.isPresent ? bias.address : 0;
  const codes = codesFor(dtype, codesAt, numTokens, numInputs);
  const metas = metasAt(codesAt, numTokens, numInputs);
  beginTokens(localScratch());
  for (let t: usize = 0; t < <usize>numTokens; t++) {
    const meta = metas + t * <usize>(numInputs >> 5) * META_BYTES;
    addToken(codes + t * codeBytesFor(dtype, numInputs), meta, y.address + ((t * <usize>weight.numOutputs) << 2));
  }
  let begin = 0;
  let numUnits = 0;
  let next = firstUnit();
  for (let unit = 0; begin < numRepacked; unit++) {
    const end = min<i32>(numRepacked, begin + unitOf(numRepacked - begin, rows));
    if (unit === next) {
      qgemvRows(dtype, weight.address, begin, end, numInputs, biasAt);
      next = nextUnit();
    }
    begin = end;
    numUnits = unit + 1;
  }
  return next === numUnits;
}

/**
 * Rows of the next unit when so many are left: as many times `rows` as there are groups one after the other in each stream.
 * Streams at a distance of whole pages would meet in the same few lines of the first level cache.
 */
function unitOf(numLeft: i32, rows: i32): i32 {
  const run = numLeft / (SHARES * threads() * rows);
  return max<i32>(1, (run & 7) === 0 ? run - 1 : run) * rows;
}

/** Lets this thread prefetch the weights of a matmul to come while it waits: its first unit. */
export function expectMatmul(tokens: i32, weightAt: usize, numOutputs: i32, inputs: i32, weightType: i32): void {
  const numRepacked = tokens < MIN_PANEL_TOKENS ? numOutputs & -GROUP : 0;
  const groupBytes = bytesOf(weightType, inputs) * GROUP;
  const streams = streamsOf(weightType);
  const rows = GROUP * streams;
  let begin = 0;
  for (let unit = thread(); unit > 0 && begin < numRepacked; unit--) begin += unitOf(numRepacked - begin, rows);
  const run = max<i32>(0, min<i32>(numRepacked - begin, unitOf(numRepacked - begin, rows)) / rows);
  setAhead(weightAt + <usize>(begin / GROUP) * groupBytes, <usize>run * groupBytes, streams);
}

/** The same result as `gemv`. */
function gemm(numRepacked: i32): bool {
  let begin = takeUnits(MC);
  for (; begin < numRepacked; begin = takeUnits(MC)) {
    const end = min<i32>(numRepacked, begin + MC);
    for (let t = 0; t < numTokens; t += NC) gemmPanel(begin, end, t, min<i32>(numTokens, t + NC));
  }
  return begin === ((numRepacked + MC - 1) & -MC);
}

/** Rows `[begin, end)` times tokens `[first, last)`. */
function gemmPanel(begin: i32, end: i32, first: i32, last: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const blockBytes = bytesOf(dtype, 32) * GROUP;
  const padded = paddedTokens(numTokens);
  const codes = codesFor(dtype, codesAt, padded, numInputs);
  const metas = metasAt(codesAt, padded, numInputs);
  const numGroups = (end - begin) / GROUP;
  const groups = weight.address + <usize>(begin / GROUP) * groupBytes;
  // codes of q8_0 are bytes already
  const isUnpacked = ASC_FEATURE_RELAXED_SIMD && dtype === Q8_0;
  beginPanel(localScratch(), dtype, end - begin, last - first);
  for (let k = 0; k < numInputs; k += KC) {
    const firstBlock = k >> 5;
    const numBlocks = min<i32>(KC, numInputs - k) >> 5;
    const at = <usize>(firstBlock * padded + first);
    const codesOfBlock = codes + at * codeBytesFor(dtype, 32);
    if (isUnpacked) {
      const block = groups + <usize>firstBlock * blockBytes;
      multiplyRepackedQ8(block, groupBytes, numBlocks, codesOfBlock, metas + at * META_BYTES, padded);
      continue;
    }
    for (let g = 0; g < numGroups; g++) {
      unpackRows(g, groups + <usize>g * groupBytes, firstBlock, firstBlock + numBlocks);
    }
    multiplyPanel(numBlocks, codesOfBlock, metas + at * META_BYTES, padded);
  }
  for (let g = 0; g < numGroups; g++) {
    const o = begin + g * GROUP;
    for (let t = first; t < last; t++) storeFour(panelSums(g, t - first), o, t);
  }
}

/** Stores the sums of four rows, plus their bias. */
function storeFour(sums: v128, o: i32, t: i32): void {
  if (bias.isPresent) sums = f32x4.add(sums, v128.load(bias.address + ((<usize>o) << 2)));
  v128.store(y.address + ((<usize>t * <usize>weight.numOutputs + <usize>o) << 2), sums);
}
