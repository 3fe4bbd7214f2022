/**
 * The gated delta rule. The first phase normalizes keys and queries and computes the gates, in shared scratch. Work items of
 * the second phase are blocks of rows of the memory of a head, over all tokens of the step, so that the block stays in the
 * L1 cache. With M after token t in registers, one pass gives what token t reads and what the key of token t + 1 recalls.
 */
import { gatedDelta4 } from '../attention/microkernels.generated';
import { nextRun, openRuns, runBegin, runEnd, stateFrom, stateTo } from '../attention/state-runs';
import * as op from '../operands/gated-delta.generated';
import { localScratch, sharedScratch } from '../runtime/record';
import { fma, promoteHigh, sum2, sum4 } from '../simd/vector';
import { phaseBarrier, takeUnits } from '../runtime/threads';

/** Rows of a work item. */
const ROWS: i32 = 32;

let keyDim: i32 = 0;
let valueDim: i32 = 0;
let numHeads: i32 = 0;
let numKeyHeads: i32 = 0;
let units: usize = 0; // [T, 2 G, S]: queries, then keys
let gates: usize = 0; // [T, N, 2]: decay of the memory, learning rate

export function gatedDelta(): void {
  numHeads = op.state.numHeads;
  valueDim = op.state.valueDim;
  keyDim = op.state.keyDim;
  numKeyHeads = op.attributes.numKeyHeads;
  const numTokens = op.qkv.numTokens;
  units = sharedScratch();
  gates = units + ((<usize>(numTokens * 2 * numKeyHeads * keyDim)) << 2);
  const perToken = 2 * numKeyHeads + 1;
  const numParts = numTokens * perToken;
  for (let part = takeUnits(1); part < numParts; part = takeUnits(1)) {
    const t = part / perToken;
    const index = part % perToken;
    if (index === 2 * numKeyHeads) prepareGates(t);
    else prepareUnit(t, index);
  }
  phaseBarrier();
  const perHead = (valueDim + ROWS - 1) / ROWS;
  for (let unit = takeUnits(1); unit < numHeads * perHead; unit = takeUnits(1)) {
    const begin = (unit % perHead) * ROWS;
    openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, numTokens);
    while (nextRun()) remember(unit / perHead, begin, min<i32>(ROWS, valueDim - begin));
  }
}

function prepareUnit(t: i32, index: i32): void {
  let x = op.qkv.address + ((<usize>(t * op.qkv.numColumns + index * keyDim)) << 2);
  let to = units + ((<usize>((t * 2 * numKeyHeads + index) * keyDim)) << 2);
  let low = f64x2.splat(0);
  let high = low;
  let at = x;
  let i = keyDim;
  for (; i >= 4; i -= 4, at += 16) {
    const v = v128.load(at);
    const a = f64x2.promote_low_f32x4(v);
    const b = promoteHigh(v);
    low = f64x2.add(low, f64x2.mul(a, a));
    high = f64x2.add(high, f64x2.mul(b, b));
  }
  let squares = sum2(f64x2.add(low, high));
  for (; i > 0; i--, at += 4) squares += <f64>load<f32>(at) * <f64>load<f32>(at);
  let factor = 1 / Math.sqrt(squares + <f64>op.attributes.eps);
  if (index < numKeyHeads) factor /= Math.sqrt(<f64>keyDim);
  for (i = keyDim; i > 0; i--, x += 4, to += 4) store<f32>(to, <f32>(<f64>load<f32>(x) * factor));
}

function prepareGates(t: i32): void {
  for (let head = 0; head < numHeads; head++) {
    const own = (<usize>head) << 2;
    const at = (<usize>(t * numHeads + head)) << 2;
    const x = <f64>load<f32>(op.alpha.address + at) + <f64>load<f32>(op.alphaBias.address + own);
    const softplus = max<f64>(x, 0) + Math.log1p(Math.exp(-abs<f64>(x)));
    const kept = Math.exp(softplus * <f64>load<f32>(op.decay.address + own));
    const rate = 1 / (1 + Math.exp(-(<f64>load<f32>(op.beta.address + at))));
    store<f32>(gates + (at << 1), <f32>kept);
    store<f32>(gates + (at << 1), <f32>rate, 4);
  }
}

