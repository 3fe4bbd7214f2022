/** expert-route and expert-combine. */
import { loadTail, storeTail } from '../simd/tail';
import { addressOf, attributeF, attributeI, dim, isPresent, localScratch } from '../runtime/record';
import { exp4, fma } from '../simd/vector';
import { takeUnits } from '../runtime/threads';
import { selectTop } from './top-k';

const SIGMOID: i32 = 1;

/** Tensors: logits, bias, ids, weights. Units: tokens. */
export function expertRoute(): void {
  const numTokens = dim(0, 0);
  const numExperts = dim(0, 1);
  const k = attributeI(0);
  const isSigmoid = attributeI(1) === SIGMOID;
  const normalises = attributeI(2) !== 0;
  const scale = <f64>attributeF(3);
  const rowBytes = (<usize>numExperts) << 2;
  const scores = localScratch();
  const ranks = scores + ((rowBytes + 15) & ~15);
  for (let t = takeUnits(1); t < numTokens; t = takeUnits(1)) {
    const logits = addressOf(0) + <usize>t * rowBytes;
    const ids = addressOf(2) + ((<usize>(t * k)) << 2);
    const weights = addressOf(3) + ((<usize>(t * k)) << 2);
    const total = isSigmoid ? sigmoids(logits, scores, numExperts) : exponentials(logits, scores, numExperts);
    if (isPresent(1)) {
      for (let i: usize = 0; i < rowBytes; i += 4) {
        const p = <f64>load<f32>(scores + i) / total;
        store<f32>(ranks + i, <f32>(p + <f64>load<f32>(addressOf(1) + i)));
      }
      selectTop(ranks, numExperts, ids, k);
    } else selectTop(logits, numExperts, ids, k);
    let sum: f64 = 0;
    for (let i: usize = 0; i < <usize>k; i++) sum += <f64>score(scores, ids, i);
    const factor: f64 = !normalises ? scale / total : sum === 0 ? 0 : scale / sum;
    for (let i: usize = 0; i < <usize>k; i++) {
      store<f32>(weights + (i << 2), <f32>(<f64>score(scores, ids, i) * factor));
    }
  }
}

function score(scores: usize, ids: usize, i: usize): f32 {
  return load<f32>(scores + ((<usize>load<u32>(ids + (i << 2))) << 2));
}

/** Stores `exp(x - max)` and returns the sum. */
function exponentials(x: usize, to: usize, count: i32): f64 {
  let top: f32 = -Infinity;
  for (let i: usize = 0; i < <usize>count; i++) top = max<f32>(top, load<f32>(x + (i << 2)));
  const shift = f32x4.splat(top);
  let total: f64 = 0;
  for (let i = 0; i < count; i += 4) {
    const at = (<usize>i) << 2;
    const rest = count - i;
    storeTail(to + at, exp4(f32x4.sub(loadTail(x + at, rest), shift)), rest);
    for (let lane = 0; lane < min<i32>(4, rest); lane++) total += <f64>load<f32>(to + at + ((<usize>lane) << 2));
  }
  return total;
}

/** Stores the logistic function; each score stands for itself: returns 1. */
function sigmoids(x: usize, to: usize, count: i32): f64 {
  const one = f32x4.splat(1);
  for (let i = 0; i < count; i += 4) {
    const at = (<usize>i) << 2;
    const rest = count - i;
    storeTail(to + at, f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(loadTail(x + at, rest))))), rest);
  }
  return 1;
}

/** Columns of one unit. */
const UNIT: i32 = 512;

/** Tensors: x, weights, y. Units: runs of columns of a token. */
export function expertCombine(): void {
  const numTokens = dim(0, 0);
  const numChoices = dim(0, 1);
  const length = dim(0, 2);
  const rowBytes = (<usize>length) << 2;
  const perToken = (length + UNIT - 1) / UNIT;
  const numUnits = numTokens * perToken;
  for (let unit = takeUnits(1); unit < numUnits; unit = takeUnits(1)) {
    const t = unit / perToken;
    const begin = (unit % perToken) * UNIT;
    const end = min<i32>(length, begin + UNIT);
    const x = addressOf(0) + <usize>(t * numChoices) * rowBytes;
    const weights = addressOf(1) + ((<usize>(t * numChoices)) << 2);
    const y = addressOf(2) + <usize>t * rowBytes;
    for (let i = begin; i < end; i += 4) {
      const at = (<usize>i) << 2;
      let sum = f32x4.splat(0);
      for (let k: usize = 0; k < <usize>numChoices; k++) {
        const from = x + k * rowBytes + at;
        const v = i + 4 <= end ? v128.load(from) : loadTail(from, end - i);
        sum = fma(v128.load32_splat(weights + (k << 2)), v, sum);
      }
      if (i + 4 <= end) v128.store(y + at, sum);
      else storeTail(y + at, sum, end - i);
    }
  }
}
