/** Causal depthwise convolution. Work items: ranges of channels. */
import { nextRun, openRuns, runBegin, runEnd, stateFrom, stateTo } from '../attention/state-runs';
import { KIND_SILU } from '../operands/activation.generated';
import * as op from '../operands/short-conv.generated';
import { setFloat } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { fma } from '../simd/vector';
import { activateRow } from './pointwise';

/** Channels of a work item. */
const UNIT: i32 = 256;

export function shortConv(): void {
  const numChannels = op.x.numChannels;
  const numTaps = op.weight.numTaps;
  for (let first = nextItems(UNIT); first < numChannels; first = nextItems(UNIT)) {
    const count = min<i32>(UNIT, numChannels - first);
    const taps = localScratch();
    const zeros = taps + <usize>(numTaps * UNIT * 4);
    memory.fill(zeros, 0, UNIT * 4);
    spreadTaps(first, count, numTaps, taps);
    openRuns(op.sequences.address, op.stateFrom.address, op.stateTo.address, op.x.numTokens);
    while (nextRun()) {
      for (let t = runBegin; t < runEnd; t++) convolve(first, count, t, taps, zeros);
      keep(first, count, zeros);
    }
  }
}

/** Transposes taps to `[tap, channel]`, so that vectors hold the same tap of several channels. */
function spreadTaps(first: i32, count: i32, numTaps: i32, taps: usize): void {
  let from = op.weight.address + ((<usize>(first * numTaps)) << 2);
  for (let channel = 0; channel < count; channel++) {
    for (let tap = 0; tap < numTaps; tap++, from += 4) setFloat(taps, tap * UNIT + channel, load<f32>(from));
  }
}

/** Address of the inputs of token `t` from channel `first` on; zeros before the start of the sequence. */
function inputAt(t: i32, first: i32, zeros: usize): usize {
  if (t >= runBegin) return op.x.rowAt(t) + ((<usize>first) << 2);
  if (stateFrom < 0) return zeros;
  return op.state.rowAt((stateFrom + 1) * op.state.historyLength + t - runBegin) + ((<usize>first) << 2);
}

function convolve(first: i32, count: i32, t: i32, taps: usize, zeros: usize): void {
  const oldest = t - op.weight.numTaps + 1;
  const y = op.y.rowAt(t) + ((<usize>first) << 2);
  const hasBias = op.bias.isPresent;
  if (hasBias) memory.copy(y, op.bias.address + ((<usize>first) << 2), (<usize>count) << 2);
  for (let tap = 0; tap < op.weight.numTaps; tap++) {
    addTap(y, inputAt(oldest + tap, first, zeros), taps + <usize>(tap * UNIT * 4), count, hasBias || tap > 0);
  }
  if (op.attributes.activation === op.ACTIVATION_SILU) activateRow(KIND_SILU, y, count);
}

function addTap(y: usize, x: usize, w: usize, count: i32, add: bool): void {
  let at: usize = 0;
  const end = (<usize>count) << 2;
  for (; at + 16 <= end; at += 16) {
    const sum = add ? v128.load(y + at) : f32x4.splat(0);
    v128.store(y + at, fma(v128.load(x + at), v128.load(w + at), sum));
  }
  for (; at < end; at += 4) {
    const sum: f32 = add ? load<f32>(y + at) : 0;
    store<f32>(y + at, sum + load<f32>(x + at) * load<f32>(w + at));
  }
}

/** Copies the last inputs to the state, the oldest first, so that nothing is overwritten before it is copied. */
function keep(first: i32, count: i32, zeros: usize): void {
  const numKept = op.state.historyLength;
  for (let i = 0; i < numKept; i++) {
    const target = op.state.rowAt(stateTo * numKept + i) + ((<usize>first) << 2);
    memory.copy(target, inputAt(runEnd - numKept + i, first, zeros), (<usize>count) << 2);
  }
}

/** The taps of the channels of a work item, then a row of zeros. */
export function shortConvLocalBytes(): u64 {
  return <u64>(UNIT * 4) * (op.weight.numTaps + 1);
}
