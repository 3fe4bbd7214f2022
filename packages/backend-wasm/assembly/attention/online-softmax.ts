/** Steps of the online softmax over a chunk of keys, for four or eight queries side by side: logits become weights. */
import { minusInfinity } from '../simd/constants';
import { weight4 } from '../simd/vector';
import { capLogits, maxDistance, minDistance } from './kv-cache-view';
import { softmaxWeights4, softmaxWeights8 } from './microkernels.generated';

/**
 * `count` logits of four lanes, `stride` bytes apart, become weights relative to the new maximum. `state` holds the lanes'
 * maxima; their sums follow `sumsAt` bytes later. Returns the factor of older sums and outputs.
 * @param positions of the keys, for a causal mask and a window; 0 when all lanes see all keys
 * @param isCapped whether the soft cap of the model is still to be applied
 */
export function softmaxStep4(
  at: usize,
  stride: usize,
  count: i32,
  isCapped: bool,
  positions: usize,
  lanePositions: usize,
  state: usize,
  sumsAt: usize,
): v128 {
  const old = v128.load(state);
  const end = at + <usize>count * stride;
  let top = old;
  if (positions === 0 && !isCapped) {
    for (let p = at; p < end; p += stride) top = f32x4.pmax(top, v128.load(p)); // a NaN makes the sum one
  } else {
    top = maskLogits(at, stride, end, isCapped, positions, v128.load(lanePositions), top);
  }
  v128.store(state, top);
  // a lane that saw nothing yet keeps -Infinity: subtract zero there
  const shift = v128.andnot(top, f32x4.eq(top, minusInfinity()));
  const factor = weight4(f32x4.sub(old, shift));
  softmaxWeights4(at, end, stride, state + sumsAt, shift, factor);
  return factor;
}

/** Caps logits and hides keys from the lanes that do not see them; returns the maxima. */
function maskLogits(
  at: usize,
  stride: usize,
  end: usize,
  isCapped: bool,
  positions: usize,
  lanes: v128,
  top: v128,
): v128 {
  const none = minusInfinity();
  const near = i32x4.splat(minDistance);
  const far = i32x4.splat(maxDistance);
  for (let p = at; p < end; p += stride) {
    let logit = v128.load(p);
    if (isCapped) logit = capLogits(logit);
    if (positions !== 0) {
      const position = load<i32>(positions);
      const distance = i32x4.sub(lanes, i32x4.splat(position));
      const isHidden = v128.or(i32x4.lt_s(distance, near), i32x4.gt_s(distance, far));
      logit = position < 0 ? none : v128.bitselect(none, logit, isHidden);
      positions += 4;
    }
    v128.store(p, logit);
    top = f32x4.pmax(top, logit);
  }
  return top;
}

let lowFactor: v128 = f32x4.splat(1);
let highFactor: v128 = f32x4.splat(1);

/** The factors of older outputs of lanes 0 to 3 and 4 to 7 after `softmaxStep8`. */
export function factorOfLow(): v128 {
  return lowFactor;
}
export function factorOfHigh(): v128 {
  return highFactor;
}

/** The same for `count` rows of eight logits that every lane sees. */
export function softmaxStep8(at: usize, count: i32, state: usize, sumsAt: usize): void {
  const none = minusInfinity();
  const oldLow = v128.load(state);
  const oldHigh = v128.load(state, 16);
  let topLow = oldLow;
  let topHigh = oldHigh;
  const end = at + ((<usize>count) << 5);
  let p = at;
  if ((count & 1) === 0) {
    let nextLow = topLow;
    let nextHigh = topHigh;
    for (; p < end; p += 64) {
      topLow = f32x4.pmax(topLow, v128.load(p));
      topHigh = f32x4.pmax(topHigh, v128.load(p, 16));
      nextLow = f32x4.pmax(nextLow, v128.load(p, 32));
      nextHigh = f32x4.pmax(nextHigh, v128.load(p, 48));
    }
    topLow = f32x4.pmax(topLow, nextLow);
    topHigh = f32x4.pmax(topHigh, nextHigh);
  }
  for (; p < end; p += 32) {
    topLow = f32x4.pmax(topLow, v128.load(p)); // a NaN makes the sum one
    topHigh = f32x4.pmax(topHigh, v128.load(p, 16));
  }
  v128.store(state, topLow);
  v128.store(state, topHigh, 16);
  // a lane that saw nothing yet keeps -Infinity: subtract zero there
  const shiftLow = v128.andnot(topLow, f32x4.eq(topLow, none));
  const shiftHigh = v128.andnot(topHigh, f32x4.eq(topHigh, none));
  lowFactor = weight4(f32x4.sub(oldLow, shiftLow));
  highFactor = weight4(f32x4.sub(oldHigh, shiftHigh));
  softmaxWeights8(at, end, 32, state + sumsAt, shiftLow, shiftHigh, lowFactor, highFactor);
}
