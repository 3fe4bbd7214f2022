/**
 * StarCoder 2 (arXiv:2402.19173): pre-norm blocks with LayerNorm, grouped-query attention with split-half rotary pairs,
 * `x += attn(ln(x)); x += down(gelu(up(ln(x))))`, biases everywhere.
 */
import { describeDecoder, layerNorm, plainFeedForward, preNormLayer } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, plainFfnTensors, usualTensors, type UsualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

export const starcoder2: Architecture = {
  name: 'starcoder2',
  models: 'StarCoder 2',
  limits: ['A window is applied from config.json; llama.cpp reads no key for it from GGUF files.'],
  ggufNames: ['starcoder2'],
  hubNames: ['starcoder2'],
  hubClass: 'Starcoder2ForCausalLM',
  preTokenizer: 'starcoder',
  async describe(file) {
    const config = await configOf(file);
    const weights = collectWeights(file.store, requests(file, config), (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: layerNorm,
      attention: (index) => ({ rotary, window: windowOf(config, index) }),
      feedForward: plainFeedForward,
    });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: layerNorm, layer });
  },
};

async function configOf(file: ModelFile): Promise<RotaryDecoderConfig> {
  const { format, fields } = file;
  if (format === 'gguf') {
    return configFromGguf(file, { architecture: 'starcoder2', norm: 'layer', activation: 'gelu_pytorch_tanh' });
  }
  const config = configFromHub(file, {
    architecture: 'starcoder2',
    epsilon: ['norm_epsilon', 1e-5],
    activation: ['hidden_act', 'gelu_pytorch_tanh'],
    contextLength: 4096,
    numKvHeads: 2,
    isTied: true,
  });
  const mlp = fields.string('mlp_type', 'default');
  if (mlp !== 'default') throw fields.refusal('mlp_type', 'default', mlp);
  const norm = fields.string('norm_type', 'layer_norm');
  if (norm !== 'layer_norm') throw fields.refusal('norm_type', 'layer_norm', norm);
  return { ...config, slidingWindow: fields.integer('sliding_window', 0) };
}

function requests(file: ModelFile, config: RotaryDecoderConfig): Generator<WeightRequest> {
  const { format, fields } = file;
  const isBiased = format === 'safetensors' && fields.boolean('use_bias', true);
  const bias = isBiased ? 'required' : 'optional';
  const usual: UsualTensors = { attentionBias: bias, ffnBias: bias, normBias: 'required' };
  return usualTensors(file, config, usual, (layer) =>
    plainFfnTensors(file, config, layer, ['mlp.c_fc', 'mlp.c_proj'], usual),
  );
}
