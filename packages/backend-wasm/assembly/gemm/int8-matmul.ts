/**
 * Products with packed weights, activations as 8-bit integers. Tensors: x, weight, bias, y. Units: groups of four rows.
 * Up to three tokens go some groups at a time over the packed weights; more go in panels of MC rows and KC columns that are
 * expanded once for all tokens. Rows beyond the last whole group are computed in f32.
 */
import { Q6_K, Q8_0, bytesOf } from '../quant/dequantize';
import { qgemvInt16 } from './int16-dot';
import { qgemvGroup, qgemvStreams, streamsOf } from './qgemv';
import { qgemmBlock, qgemmRepackedQ8 } from './qgemm';
import { UNPACKED_BYTES, unpackGroup, initialOf } from './int8-unpack';
import { FLAG_REUSE } from '../runtime/layout.generated';
import { GROUP } from './repack';
import {
  codeBytesFor,
  codesFor,
  META_BYTES,
  metasAt,
  paddedTokens,
  quantizeAlone,
  quantizeColumns,
  quantizeTokens,
  sideCodesAt,
} from '../quant/quantize-activations';
import { addressOf, dim, dtypeOf, hasFlag, isPresent, localScratch, sharedScratch } from '../runtime/record';
import { firstUnit, nextUnit, phaseBarrier, setAhead, takeUnits, thread, threads } from '../runtime/threads';
import { lastRows } from '../ops/matmul';

/** Rows of a panel. */
const MC: i32 = 32;
/** Columns of a panel: 16 blocks. */
const KC: i32 = 512;
/** Tokens of one pass over the weights. */
const NC: i32 = 128;
/** A thread takes one part in so many of its share of what is left. */
const SHARES: i32 = 2;
/** Fewest tokens that go by panels. */
const MIN_PANEL_TOKENS: i32 = 4;
/** So many activations every thread makes integers of by itself, which takes less time than waiting for the others; as in src/plan.ts. */
const OWN_VALUES: i32 = 512;
/** Where in a thread's own scratch they are, behind what rows and sums take. */
const OWN_CODES: usize = 0x8000;

/** Where the codes of the activations are. */
let codesAt: usize = 0;

export function matmulInt8(): void {
  const numTokens = dim(0, 0);
  const numOutputs = dim(1, 0);
  const numInputs = dim(1, 1);
  const dtype = dtypeOf(1);
  const isPanels = numTokens >= MIN_PANEL_TOKENS;
  codesAt = sharedScratch();
  if (!isPanels && numTokens * numInputs <= OWN_VALUES) {
    codesAt = localScratch() + OWN_CODES;
    quantizeAlone(addressOf(0), numTokens, numInputs, codesAt);
  } else if (!hasFlag(FLAG_REUSE)) {
    if (isPanels) quantizeColumns(addressOf(0), numTokens, numInputs, sharedScratch());
    else quantizeTokens(addressOf(0), numTokens, numInputs, sharedScratch());
    phaseBarrier();
  }
  const numPacked = numOutputs & -GROUP;
  const isLast = isPanels
    ? byPanels(numTokens, numPacked, numInputs, dtype)
    : byGroups(numTokens, numPacked, numInputs, dtype);
  if (numPacked < numOutputs && isLast) lastRows(numPacked);
}

/**
 * Units become smaller towards the end: long streams are read ahead well, and short ones let all threads end together. The
 * first unit of each thread is the one of its number, so that it knows beforehand what to read.
 * Returns whether this thread got the first unit beyond the packed rows, which just one thread does.
 */
