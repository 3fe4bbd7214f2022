import type { Rng } from '@winnow/tensor';

/** A random order of the numbers below `count`. */
export function shuffled(count: number, rng: Rng): Int32Array {
  const order = Int32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const other = rng.nextInt(i + 1);
    const swapped = order[i];
    order[i] = order[other];
    order[other] = swapped;
  }
  return order;
}
