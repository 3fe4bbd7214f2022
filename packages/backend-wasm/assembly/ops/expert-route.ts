/** Work items: tokens. */
import { SCORE_SIGMOID, attributes, bias, ids, logits, weights } from '../operands/expert-route.generated';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { loadTail, storeTail } from '../simd/tail';
import { exp4 } from '../simd/vector';
import { selectTop } from './top-k';

export function expertRoute(): void {
  const numTokens = logits.numTokens;
  const numExperts = logits.numExperts;
  const k = attributes.k;
  const isSigmoid = attributes.score === SCORE_SIGMOID;
  const normalizes = attributes.normalize;
  const scale = <f64>attributes.scale;
  const rowBytes = (<usize>numExperts) << 2;
  const scores = localScratch();
  const ranks = scores + ((rowBytes + 15) & ~15);
  for (let t = nextItems(1); t < numTokens; t = nextItems(1)) {
    const row = logits.address + <usize>t * rowBytes;
    const chosen = ids.address + ((<usize>(t * k)) << 2);
    const factors = weights.address + ((<usize>(t * k)) << 2);
    const total = isSigmoid ? sigmoids(row, scores, numExperts) : exponentials(row, scores, numExperts);
    if (bias.isPresent) {
      for (let i: usize = 0; i < rowBytes; i += 4) {
        const p = <f64>load<f32>(scores + i) / total;
        store<f32>(ranks + i, <f32>(p + <f64>load<f32>(bias.address + i)));
      }
      selectTop(ranks, numExperts, chosen, k);
    } else selectTop(row, numExperts, chosen, k);
    let sum: f64 = 0;
    for (let i: usize = 0; i < <usize>k; i++) sum += <f64>score(scores, chosen, i);
    const factor: f64 = !normalizes ? scale / total : sum === 0 ? 0 : scale / sum;
    for (let i: usize = 0; i < <usize>k; i++) {
      store<f32>(factors + (i << 2), <f32>(<f64>score(scores, chosen, i) * factor));
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

/** Scores and ranks of the experts. */
export function expertRouteLocalBytes(): u64 {
  return ((<u64>logits.numExperts) << 3) + 32;
}
