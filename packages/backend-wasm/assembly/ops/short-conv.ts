/** Causal depthwise convolution. Tensors: x, weight, sequences, stateFrom, stateTo, y, state. Units: runs of channels. */
import { addressOf, attributeI, dim, localScratch } from '../record';
import { exp4, fma } from '../simd';
import { takeUnits } from '../threads';

/** Channels of one unit; `src/plan.ts` has the same number. */
const UNIT: i32 = 64;
const SILU: i32 = 1;

export function shortConv(): void {
  const numTokens = dim(0, 0);
  const numChannels = dim(0, 1);
  const numTaps = dim(1, 1);
  for (let first = takeUnits(UNIT); first < numChannels; first = takeUnits(UNIT)) {
    const count = min<i32>(UNIT, numChannels - first);
    // taps side by side for all channels of the unit
    const taps = localScratch();
    for (let channel = 0; channel < count; channel++) {
      const from = addressOf(1) + (<usize>((first + channel) * numTaps) << 2);
      for (let tap = 0; tap < numTaps; tap++) {
        store<f32>(taps + (<usize>(tap * UNIT + channel) << 2), load<f32>(from + (<usize>tap << 2)));
      }
    }
    for (let begin = 0; begin < numTokens; ) {
      const sequence = <usize>load<u32>(addressOf(2) + (<usize>begin << 2)) << 2;
      let end = begin + 1;
      while (end < numTokens && <usize>load<u32>(addressOf(2) + (<usize>end << 2)) << 2 == sequence) end++;
      const from = load<i32>(addressOf(3) + sequence);
      const to = load<i32>(addressOf(4) + sequence);
      convolve(first, count, begin, end, from, taps);
      keep(first, count, begin, end, from, to);
      begin = end;
    }
  }
}

/** Channels from `first` on of token `t`, or 0 where the sequence had not begun. */
function inputAt(t: i32, begin: i32, from: i32, first: i32): usize {
  const numChannels = dim(0, 1);
  if (t >= begin) return addressOf(0) + (<usize>(t * numChannels + first) << 2);
  const numKept = dim(6, 1);
  return from < 0 ? 0 : addressOf(6) + (<usize>((from * numKept + t - begin + numKept) * numChannels + first) << 2);
}

function convolve(first: i32, count: i32, begin: i32, end: i32, from: i32, taps: usize): void {
  const numTaps = dim(1, 1);
  const hasSilu = attributeI(0) == SILU;
  for (let t = begin; t < end; t++) {
    const y = addressOf(5) + (<usize>(t * dim(0, 1) + first) << 2);
    memory.fill(y, 0, <usize>count << 2);
    for (let tap = 0; tap < numTaps; tap++) {
      const x = inputAt(t - numTaps + 1 + tap, begin, from, first);
      if (x != 0) addProducts(y, x, taps + (<usize>(tap * UNIT) << 2), count);
    }
    if (hasSilu) silu(y, count);
  }
}

/** `y += x * w`, `count` floats. */
function addProducts(y: usize, x: usize, w: usize, count: i32): void {
  let i = count;
  for (; i >= 4; i -= 4, y += 16, x += 16, w += 16) {
    v128.store(y, fma(v128.load(x), v128.load(w), v128.load(y)));
  }
  for (; i > 0; i--, y += 4, x += 4, w += 4) store<f32>(y, load<f32>(y) + load<f32>(x) * load<f32>(w));
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
function keep(first: i32, count: i32, begin: i32, end: i32, from: i32, to: i32): void {
  const numKept = dim(6, 1);
  const numChannels = dim(0, 1);
  for (let i = 0; i < numKept; i++) {
    const target = addressOf(6) + (<usize>((to * numKept + i) * numChannels + first) << 2);
    const source = inputAt(end - numKept + i, begin, from, first);
    if (source == 0) memory.fill(target, 0, <usize>count << 2);
    else memory.copy(target, source, <usize>count << 2);
  }
}
