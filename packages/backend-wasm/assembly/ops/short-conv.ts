/** Causal depthwise convolution. Tensors: x, weight, sequences, stateFrom, stateTo, y, state. Units: runs of channels. */
import { addressOf, attributeI, dim, localScratch } from '../runtime/record';
import { exp4, fma } from '../simd/vector';
import { takeUnits } from '../runtime/threads';

/** Channels of one unit; `src/plan.ts` has the same number. */
const UNIT: i32 = 256;
const SILU: i32 = 1;

export function shortConv(): void {
  const numTokens = dim(0, 0);
  const numChannels = dim(0, 1);
  const numTaps = dim(1, 1);
  for (let first = takeUnits(UNIT); first < numChannels; first = takeUnits(UNIT)) {
    const count = min<i32>(UNIT, numChannels - first);
    const taps = localScratch();
    const zeros = taps + <usize>(numTaps * UNIT * 4);
    memory.fill(zeros, 0, UNIT * 4);
    spreadTaps(first, count, numTaps, taps);
    for (let begin = 0; begin < numTokens;) {
      const sequence = (<usize>load<u32>(addressOf(2) + ((<usize>begin) << 2))) << 2;
      let end = begin + 1;
      while (end < numTokens && (<usize>load<u32>(addressOf(2) + ((<usize>end) << 2))) << 2 === sequence) end++;
      const from = load<i32>(addressOf(3) + sequence);
      const to = load<i32>(addressOf(4) + sequence);
      for (let t = begin; t < end; t++) convolve(first, count, t, begin, from, taps, zeros);
      keep(first, count, begin, end, from, to, zeros);
      begin = end;
    }
  }
}

/** Taps `[channel, tap]` as `[tap, channel]`, so that vectors hold the same tap of several channels. */
function spreadTaps(first: i32, count: i32, numTaps: i32, taps: usize): void {
  let from = addressOf(1) + ((<usize>(first * numTaps)) << 2);
  let channel = 0;
  if (numTaps === 4) {
    for (; channel + 4 <= count; channel += 4, from += 64) {
      const a = v128.load(from);
      const b = v128.load(from, 16);
      const c = v128.load(from, 32);
      const d = v128.load(from, 48);
      const ab = i8x16.shuffle(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const cd = i8x16.shuffle(c, d, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const ef = i8x16.shuffle(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      const gh = i8x16.shuffle(c, d, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      const to = taps + ((<usize>channel) << 2);
      v128.store(to, i8x16.shuffle(ab, cd, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
      v128.store(to, i8x16.shuffle(ab, cd, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31), UNIT * 4);
      v128.store(to, i8x16.shuffle(ef, gh, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), UNIT * 8);
      v128.store(to, i8x16.shuffle(ef, gh, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31), UNIT * 12);
    }
  }
  for (; channel < count; channel++) {
    for (let tap = 0; tap < numTaps; tap++, from += 4) {
      store<f32>(taps + ((<usize>(tap * UNIT + channel)) << 2), load<f32>(from));
    }
  }
}

/** Channels from `first` on of token `t`, or zeros where the sequence had not begun. */
function inputAt(t: i32, begin: i32, from: i32, first: i32, zeros: usize): usize {
  const numChannels = dim(0, 1);
  if (t >= begin) return addressOf(0) + ((<usize>(t * numChannels + first)) << 2);
  const numKept = dim(6, 1);
  return from < 0
    ? zeros
    : addressOf(6) + ((<usize>((from * numKept + t - begin + numKept) * numChannels + first)) << 2);
}

function convolve(first: i32, count: i32, t: i32, begin: i32, from: i32, taps: usize, zeros: usize): void {
  const numTaps = dim(1, 1);
  const hasSilu = attributeI(0) === SILU;
  const oldest = t - numTaps + 1;
  const y = addressOf(5) + ((<usize>(t * dim(0, 1) + first)) << 2);
  // three taps at a time; the sums of further ones are added to what is there
  let tap = 0;
  for (; tap + 3 <= numTaps; tap += 3) {
    const x0 = inputAt(oldest + tap, begin, from, first, zeros);
    const x1 = inputAt(oldest + tap + 1, begin, from, first, zeros);
    const x2 = inputAt(oldest + tap + 2, begin, from, first, zeros);
    threeTaps(y, x0, x1, x2, taps + <usize>(tap * UNIT * 4), count, tap > 0);
  }
  for (; tap < numTaps; tap++) {
    oneTap(y, inputAt(oldest + tap, begin, from, first, zeros), taps + <usize>(tap * UNIT * 4), count, tap > 0);
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

/** The last inputs become the state, the oldest first: also within one row nothing is overwritten before it moved. */
function keep(first: i32, count: i32, begin: i32, end: i32, from: i32, to: i32, zeros: usize): void {
  const numKept = dim(6, 1);
  const numChannels = dim(0, 1);
  for (let i = 0; i < numKept; i++) {
    const target = addressOf(6) + ((<usize>((to * numKept + i) * numChannels + first)) << 2);
    memory.copy(target, inputAt(end - numKept + i, begin, from, first, zeros), (<usize>count) << 2);
  }
}
