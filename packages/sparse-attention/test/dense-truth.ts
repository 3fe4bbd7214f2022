/** An independent float64 formulation of attention over a given set of keys. */
import { createRng, Tensor3 } from '@winnow/tensor';

export function randomTensor(seed: number, seqLen: number, numHeads: number, headDim: number, size = 1): Tensor3 {
  const rng = createRng(seed);
  const length = seqLen * numHeads * headDim;
  return Tensor3.from(
    Array.from({ length }, () => size * rng.nextGaussian()),
    seqLen,
    numHeads,
    headDim,
  );
}

export interface WeightedKey {
  readonly key: ArrayLike<number>;
  readonly value: ArrayLike<number>;
  readonly bias?: number;
}

/** softmax(scale q k + bias) v by definition, with the largest |value| for error bounds. */
export function truth(q: ArrayLike<number>, keys: readonly WeightedKey[], scale: number): number[] {
  const logits = keys.map(({ key, bias = 0 }) => {
    let sum = bias;
    for (let i = 0; i < q.length; i++) sum += q[i] * key[i] * scale;
    return sum;
  });
  const max = Math.max(...logits);
  const weights = logits.map((logit) => Math.exp(logit - max));
  const total = weights.reduce((a, b) => a + b, 0);
  return Array.from(keys[0].value, (_, d) =>
    keys.reduce((sum, { value }, i) => sum + (weights[i] / total) * value[d], 0),
  );
}

/** Dense attention of every query, causal or bidirectional. */
export function denseTruth(
  q: Tensor3,
  k: Tensor3,
  v: Tensor3,
  causal = true,
  scale: number = 1 / Math.sqrt(q.headDim),
): Tensor3 {
  const out = Tensor3.create(q.seqLen, q.numHeads, v.headDim);
  const group = q.numHeads / k.numHeads;
  const offset = k.seqLen - q.seqLen;
  for (let t = 0; t < q.seqLen; t++) {
    for (let h = 0; h < q.numHeads; h++) {
      const kvHead = Math.floor(h / group);
      const end = causal ? offset + t + 1 : k.seqLen;
      const keys = Array.from({ length: end }, (_, j) => ({ key: k.row(j, kvHead), value: v.row(j, kvHead) }));
      out.row(t, h).set(truth(q.row(t, h), keys, scale));
    }
  }
  return out;
}

/** Largest absolute difference; NaN if any value is NaN. */
export function largestDifference(a: Tensor3, b: Tensor3): number {
  let largest = 0;
  for (let i = 0; i < a.data.length; i++) {
    const difference = Math.abs(a.data[i] - b.data[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

/**
 * Bound for the difference of two f64 evaluations of one average after rounding to f32: each output is a convex mean of
 * values, so rounding once costs at most half an ulp of the largest value on each side; the f64 part is far below.
 */
export function roundingBound(v: Tensor3): number {
  return 1.01 * 2 ** -23 * v.data.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
}

/**
 * Bound for the difference of f32 sums from f64: a logit of `d` products is off by at most `d 2^-24 |q||k| / sqrt(d)`, a weight by
 * twice that and a few roundings of exp, an output by the weights' errors times the largest value.
 */
export function wasmBound({ q, k, v }: { readonly q: Tensor3; readonly k: Tensor3; readonly v: Tensor3 }): number {
  const max = ({ data }: Tensor3): number => data.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
  const logit = q.headDim ** 1.5 * 2 ** -24 * max(q) * max(k);
  return (2 * logit + (8 + k.seqLen) * 2 ** -24) * max(v);
}
