/**
 * matmul with repacked weights and 8-bit activations. Work items: groups of four rows. Up to three tokens use qgemv, more use
 * panels. Rows beyond the last whole group are left to the f32 matmul.
 */
import { bytesOf } from '../quant/dequantize';
import * as activations from '../quant/quantize-activations';
import { FLAG_REUSE, MAX_OWN_CODES, MIN_PANEL_TOKENS, GROUP_SIZE, META_BYTES } from '../runtime/layout.generated';
import { weight, x } from '../operands/matmul.generated';
import { hasFlag, localScratch, sharedScratch } from '../runtime/record';
import { firstItem, nextItem, phaseBarrier, setPrefetch, nextItems, thread, threads } from '../runtime/threads';
import { beginPanel, MC, multiplyRepacked, setColumns } from './int8-panels';
import { beginQgemv, qgemvRows, streamsInvariant, streamsOf } from './qgemv';
import { setCodes } from './tokens';

/** Tokens per pass over the weights. */
const NC: i32 = 128;
/** Guided scheduling: a work item is `1 / SHARES` of a thread's share of the remaining rows. */
const SHARES: i32 = 2;
/** Offset of a thread's own codes in its scratch, past the space for rows and sums. */
const OWN_CODES: usize = 0x8000;

// of the current op, set by each thread
let numTokens: i32 = 0;
let numInputs: i32 = 0;
let dtype: i32 = 0;
/** Address of the quantized activations. */
let codesAt: usize = 0;

/** Returns the first output that this thread still has to compute in f32; the number of outputs if there is none. */
export function matmulInt8(): i32 {
  const numOutputs = weight.numOutputs;
  numTokens = x.numTokens;
  numInputs = weight.numInputs;
  dtype = weight.dtype;
  const isPanels = numTokens >= MIN_PANEL_TOKENS && !streamsInvariant(dtype, numTokens);
  codesAt = sharedScratch();
  if (!isPanels && numTokens * numInputs <= MAX_OWN_CODES) {
    codesAt = localScratch() + OWN_CODES;
    activations.quantizeAlone(x.address, numTokens, numInputs, codesAt);
  } else if (!hasFlag(FLAG_REUSE)) {
    if (isPanels) activations.quantizeColumns(x.address, numTokens, numInputs, codesAt);
    else activations.quantizeTokens(x.address, numTokens, numInputs, codesAt);
    phaseBarrier();
  }
  const numRepacked = numOutputs & -GROUP_SIZE;
  const isLast = isPanels ? gemm(numRepacked) : gemv(numRepacked);
  return isLast ? numRepacked : numOutputs;
}

/**
 * Work items shrink towards the end: long streams prefetch well, and short ones let all threads finish together. The index of a
 * thread's first work item is its own index, so that it can prefetch ahead of time.
 * Returns whether this thread got the first work item beyond the repacked rows, which exactly one thread does.
 */
function gemv(numRepacked: i32): bool {
  const rows = GROUP_SIZE * streamsOf(dtype);
  setCodes(dtype, codesAt, numTokens, numInputs);
  beginQgemv(dtype, numInputs, 0, numTokens, localScratch());
  let begin = 0;
  let numUnits = 0;
  let next = firstItem();
  for (let unit = 0; begin < numRepacked; unit++) {
    const end = min<i32>(numRepacked, begin + unitOf(numRepacked - begin, rows));
    if (unit === next) {
      qgemvRows(weight.address, begin, end);
      next = nextItem();
    }
    begin = end;
    numUnits = unit + 1;
  }
  return next === numUnits;
}

/**
 * Rows of the next work item if `numLeft` are left: `rows` times the number of consecutive groups per stream. That number is
 * never a multiple of eight: streams that are whole pages apart would compete for the same few lines of the L1 cache.
 */
function unitOf(numLeft: i32, rows: i32): i32 {
  const run = numLeft / (SHARES * threads() * rows);
  return max<i32>(1, (run & 7) === 0 ? run - 1 : run) * rows;
}

/** Lets this thread prefetch the weights of its first work item of the entered matmul, which is yet to run, while it waits. */
export function prefetchMatmul(): void {
  const numRepacked = x.numTokens < MIN_PANEL_TOKENS ? weight.numOutputs & -GROUP_SIZE : 0;
  const groupBytes = bytesOf(weight.dtype, weight.numInputs) * GROUP_SIZE;
  const streams = streamsOf(weight.dtype);
  const rows = GROUP_SIZE * streams;
  let begin = 0;
  for (let unit = thread(); unit > 0 && begin < numRepacked; unit--) begin += unitOf(numRepacked - begin, rows);
  const run = max<i32>(0, min<i32>(numRepacked - begin, unitOf(numRepacked - begin, rows)) / rows);
  setPrefetch(weight.address + <usize>(begin / GROUP_SIZE) * groupBytes, <usize>run * groupBytes, streams);
}

/** Blocked qgemm; returns the same as `gemv`. */
function gemm(numRepacked: i32): bool {
  const padded = activations.paddedTokens(numTokens);
  const codes = activations.codesFor(dtype, codesAt, padded, numInputs);
  const metas = activations.metasAt(codesAt, padded, numInputs);
  let begin = nextItems(MC);
  for (; begin < numRepacked; begin = nextItems(MC)) {
    const end = min<i32>(numRepacked, begin + MC);
    for (let t = 0; t < numTokens; t += NC) {
      const last = min<i32>(numTokens, t + NC);
      beginPanel(localScratch(), dtype, end - begin, last - t);
      const at = codes + <usize>t * activations.codeBytesFor(dtype, 32);
      setColumns(at, metas + <usize>t * META_BYTES, padded);
      multiplyRepacked(weight.address, numInputs, begin, end, t, last);
    }
  }
  return begin === ((numRepacked + MC - 1) & -MC);
}
