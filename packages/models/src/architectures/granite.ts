/**
 * Granite 3 (arXiv:2408.13359 for its scaling rules): the Llama block with four factors, `x = e * embedding`,
 * `x += r * attn(rms(x)); x += r * ffn(rms(x))`, attention scale `a`, logits divided by `l`. GGUF files use interleaved
 * rotary pairs.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { feedForwardOf } from '../blocks/experts.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import type { RotaryDecoderConfig } from '../program/config.js';
import { embedTokens } from '../program/decoder-program.js';
import { isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { graniteFactors, graniteGgufKeys, graniteHubNames } from './granite-settings.js';

export const granite: Architecture = {
  name: 'granite',
  models: 'Granite 3.0 to 3.3 (dense)',
  ggufNames: ['granite'],
  hubNames: ['granite'],
  hubClass: 'GraniteForCausalLM',
  preTokenizer: 'refact',
  async describe(file) {
    const config = await configOf(file);
    const biases = {
      attentionBias: settingBias(file, 'attention_bias'),
      ffnBias: settingBias(file, 'mlp_bias'),
    };
    return describeGranite(file, config, usualTensors(file, config, biases));
  },
};

/** Describes a Granite decoder, with or without experts. */
export function describeGranite(
  file: ModelFile,
  config: RotaryDecoderConfig,
  tensors: Iterable<WeightRequest>,
): ModelDescription {
  const { embedding, attention: scale, residual, logits } = graniteFactors(file, config);
  const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
  const rotary = rotaryOf(file.fields, config.rope);
  const layer = preNormLayer({
    norm: rmsNorm,
    attention: () => ({ rotary, scale }),
    feedForward: feedForwardOf(config.experts),
    residualScale: residual,
  });
  return describeDecoder({
    config: { ...config, neighborsInGguf: true },
    weights,
    rotaries: [rotary],
    embed: (step) => embedTokens(step, embedding),
    norm: rmsNorm,
    layer,
    logitScale: 1 / logits,
  });
}

function configOf(file: ModelFile): RotaryDecoderConfig | Promise<RotaryDecoderConfig> {
  return file.format === 'gguf'
    ? configFromGguf(file, { architecture: 'granite', norm: 'rms', layout: 'neighbors', known: graniteGgufKeys })
    : configFromHub(file, { architecture: 'granite', known: graniteHubNames });
}
