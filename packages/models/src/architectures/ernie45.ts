/** ERNIE 4.5 (dense): the Llama block with an explicit head size, and interleaved rotary pairs in both formats. */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';

export const ernie45: Architecture = {
  name: 'ernie4_5',
  models: 'ERNIE 4.5 (dense)',
  ggufNames: ['ernie4_5'],
  hubNames: ['ernie4_5'],
  hubClass: 'Ernie4_5ForCausalLM',
  async describe(file) {
    const config = await configOf(file);
    const bias = settingBias(file, 'use_bias');
    const tensors = usualTensors(file, config, { attentionBias: bias, ffnBias: bias });
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({ norm: rmsNorm, attention: () => ({ rotary }) });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

function configOf(file: ModelFile): RotaryDecoderConfig | Promise<RotaryDecoderConfig> {
  if (file.format === 'gguf') {
    return configFromGguf(file, { architecture: 'ernie4_5', norm: 'rms', layout: 'neighbors' });
  }
  return configFromHub(file, {
    architecture: 'ernie4_5',
    epsilon: ['rms_norm_eps', 1e-5],
    headDim: 128,
    numHeads: 16,
    numKvHeads: 2,
    contextLength: 131072,
    isTied: true,
    rope: { base: 500_000, layout: 'neighbors' },
  });
}
