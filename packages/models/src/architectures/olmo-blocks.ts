/** The norm of OLMo models over the whole q and k vectors, across all heads. */
import type { ProgramTensor } from '@winnow/ops';
import { rmsNorm } from '../blocks/decoder-blocks.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { usualNorm } from '../program/tensors.js';

/** Normalizes all heads `[T, N, H]` of a token as one vector; `name` is `blk.LAYER.attn_q` or `blk.LAYER.attn_k`. */
export function normAllHeads(step: DecoderStep, name: string, heads: ProgramTensor): ProgramTensor {
  const [, numHeads, headDim] = heads.shape as [string, number, number];
  const flat = step.b.reshape(heads, ['T', numHeads * headDim]);
  return step.b.reshape(rmsNorm(step, `${name}_norm`, flat), heads.shape);
}

/** The weights of the norms of a layer. */
export function allHeadsNormTensors(
  file: ModelFile,
  { numHeads, numKvHeads, headDim }: DecoderConfig,
  layer: number,
): WeightRequest[] {
  const [own, hub] = [`blk.${layer}`, `model.layers.${layer}.self_attn`];
  return [
    ...usualNorm(file, [`${own}.attn_q_norm`, `${hub}.q_norm`], numHeads * headDim, {}),
    ...usualNorm(file, [`${own}.attn_k_norm`, `${hub}.k_norm`], numKvHeads * headDim, {}),
  ];
}
