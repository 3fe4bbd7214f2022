/** One step of the online softmax over a chunk of keys, for four queries side by side. */
import { minusInfinity } from '../simd/constants';
import { tanh4, weight4 } from '../simd/vector';
import { weightOf4 } from './softmax-weights';

/** Which keys the queries see. */
let leads: i32 = 0;
let reaches: i32 = 0;
let cap: f32 = 0;
let factorOfLogits: f32 = 1;

/** A key is seen at distances of `lead` to `reach` from the query; logits are scaled, then capped unless `softCap` is 0. */
export function setSoftmax(scale: f32, softCap: f32, lead: i32, reach: i32): void {
  factorOfLogits = scale;
  cap = softCap;
  leads = lead;
  reaches = reach;
}

/**
 * Products `[count]` of four lanes, `stride` bytes apart, become weights relative to the new maximum. `state` holds the
 * lanes' maxima; their sums follow `sumsAt` bytes later. Returns what older sums and outputs are to be multiplied with.
 * @param positions of the keys, negative ones seen by nobody; 0 when all lanes see all keys
 */
export function softmaxStep(
  at: usize,
  stride: usize,
  count: i32,
  positions: usize,
  lanePositions: usize,
  state: usize,
  sumsAt: usize,
): v128 {
  const none = minusInfinity();
  const old = v128.load(state);
  const end = at + <usize>count * stride;
  let top = old;
  if (positions === 0 && cap === 0) {
    const scale = f32x4.splat(factorOfLogits);
    for (let p = at; p < end; p += stride) {
      const logit = f32x4.mul(v128.load(p), scale);
      v128.store(p, logit);
      top = f32x4.pmax(top, logit); // a NaN makes the sum one
    }
  } else {
    top = maskedTop(at, stride, end, positions, v128.load(lanePositions), top);
  }
  v128.store(state, top);
  // a lane that saw nothing yet keeps -Infinity: subtract zero there
  const shift = v128.andnot(top, f32x4.eq(top, none));
  const factor = weight4(f32x4.sub(old, shift));
  let sum = f32x4.mul(v128.load(state + sumsAt), factor);
  for (let p = at; p < end; p += stride) {
    const weight = weightOf4(f32x4.sub(v128.load(p), shift));
    v128.store(p, weight);
    sum = f32x4.add(sum, weight);
  }
  v128.store(state + sumsAt, sum);
  return factor;
}

function maskedTop(at: usize, stride: usize, end: usize, positions: usize, lanes: v128, top: v128): v128 {
  const none = minusInfinity();
  const scale = f32x4.splat(factorOfLogits);
  const bound = f32x4.splat(cap);
  const low = i32x4.splat(leads);
  const high = i32x4.splat(reaches);
  for (let p = at; p < end; p += stride) {
    let logit = f32x4.mul(v128.load(p), scale);
    if (cap !== 0) logit = f32x4.mul(bound, tanh4(f32x4.div(logit, bound)));
    if (positions !== 0) {
      const position = load<i32>(positions);
      const distance = i32x4.sub(lanes, i32x4.splat(position));
      const isHidden = v128.or(i32x4.lt_s(distance, low), i32x4.gt_s(distance, high));
      logit = position < 0 ? none : v128.bitselect(none, logit, isHidden);
      positions += 4;
    }
    v128.store(p, logit);
    top = f32x4.pmax(top, logit);
  }
  return top;
}
