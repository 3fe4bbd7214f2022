import type { NeuronRows } from '@winnow/sparse-inference';
import type { DType } from '@winnow/tensor';

/**
 * Rows of a neuron are interleaved, as `addTransposedMatrices` of @winnow/models does, in gated blocks of one dtype
 * without biases before the activation.
 */
export function neuronRows(
  { gate, up, down }: { readonly gate: DType | undefined; readonly up: DType; readonly down: DType },
  hasBias: boolean,
): NeuronRows {
  const dtypes = gate === undefined ? [up, down] : [gate, up, down];
  return { dtypes, areInterleaved: gate !== undefined && !hasBias && dtypes.every((dtype) => dtype === up) };
}
