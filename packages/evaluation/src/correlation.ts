/** Correlation coefficients of two lists of the same length. */

/** Pearson's correlation: the cosine of the deviations from the means. 0 when one list is constant. */
export function pearson(a: readonly number[], b: readonly number[]): number {
  const [meanA, meanB] = [mean(a), mean(b)];
  let [ab, aa, bb] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    const x = (a[i] as number) - meanA;
    const y = (b[i] as number) - meanB;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa === 0 || bb === 0 ? 0 : ab / Math.sqrt(aa * bb);
}

/** Spearman's rank correlation; ties share the mean of their ranks. */
export function spearman(a: readonly number[], b: readonly number[]): number {
  return pearson(ranks(a), ranks(b));
}

/** Ranks, starting at 1. */
function ranks(values: readonly number[]): number[] {
  const order = Array.from(values.keys()).sort((i, j) => (values[i] as number) - (values[j] as number));
  const result = new Array<number>(values.length).fill(0);
  for (let begin = 0; begin < order.length;) {
    let end = begin + 1;
    while (end < order.length && values[order[end] as number] === values[order[begin] as number]) end++;
    for (let at = begin; at < end; at++) result[order[at] as number] = (begin + 1 + end) / 2;
    begin = end;
  }
  return result;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