/** Updates rows `[begin, begin + count)` of the memory of `head` with the run of tokens. */
function remember(head: i32, begin: i32, count: i32): void {
  const rowBytes = (<usize>keyDim) << 2;
  const sizeBytes = <usize>count * rowBytes;
  const memoryAt = op.state.address + <usize>((stateTo * numHeads + head) * valueDim + begin) * rowBytes;
  if (stateFrom < 0) memory.fill(memoryAt, 0, sizeBytes);
  else if (stateFrom !== stateTo) {
    memory.copy(
      memoryAt,
      op.state.address + <usize>((stateFrom * numHeads + head) * valueDim + begin) * rowBytes,
      sizeBytes,
    );
  }
  const keyHead = op.attributes.heads === op.HEADS_TILED ? head % numKeyHeads : (head * numKeyHeads) / numHeads;
  const unitBytes = <usize>(2 * numKeyHeads) * rowBytes; // stride of tokens
  let q = units + <usize>(runBegin * 2 * numKeyHeads + keyHead) * rowBytes;
  let k = q + <usize>numKeyHeads * rowBytes;
  const recalled = localScratch(); // M k of the next token, per row
  for (let i = 0; i < count; i++) {
    store<f32>(recalled + ((<usize>i) << 2), recall(memoryAt + <usize>i * rowBytes, k));
  }
  const numWhole = (keyDim & 3) === 0 ? count & ~3 : 0;
  for (let t = runBegin; t < runEnd; t++, q += unitBytes, k += unitBytes) {
    const gate = gates + ((<usize>(t * numHeads + head)) << 3);
    const values =
      op.qkv.address + ((<usize>(t * op.qkv.numColumns + 2 * numKeyHeads * keyDim + head * valueDim + begin)) << 2);
    const y = op.y.address + ((<usize>((t * numHeads + head) * valueDim + begin)) << 2);
    const next = t + 1 < runEnd ? k + unitBytes : k;
    let i = 0;
    for (; i < numWhole; i += 4) {
      const at = (<usize>i) << 2;
      gatedDelta4(memoryAt + <usize>i * rowBytes, q, k, next, gate, values + at, recalled + at, y + at, keyDim);
    }
    for (; i < count; i++) {
      const at = (<usize>i) << 2;
      oneRow(memoryAt + <usize>i * rowBytes, q, k, next, gate, values + at, recalled + at, y + at);
    }
  }
}

function recall(row: usize, k: usize): f32 {
  let sum = f32x4.splat(0);
  let i = keyDim;
  for (; i >= 4; i -= 4, row += 16, k += 16) sum = fma(v128.load(row), v128.load(k), sum);
  let result = sum4(sum);
  for (; i > 0; i--, row += 4, k += 4) result += load<f32>(row) * load<f32>(k);
  return result;
}

function oneRow(m: usize, q: usize, k: usize, next: usize, gate: usize, v: usize, recalled: usize, y: usize): void {
  const kept = load<f32>(gate);
  const delta = load<f32>(gate, 4) * (load<f32>(v) - kept * load<f32>(recalled));
  let read: f32 = 0;
  let coming: f32 = 0;
  for (let i = keyDim; i > 0; i--, m += 4, q += 4, k += 4, next += 4) {
    const value = load<f32>(m) * kept + delta * load<f32>(k);
    store<f32>(m, value);
    read += value * load<f32>(q);
    coming += value * load<f32>(next);
  }
  store<f32>(y, read);
  store<f32>(recalled, coming);
}

/** What a key recalls of each row. */
export function gatedDeltaLocalBytes(): u64 {
  return ROWS * 4;
}

/** Unit vectors and gates of all tokens. */
export function gatedDeltaSharedBytes(): u64 {
  const perToken = 2 * op.attributes.numKeyHeads * op.state.keyDim + 2 * op.state.numHeads;
  return (<u64>op.qkv.numTokens * perToken) << 2;
}
