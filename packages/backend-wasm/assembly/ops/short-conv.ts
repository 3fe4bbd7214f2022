/** Causal depthwise convolution. Work items: ranges of channels. */
import { nextRun, openRuns, runBegin, runEnd, stateFrom, stateTo } from '../attention/state-runs';
import * as op from '../operands/short-conv.generated';
import { localScratch } from '../runtime/record';
import { exp4, fma } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

/** Channels of a work item. */
const UNIT: i32 = 256;

export function shortConv(): void {
  const numChannels = op.x.numChannels;
  const numTaps = op.weight.numTaps;
  for (let first = takeUnits(UNIT); first < numChannels; first = takeUnits(UNIT)) {
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
  let channel = 0;
  if (numTaps === 4) {
    for (; channel + 4 <= count; channel += 4, from += 64) {
      const a = v128.load(from);
      const b = v128.load(from, 16);
      const c = v128.load(from, 32);
      const d = v128.load(from, 48);
      const ab = i32x4.shuffle(a, b, 0, 4, 1, 5);
      const cd = i32x4.shuffle(c, d, 0, 4, 1, 5);
      const ef = i32x4.shuffle(a, b, 2, 6, 3, 7);
      const gh = i32x4.shuffle(c, d, 2, 6, 3, 7);
      const to = taps + ((<usize>channel) << 2);
      v128.store(to, i64x2.shuffle(ab, cd, 0, 2));
      v128.store(to, i64x2.shuffle(ab, cd, 1, 3), UNIT * 4);
      v128.store(to, i64x2.shuffle(ef, gh, 0, 2), UNIT * 8);
      v128.store(to, i64x2.shuffle(ef, gh, 1, 3), UNIT * 12);
    }
  }
  for (; channel < count; channel++) {
    for (let tap = 0; tap < numTaps; tap++, from += 4) {
      store<f32>(taps + ((<usize>(tap * UNIT + channel)) << 2), load<f32>(from));
    }
  }
}

/** Channels from `first` on of token `t`, or zeros before the start of the sequence. */
function inputAt(t: i32, first: i32, zeros: usize): usize {
  const numChannels = op.x.numChannels;
  if (t >= runBegin) return op.x.address + ((<usize>(t * numChannels + first)) << 2);
  const numKept = op.state.historyLength;
  return stateFrom < 0
    ? zeros
    : op.state.address + ((<usize>((stateFrom * numKept + t - runBegin + numKept) * numChannels + first)) << 2);
}

function convolve(first: i32, count: i32, t: i32, taps: usize, zeros: usize): void {
  const numTaps = op.weight.numTaps;
  const hasSilu = op.attributes.activation === op.ACTIVATION_SILU;
  const oldest = t - numTaps + 1;
  const y = op.y.address + ((<usize>(t * op.x.numChannels + first)) << 2);
  // three taps at a time; later taps add to the output
  let tap = 0;
  for (; tap + 3 <= numTaps; tap += 3) {
    const x0 = inputAt(oldest + tap, first, zeros);
    const x1 = inputAt(oldest + tap + 1, first, zeros);
    const x2 = inputAt(oldest + tap + 2, first, zeros);
    threeTaps(y, x0, x1, x2, taps + <usize>(tap * UNIT * 4), count, tap > 0);
  }
  for (; tap < numTaps; tap++) {
    oneTap(y, inputAt(oldest + tap, first, zeros), taps + <usize>(tap * UNIT * 4), count, tap > 0);
  }
  if (hasSilu) silu(y, count);
}

function threeTaps(y: usize, x0: usize, x1: usize, x2: usize, w: usize, count: i32, add: bool): void {
  let at: usize = 0;
  const end = (<usize>count) << 2;
  for (; at + 16 <= end; at += 16) {
    let sum = add ? v128.load(y + at) : f32x4.splat(0);
    sum = fma(v128.load(x0 + at), v128.load(w + at), sum);
    sum = fma(v128.load(x1 + at), v128.load(w + at, UNIT * 4), sum);
    v128.store(y + at, fma(v128.load(x2 + at), v128.load(w + at, UNIT * 8), sum));
  }
  for (; at < end; at += 4) {
    let sum: f32 = add ? load<f32>(y + at) : 0;
    sum += load<f32>(x0 + at) * load<f32>(w + at);
    sum += load<f32>(x1 + at) * load<f32>(w + at, UNIT * 4);
    store<f32>(y + at, sum + load<f32>(x2 + at) * load<f32>(w + at, UNIT * 8));
  }
}

function oneTap(y: usize, x: usize, w: usize, count: i32, add: bool): void {
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

function silu(y: usize, count: i32): void {
  const one = f32x4.splat(1);
  let i = count;
  for (; i >= 4; i -= 4, y += 16) {
    const v = v128.load(y);
    v128.store(y, f32x4.div(v, f32x4.add(one, exp4(f32x4.neg(v)))));
  }
  for (; i > 0; i--, y += 4) {
    const v = load<f32>(y);
    store<f32>(y, v / (1 + f32x4.extract_lane(exp4(f32x4.splat(-v)), 0)));
  }
}

/** Copies the last inputs to the state, the oldest first, so that nothing is overwritten before it is copied. */
function keep(first: i32, count: i32, zeros: usize): void {
  const numKept = op.state.historyLength;
  const numChannels = op.x.numChannels;
  for (let i = 0; i < numKept; i++) {
    const target = op.state.address + ((<usize>((stateTo * numKept + i) * numChannels + first)) << 2);
    memory.copy(target, inputAt(runEnd - numKept + i, first, zeros), (<usize>count) << 2);
  }
}

/** The taps of the channels of a unit, then zeros. */
export function shortConvLocalBytes(): u64 {
  return <u64>(UNIT * 4) * (op.weight.numTaps + 1);
}
