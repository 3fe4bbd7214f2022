/** Top-k routing of tokens to experts. Work items: tokens. */
import {
  GROUP_SCORE_BEST_TWO,
  SCORE_SIGMOID,
  attributes,
  bias,
  ids,
  logits,
  weights,
} from '../operands/expert-route.generated';
import { floatAt, intAt, setFloat } from '../runtime/arrays';
import { localScratch } from '../runtime/record';
import { nextItems } from '../runtime/threads';
import { loadTail, storeTail } from '../simd/tail';
import { maxOf } from '../simd/exp-sum';
import { exp4 } from '../simd/vector';
import { selectTop } from './top-k';

export function expertRoute(): void {
  const numExperts = logits.numExperts;
  const k = attributes.k;
  const isSigmoid = attributes.score === SCORE_SIGMOID;
  const scale = <f64>attributes.scale;
  const rowBytes = (<usize>numExperts) << 2;
  const scores = localScratch();
  const ranks = scores + ((rowBytes + 15) & ~15);
  for (let t = nextItems(1); t < logits.numTokens; t = nextItems(1)) {
    const row = logits.rowAt(t);
    const selected = ids.rowAt(t);
    const total = isSigmoid ? sigmoids(row, scores, numExperts) : exponentials(row, scores, numExperts);
    if (bias.isPresent || attributes.numGroups > 1) {
      for (let i = 0; i < numExperts; i++) {
        const own: f64 = bias.isPresent ? <f64>floatAt(bias.address, i) : 0;
        setFloat(ranks, i, <f32>(<f64>floatAt(scores, i) / total + own));
      }
      if (attributes.numGroups > 1) excludeGroups(ranks, ranks + rowBytes, numExperts / attributes.numGroups);
      selectTop(ranks, numExperts, selected, k);
    } else selectTop(row, numExperts, selected, k);
    let sum: f64 = 0;
    for (let i = 0; i < k; i++) sum += <f64>floatAt(scores, intAt(selected, i));
    const factor: f64 = !attributes.normalize ? scale / total : sum === 0 ? 0 : scale / sum;
    for (let i = 0; i < k; i++) {
      setFloat(weights.rowAt(t), i, <f32>(<f64>floatAt(scores, intAt(selected, i)) * factor));
    }
  }
}

/** Stores `exp(x - max)` and returns the sum. */
function exponentials(x: usize, to: usize, count: i32): f64 {
  const shift = f32x4.splat(maxOf(x, count));
  let total: f64 = 0;
  for (let i = 0; i < count; i += 4) {
    const at = (<usize>i) << 2;
    const rest = count - i;
    storeTail(to + at, exp4(f32x4.sub(loadTail(x + at, rest), shift)), rest);
    for (let lane = i; lane < min<i32>(i + 4, count); lane++) total += <f64>floatAt(to, lane);
  }
  return total;
}

/** Stores the sigmoids and returns 1, because they are not normalized by their sum. */
function sigmoids(x: usize, to: usize, count: i32): f64 {
  const one = f32x4.splat(1);
  for (let i = 0; i < count; i += 4) {
    const at = (<usize>i) << 2;
    const rest = count - i;
    storeTail(to + at, f32x4.div(one, f32x4.add(one, exp4(f32x4.neg(loadTail(x + at, rest))))), rest);
  }
  return 1;
}

/** Sets the ranks of all experts outside of the best groups to -Infinity; `groups` has room for ranks and order of groups. */
function excludeGroups(ranks: usize, groups: usize, size: i32): void {
  const numGroups = attributes.numGroups;
  for (let group = 0; group < numGroups; group++) {
    let first: f32 = -Infinity;
    let second: f32 = -Infinity;
    for (let i = group * size; i < (group + 1) * size; i++) {
      const rank = floatAt(ranks, i);
      if (rank > first) {
        second = first;
        first = rank;
      } else if (rank > second) second = rank;
    }
    setFloat(groups, group, attributes.groupScore === GROUP_SCORE_BEST_TWO ? first + second : first);
  }
  const order = groups + ((<usize>numGroups) << 2);
  selectTop(groups, numGroups, order, numGroups);
  for (let i = attributes.numChosenGroups * size; i < numGroups * size; i++) {
    setFloat(ranks, intAt(order, i / size) * size + (i % size), -Infinity);
  }
}

/** Scores and ranks of the experts, then ranks and order of the groups. */
export function expertRouteLocalBytes(): u64 {
  return ((<u64>logits.numExperts + attributes.numGroups) << 3) + 32;
}
