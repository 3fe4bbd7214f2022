/** The block of Gemma 2 and 3 and of GLM-4: norms before and after attention and FFN. */
import {
  add,
  attentionBlock,
  gatedFeedForward,
  rmsNorm,
  type DecoderDesign,
  type PreNormBlock,
} from '../blocks/decoder-blocks.js';
import type { WeightRequest } from '../file/weights.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';
import { attentionTensors, gatedFfnTensors, outerTensors, usualNorm, type UsualTensors } from '../program/tensors.js';

/** `x += rms(attn(rms(x))); x += rms(ffn(rms(x)))`. */
export function sandwichLayer(attention: PreNormBlock['attention']): DecoderDesign['layer'] {
  return (step, layer, input) => {
    const at = `blk.${layer}`;
    const attended = attentionBlock(step, layer, rmsNorm(step, `${at}.attn_norm`, input), attention(layer, step));
    const x = add(step, input, rmsNorm(step, `${at}.post_attention_norm`, attended));
    const fed = gatedFeedForward(step, layer, rmsNorm(step, `${at}.ffn_norm`, x));
    return add(step, x, rmsNorm(step, `${at}.post_ffw_norm`, fed));
  };
}

/** Names of the four norms in order of use: in programs and GGUF files, and in Hugging Face layers. */
export type SandwichNorms = readonly (readonly [own: string, hub: string])[];

/** Here `post_attention_layernorm` follows the attention; in other architectures it precedes the FFN. */
export const gemmaNorms: SandwichNorms = [
  ['attn_norm', 'input_layernorm'],
  ['post_attention_norm', 'post_attention_layernorm'],
  ['ffn_norm', 'pre_feedforward_layernorm'],
  ['post_ffw_norm', 'post_feedforward_layernorm'],
];

/** @param ffnTensors tensors of the FFN of a layer; default: those of a GLU FFN */
export function* sandwichTensors(
  file: ModelFile,
  config: DecoderConfig,
  usual: UsualTensors,
  norms: SandwichNorms,
  ffnTensors = (layer: number): Iterable<WeightRequest> => gatedFfnTensors(file, config, layer, usual),
): Generator<WeightRequest> {
  yield* outerTensors(file, config, usual);
  for (let layer = 0; layer < config.numLayers; layer++) {
    for (const [own, hub] of norms) {
      yield* usualNorm(file, [`blk.${layer}.${own}`, `model.layers.${layer}.${hub}`], config.hiddenDim, usual);
    }
    yield* attentionTensors(file, config, layer, usual);
    yield* ffnTensors(layer);
  }
}