function byGroups(numTokens: i32, numPacked: i32, numInputs: i32, dtype: i32): bool {
  const rows = GROUP * streamsOf(dtype);
  let begin = 0;
  let numUnits = 0;
  let next = firstUnit();
  for (let unit = 0; begin < numPacked; unit++) {
    const end = min<i32>(numPacked, begin + unitOf(numPacked - begin, rows));
    if (unit === next) {
      if (ASC_FEATURE_RELAXED_SIMD) narrowGroups(begin, end, numTokens, numInputs, dtype);
      else wideGroups(begin, end, numTokens, numInputs, dtype);
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

/** Lets this thread read the weights of a product to come while it waits: its first unit. */
export function expectMatmul(numTokens: i32, weight: usize, numOutputs: i32, numInputs: i32, dtype: i32): void {
  const numPacked = numTokens < MIN_PANEL_TOKENS ? numOutputs & -GROUP : 0;
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const streams = streamsOf(dtype);
  const rows = GROUP * streams;
  let begin = 0;
  for (let unit = thread(); unit > 0 && begin < numPacked; unit--) begin += unitOf(numPacked - begin, rows);
  const run = max<i32>(0, min<i32>(numPacked - begin, unitOf(numPacked - begin, rows)) / rows);
  setAhead(weight + <usize>(begin / GROUP) * groupBytes, <usize>run * groupBytes, streams);
}

/** Rows `[begin, end)`, whole groups, as some runs of groups side by side; what is left over goes one group at a time. */
function narrowGroups(begin: i32, end: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const codes = codesFor(dtype, codesAt, numTokens, numInputs);
  const codeRow = codeBytesFor(dtype, numInputs);
  const metas = metasAt(codesAt, numTokens, numInputs);
  const metaRow = <usize>(numInputs >> 5) * META_BYTES;
  const numGroups = (end - begin) / GROUP;
  const streams = streamsOf(dtype);
  const run = numGroups / streams;
  const sums = localScratch();
  const group = addressOf(1) + <usize>(begin / GROUP) * groupBytes;
  for (let g = 0; g < run; g++) {
    const at = group + <usize>g * groupBytes;
    for (let t = 0; t < numTokens; t++) {
      const x = codes + <usize>t * codeRow;
      qgemvStreams(dtype, at, <usize>run * groupBytes, numInputs, x, metas + <usize>t * metaRow, sums);
      for (let i = 0; i < streams; i++)
        storeFour(v128.load(sums + ((<usize>i) << 4)), begin + (i * run + g) * GROUP, t);
    }
  }
  for (let g = run * streams; g < numGroups; g++) {
    const at = group + <usize>g * groupBytes;
    for (let t = 0; t < numTokens; t++) {
      const x = codes + <usize>t * codeRow;
      storeFour(qgemvGroup(dtype, at, numInputs, x, metas + <usize>t * metaRow), begin + g * GROUP, t);
    }
  }
}

function wideGroups(begin: i32, end: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const codes = codesAt;
  const wide = sideCodesAt(codes, numTokens, numInputs);
  const metas = metasAt(codes, numTokens, numInputs);
  const numBlocks = numInputs >> 5;
  const metaRow = <usize>numBlocks * META_BYTES;
  const initial = initialOf(dtype);
  const halves = dtype === Q6_K;
  const expanded = localScratch();
  for (let o = begin; o < end; o += GROUP) {
    unpackGroup(dtype, addressOf(1) + <usize>(o / GROUP) * groupBytes, 0, numBlocks, expanded);
    for (let t = 0; t < numTokens; t++) {
      const from = wide + ((<usize>t * <usize>numInputs) << 1);
      const meta = metas + <usize>t * metaRow;
      storeFour(qgemvInt16(expanded, numBlocks, from, meta, initial, halves, f32x4.splat(0)), o, t);
    }
  }
}

/** Stores the sums of four rows, plus their bias. */
function storeFour(sums: v128, o: i32, t: i32): void {
  if (isPresent(2)) sums = f32x4.add(sums, v128.load(addressOf(2) + ((<usize>o) << 2)));
  v128.store(addressOf(3) + ((<usize>t * <usize>dim(1, 0) + <usize>o) << 2), sums);
}

function byPanels(numTokens: i32, numPacked: i32, numInputs: i32, dtype: i32): bool {
  let begin = takeUnits(MC);
  for (; begin < numPacked; begin = takeUnits(MC)) {
    const end = min<i32>(numPacked, begin + MC);
    for (let t = 0; t < numTokens; t += NC) {
      panels(begin, end, t, min<i32>(numTokens, t + NC), numTokens, numInputs, dtype);
    }
  }
  return begin === ((numPacked + MC - 1) & -MC);
}

/** Rows `[begin, end)` times tokens `[first, last)`. */
function panels(begin: i32, end: i32, first: i32, last: i32, numTokens: i32, numInputs: i32, dtype: i32): void {
  const groupBytes = bytesOf(dtype, numInputs) * GROUP;
  const padded = paddedTokens(numTokens);
  const codes = codesFor(dtype, sharedScratch(), padded, numInputs);
  const codeBytes = codeBytesFor(dtype, 32);
  const wide = sideCodesAt(sharedScratch(), padded, numInputs);
  const metas = metasAt(sharedScratch(), padded, numInputs);
  const initial = initialOf(dtype);
  const halves = dtype === Q6_K;
  const numGroups = (end - begin) / GROUP;
  const groups = addressOf(1) + <usize>(begin / GROUP) * groupBytes;
  // codes of q8_0 are bytes already
  const isPlain = ASC_FEATURE_RELAXED_SIMD && dtype === Q8_0;
  const panel = localScratch();
  const panelRow = <usize>(KC >> 5) * UNPACKED_BYTES;
  // sums [group][token][4]; whole fours of tokens
  const sums = panel + <usize>(MC / GROUP) * panelRow;
  const numColumns = paddedTokens(last - first);
  const sumRow = (<usize>numColumns) << 4;
  memory.fill(sums, 0, <usize>numGroups * sumRow);
  for (let k = 0; k < numInputs; k += KC) {
    const firstBlock = k >> 5;
    const numBlocks = min<i32>(KC, numInputs - k) >> 5;
    for (let g = 0; g < numGroups && !isPlain; g++) {
      unpackGroup(
        dtype,
        groups + <usize>g * groupBytes,
        firstBlock,
        firstBlock + numBlocks,
        panel + <usize>g * panelRow,
      );
    }
    for (let block = 0; block < numBlocks; block++) {
      const at = <usize>((firstBlock + block) * padded + first);
      const meta = metas + at * META_BYTES;
      for (let g = 0; g < numGroups; g++) {
        const c = sums + <usize>g * sumRow;
        if (isPlain) {
          const plain = groups + <usize>g * groupBytes + <usize>(firstBlock + block) * 136;
          qgemmRepackedQ8(plain, codes + at * codeBytes, meta, c, numColumns);
          continue;
        }
        const p = panel + <usize>g * panelRow + <usize>block * UNPACKED_BYTES;
        if (ASC_FEATURE_RELAXED_SIMD) {
          qgemmBlock(dtype, p, codes + at * codeBytes, meta, initial, c, numColumns);
          continue;
        }
        for (let t: usize = 0; t < <usize>(last - first); t++) {
          const old = v128.load(c + (t << 4));
          const from = wide + ((at + t) << 6);
          v128.store(c + (t << 4), qgemvInt16(p, 1, from, meta + t * META_BYTES, initial, halves, old));
        }
      }
    }
  }
  for (let g = 0; g < numGroups; g++) {
    for (let t = first; t < last; t++) {
      const at = sums + <usize>g * sumRow + ((<usize>(t - first)) << 4);
      storeFour(v128.load(at), begin + g * GROUP, t);
    }
  }
}
