/**
 * Gemma (arXiv:2403.08295): the Llama block with GeGLU, embeddings times `sqrt(hiddenDim)`, a tied output matrix and an
 * explicit head size; split-half rotary pairs. Hugging Face checkpoints store `w - 1` as norm weights.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture } from '../program/architecture.js';
import { embedTokens } from '../program/decoder-program.js';
import { isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { gemmaEmbeddingScale, gemmaHub } from './gemma-settings.js';

export const gemma: Architecture = {
  name: 'gemma',
  models: 'Gemma 1, 1.1, CodeGemma',
  ggufNames: ['gemma'],
  hubNames: ['gemma'],
  hubClass: 'GemmaForCausalLM',
  async describe(file) {
    const config =
      file.format === 'gguf'
        ? await configFromGguf(file, { architecture: 'gemma', norm: 'rms', activation: 'gelu_pytorch_tanh' })
        : configFromHub(file, gemmaHub(file.fields, 'gemma'));
    const usual = { attentionBias: settingBias(file, 'attention_bias'), normsLackOne: true };
    const tensors = usualTensors(file, config, usual);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary],
      embed: (step) => embedTokens(step, gemmaEmbeddingScale(config)),
      norm: rmsNorm,
      layer: preNormLayer({ norm: rmsNorm, attention: () => ({ rotary }) }),
    });
  },
};
