/**
 * The Llama family: Llama 1 to 3, Mistral, TinyLlama, SmolLM. Pre-norm blocks of grouped-query attention with RoPE and
 * a SwiGLU FFN: `x += attn(rms(x)); x += down(act(gate(rms(x))) * up(rms(x)))`.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { hasExperts, mixtral } from './mixtral.js';

export const llama: Architecture = {
  name: 'llama',
  models: 'Llama 1, 2, 3, 3.1, 3.2; Mistral 7B; TinyLlama; SmolLM',
  limits: [
    '`dynamic` RoPE (Hugging Face folders only): the length of the prompt sets the base for all its tokens, and the length so far ' +
      'sets it for each generated token. Cached keys keep their rotation, as in Transformers. ' +
      'The context is limited to the trained one times the factor.',
  ],
  ggufNames: ['llama'],
  hubNames: ['llama', 'mistral'],
  hubClass: 'LlamaForCausalLM',
  describe: (file) => (hasExperts(file) ? mixtral.describe(file) : describeLlama(file)),
};

/** @param imageTokenId the token that stands for a row of an image. Default: the model takes no images */
export async function describeLlama(file: ModelFile, imageTokenId?: number): Promise<ModelDescription> {
  const images = imageTokenId === undefined ? {} : { imageTokenId };
  const config = { ...(await configOf(file)), neighborsInGguf: true, ...images } as const;
  const biases = {
    attentionBias: settingBias(file, 'attention_bias'),
    ffnBias: settingBias(file, 'mlp_bias'),
  };
  const tensors = usualTensors(file, config, biases);
  const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
  const rotary = rotaryOf(file.fields, config.rope);
  const layer = preNormLayer({ norm: rmsNorm, attention: (index) => ({ rotary, window: windowOf(config, index) }) });
  return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
}

async function configOf(file: ModelFile): Promise<RotaryDecoderConfig> {
  const { format, fields } = file;
  if (format === 'gguf') {
    const config = await configFromGguf(file, { architecture: 'llama', norm: 'rms', layout: 'neighbors' });
    return { ...config, slidingWindow: fields.integer('llama.attention.sliding_window', 0) };
  }
  const config = configFromHub(file, { architecture: 'llama' });
  const hasWindow = fields.string('model_type') === 'mistral' && !fields.isNull('sliding_window');
  const slidingWindow = hasWindow ? fields.integer('sliding_window', 4096) : 0;
  return { ...config, slidingWindow };
}
