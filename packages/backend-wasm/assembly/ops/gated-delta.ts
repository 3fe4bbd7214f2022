/**
 * The gated delta rule. The first phase normalizes keys and queries and computes the gates, in shared scratch. A work item of
 * the second phase is a block of rows of a head's state matrix M, for all tokens of the step, so that the block stays in the
 * L1 cache. With the M of token t in registers, one pass computes its output M q and the M k of token t + 1.
 */
import { gatedDelta4 } from '../attention/microkernels.generated';
import { carryState, nextRun, openRuns, runBegin, runEnd, stateTo } from '../attention/state-runs';
import * as op from '../operands/gated-delta.generated';
import { floatAt, setFloat } from '../runtime/arrays';
import { localScratch, sharedScratch } from '../runtime/record';
import { phaseBarrier, nextItems } from '../runtime/threads';
import { sumOfSquares } from '../simd/normalize-row';
import { softplus } from '../simd/softplus';
import { fma, sum4 } from '../simd/vector';

/** Rows of a work item. */
const ROWS: i32 = 32;

let units: usize = 0; // [T, 2 G, S]: queries, then keys
let gates: usize = 0; // [T, N, 2]: decay of the state, learning rate

export function gatedDelta(): void {
  const numTokens = op.qkv.numTokens;
  units = sharedScratch();
  gates = units + ((<usize>(numTokens * 2 * op.attributes.numKeyHeads * op.state.keyDim)) << 2);
  const perToken = 2 * op.attributes.numKeyHeads + 1;
  const numParts = numTokens * perToken;
  for (let part = nextItems(1); part < numParts; part = nextItems(1)) {
    const t = part / perToken;
    const index = part % perToken;
    if (index === 2 * op.attributes.numKeyHeads) prepareGates(t);
    else prepareUnit(t, index);
  }
  phaseBarrier();
  const perHead = (op.state.valueDim + ROWS - 1) / ROWS;
  for (let unit = nextItems(1); unit < op.state.numHeads * perHead; unit = nextItems(1)) {
    const begin = (unit % perHead) * ROWS;
    openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, numTokens);
    while (nextRun()) remember(unit / perHead, begin, min<i32>(ROWS, op.state.valueDim - begin));
  }
}

function prepareUnit(t: i32, index: i32): void {
  const x = op.qkv.address + ((<usize>(t * op.qkv.numColumns + index * op.state.keyDim)) << 2);
  const unit = units + ((<usize>((t * 2 * op.attributes.numKeyHeads + index) * op.state.keyDim)) << 2);
  let factor = 1 / Math.sqrt(sumOfSquares(x, op.state.keyDim, 0) + <f64>op.attributes.eps);
  if (index < op.attributes.numKeyHeads) factor /= Math.sqrt(<f64>op.state.keyDim);
  for (let i = 0; i < op.state.keyDim; i++) setFloat(unit, i, <f32>(<f64>floatAt(x, i) * factor));
}

function prepareGates(t: i32): void {
  for (let head = 0; head < op.state.numHeads; head++) {
    const at = t * op.state.numHeads + head;
    const x = <f64>floatAt(op.alpha.address, at) + <f64>floatAt(op.alphaBias.address, head);
    const decay = Math.exp(softplus(x) * <f64>floatAt(op.decay.address, head));
    const rate = 1 / (1 + Math.exp(-(<f64>floatAt(op.beta.address, at))));
    setFloat(gates, 2 * at, <f32>decay);
    setFloat(gates, 2 * at + 1, <f32>rate);
  }
}

/** Updates rows `[begin, begin + count)` of the state of `head` with the run of tokens. */
function remember(head: i32, begin: i32, count: i32): void {
  const keyDim = op.state.keyDim;
  const valueDim = op.state.valueDim;
  const numHeads = op.state.numHeads;
  const numKeyHeads = op.attributes.numKeyHeads;
  const rowBytes = (<usize>keyDim) << 2;
  const offset = <usize>(head * valueDim + begin) * rowBytes;
  carryState(op.state.address, <usize>(numHeads * valueDim) * rowBytes, offset, <usize>count * rowBytes);
  const memoryAt = op.state.address + <usize>(stateTo * numHeads * valueDim) * rowBytes + offset;
  const keyHead = op.attributes.heads === op.HEADS_TILED ? head % numKeyHeads : (head * numKeyHeads) / numHeads;
  const unitBytes = <usize>(2 * numKeyHeads) * rowBytes; // stride between tokens
  let q = units + <usize>(runBegin * 2 * numKeyHeads + keyHead) * rowBytes;
  let k = q + <usize>numKeyHeads * rowBytes;
  const recalled = localScratch(); // M k of the next token, per row
  for (let i = 0; i < count; i++) setFloat(recalled, i, recall(memoryAt + <usize>i * rowBytes, k));
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
  let i = op.state.keyDim;
  for (; i >= 4; i -= 4, row += 16, k += 16) sum = fma(v128.load(row), v128.load(k), sum);
  let result = sum4(sum);
  for (; i > 0; i--, row += 4, k += 4) result += load<f32>(row) * load<f32>(k);
  return result;
}

function oneRow(m: usize, q: usize, k: usize, next: usize, gate: usize, v: usize, recalled: usize, y: usize): void {
  const decay = load<f32>(gate);
  const delta = load<f32>(gate, 4) * (load<f32>(v) - decay * load<f32>(recalled));
  let read: f32 = 0;
  let nextRecalled: f32 = 0;
  for (let i = op.state.keyDim; i > 0; i--, m += 4, q += 4, k += 4, next += 4) {
    const value = load<f32>(m) * decay + delta * load<f32>(k);
    store<f32>(m, value);
    read += value * load<f32>(q);
    nextRecalled += value * load<f32>(next);
  }
  store<f32>(y, read);
  store<f32>(recalled, nextRecalled);
}

/** M k of the next token, per row. */
export function gatedDeltaLocalBytes(): u64 {
  return ROWS * 4;
}

/** Normalized queries and keys, and gates, of all tokens. */
export function gatedDeltaSharedBytes(): u64 {
  const perToken = 2 * op.attributes.numKeyHeads * op.state.keyDim + 2 * op.state.numHeads;
  return (<u64>op.qkv.numTokens * perToken) << 2;
}
