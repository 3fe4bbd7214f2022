/** Register transposes. */
import { highTwos, highWords, lowTwos, lowWords } from './interleave';

/** Stores the columns of four rows of f32 at `to`, `to + second`, `to + third` and `to + second + third`. */
/* @inline */ export function storeColumns(
  a: v128,
  b: v128,
  c: v128,
  d: v128,
  to: usize,
  second: usize,
  third: usize,
): void {
  const ab = lowWords(a, b);
  const cd = lowWords(c, d);
  v128.store(to, lowTwos(ab, cd));
  v128.store(to + second, highTwos(ab, cd));
  const ef = highWords(a, b);
  const gh = highWords(c, d);
  v128.store(to + third, lowTwos(ef, gh));
  v128.store(to + second + third, highTwos(ef, gh));
}
