/**
 * EmbeddingGemma (arXiv:2509.20354): Gemma 3 with bidirectional attention (windowed layers see half the window to each side),
 * mean pooling of the normalized rows, and two dense layers without biases after pooling.
 */
import { rmsNorm } from '../blocks/decoder-blocks.js';
import { describeEncoder } from '../blocks/encoder-blocks.js';
import { collectWeights } from '../file/weights.js';
import type { EncoderArchitecture } from '../program/architecture.js';
import { embedTokens } from '../program/decoder-program.js';
import { isDerivedTensor } from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import { denseTensors } from '../settings/encoder-settings.js';
import { gemmaEmbeddingScale } from './gemma-settings.js';
import { gemma3Layers, gemma3Settings, gemma3Tensors } from './gemma3.js';

const architecture = 'gemma-embedding';

export const gemmaEmbedding: EncoderArchitecture = {
  name: architecture,
  models: 'EmbeddingGemma',
  limits: ['Dense layers after pooling must not have biases, and the last one must have the hidden size.'],
  isEncoder: true,
  ggufNames: [architecture],
  hubNames: ['gemma3_text'],
  hubClass: 'Gemma3TextModel',
  accepts: ({ format, fields }) => format === 'gguf' || fields.boolean('use_bidirectional_attention', false),
  async describe(file) {
    if (file.format === 'gguf') refuseSettings(file.fields, { [`${architecture}.attention.causal`]: [false] });
    const settings = await gemma3Settings(file, architecture);
    const config = { ...settings.config, isEncoder: true, isTied: true } as const;
    const tensors = [...gemma3Tensors(file, config), ...denseTensors(file, config)];
    const { rotaries, layer } = gemma3Layers(file, { ...settings, config });
    return describeEncoder({
      config,
      weights: collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config)),
      rotaries,
      embed: (step) => embedTokens(step, gemmaEmbeddingScale(config)),
      layer,
      norm: (step, x) => rmsNorm(step, 'output_norm', x),
    });
  },
};
