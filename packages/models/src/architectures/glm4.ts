/**
 * GLM-4 of 2025 (arXiv:2406.12793 describes the family): norms before and after attention and FFN,
 * `x += rms(attn(rms(x))); x += rms(ffn(rms(x)))`, biases of q, k and v, a fused GLU matrix, and interleaved rotary pairs
 * over half of each head in both formats.
 */
import { describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, type UsualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { fusedFfnTensors } from './phi3.js';
import { sandwichLayer, sandwichTensors, type SandwichNorms } from './sandwich-blocks.js';

const norms: SandwichNorms = [
  ['attn_norm', 'input_layernorm'],
  ['post_attention_norm', 'post_self_attn_layernorm'],
  ['ffn_norm', 'post_attention_layernorm'],
  ['post_ffw_norm', 'post_mlp_layernorm'],
];

export const glm4: Architecture = {
  name: 'glm4',
  models: 'GLM-4 0414 (9B, 32B), GLM-Z1',
  ggufNames: ['glm4'],
  hubNames: ['glm4'],
  hubClass: 'Glm4ForCausalLM',
  preTokenizer: 'glm4',
  async describe(file) {
    const config = await configOf(file);
    const isBiased = file.format === 'safetensors' && file.fields.boolean('attention_bias', true);
    const usual: UsualTensors = { attentionBias: isBiased ? 'required' : 'optional', outputBias: 'none' };
    const tensors = sandwichTensors(file, config, usual, norms, (layer) => fusedFfnTensors(file, config, layer));
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = sandwichLayer(() => ({ rotary }));
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

function configOf(file: ModelFile): RotaryDecoderConfig | Promise<RotaryDecoderConfig> {
  if (file.format === 'gguf') {
    return configFromGguf(file, { architecture: 'glm4', norm: 'rms', layout: 'neighbors' });
  }
  return configFromHub(file, {
    architecture: 'glm4',
    epsilon: ['rms_norm_eps', 1.5625e-7],
    headDim: 128,
    numKvHeads: 2,
    contextLength: 131072,
    rope: { share: 0.5, layout: 'neighbors' },
  });
}
