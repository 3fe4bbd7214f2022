import type { Rng } from '@winnow/tensor';

/** Normal random values. */
export function gaussians(rng: Rng, count: number): Float32Array {
  return Float32Array.from({ length: count }, () => rng.nextGaussian());
}
