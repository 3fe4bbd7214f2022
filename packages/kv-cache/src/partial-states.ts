/**
 * Partial states of an online softmax, `PartialStates` of @winnow/ops: how they begin, merge and end. The merge is that of
 * `mergeState` there, bit for bit; it is here as well because the one there brings every op into a bundle.
 */
import type { PartialStates } from '@winnow/ops';

/** Empty states for `numHeads` query heads. */
export function createStates(numHeads: number, valueDim: number): PartialStates {
  return {
    m: new Float32Array(numHeads).fill(-Infinity),
    l: new Float32Array(numHeads),
    o: new Float32Array(numHeads * valueDim),
  };
}

/** Adds row `sourceRow` of `source` to row `row` of `target`. */
export function mergeStates(
  target: PartialStates,
  row: number,
  source: PartialStates,
  sourceRow: number,
  valueDim: number,
): void {
  const sourceMax = source.m[sourceRow];
  if (sourceMax === -Infinity) return;
  const max = Math.max(target.m[row], sourceMax);
  const targetScale = target.m[row] === -Infinity ? 0 : Math.exp(target.m[row] - max);
  const sourceScale = Math.exp(sourceMax - max);
  target.m[row] = max;
  target.l[row] = target.l[row] * targetScale + source.l[sourceRow] * sourceScale;
  for (let i = 0, a = row * valueDim, b = sourceRow * valueDim; i < valueDim; i++) {
    target.o[a + i] = target.o[a + i] * targetScale + source.o[b + i] * sourceScale;
  }
}

/** Attention output `o / l` `[N, D]`, zeros where no key was seen. */
export function finishStates({ l, o }: PartialStates): Float32Array {
  const valueDim = o.length / l.length;
  return o.map((value, i) => {
    const denominator = l[Math.floor(i / valueDim)];
    return denominator === 0 ? 0 : value / denominator;
  });
}
