/**
 * Qwen 3 (arXiv:2505.09388): the Llama block with a per-head RMS norm of q and k before RoPE, whose weights all heads
 * share, and an explicit head size; split-half rotary pairs.
 */
import {
  describeDecoder,
  preNormLayer,
  rmsNorm,
  type DecoderDesign,
  type PreNormBlock,
} from '../blocks/decoder-blocks.js';
import { rotaryOf, type Rotary } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { addImageRows } from '../program/decoder-program.js';
import { headNormTensors, isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import type { HubRopeDefaults } from '../settings/rope-settings.js';
import { withQwenWindow } from './qwen2.js';

export const qwen3: Architecture = {
  name: 'qwen3',
  models: 'Qwen 3 (dense); rerankers: Qwen3-Reranker',
  limits: [
    'A window is applied from config.json (`use_sliding_window`); llama.cpp reads no key for it from GGUF files.',
  ],
  ggufNames: ['qwen3'],
  hubNames: ['qwen3'],
  hubClass: 'Qwen3ForCausalLM',
  preTokenizer: 'qwen2',
  describe: (file) => describeQwen3(file),
};

/** How the decoders of Qwen3-VL differ. */
export interface Qwen3Images {
  /** Default: the model takes no images, and all pairs are rotated by one position. */
  readonly imageTokenId?: number | undefined;
  /** Number of first layers that add further rows of images to their result (DeepStack). */
  readonly numDeep: number;
  readonly rope: HubRopeDefaults;
}

export async function describeQwen3(file: ModelFile, images?: Qwen3Images): Promise<ModelDescription> {
  const common = images === undefined ? { architecture: 'qwen3' } : { architecture: 'qwen3vl', rope: images.rope };
  const text =
    file.format === 'gguf'
      ? await configFromGguf(file, { ...common, norm: 'rms' })
      : withQwenWindow(file, configFromHub(file, { ...common, headDim: 128, contextLength: 32768 }));
  const config = withImages(text, images);
  const weights = collectWeights(file.store, requests(file, config), (name) => isDerivedTensor(name, config));
  const rotary = rotaryOf(file.fields, config.rope);
  const layer = qwen3Layer(config, rotary);
  return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
}

/** Adds the image settings of a model that takes images. */
export function withImages<C extends RotaryDecoderConfig>(config: C, images: Qwen3Images | undefined): C {
  const { imageTokenId, numDeep = 0 } = images ?? {};
  return imageTokenId === undefined ? config : { ...config, imageTokenId, imageDim: (1 + numDeep) * config.hiddenDim };
}

/** The layers, the first of which add further rows of images. @param feedForward default: a GLU */
export function qwen3Layer(
  config: RotaryDecoderConfig,
  rotary: Rotary,
  feedForward?: PreNormBlock['feedForward'],
): DecoderDesign['layer'] {
  const { hiddenDim, imageDim = hiddenDim } = config;
  const numDeep = imageDim / hiddenDim - 1;
  const block = preNormLayer({
    norm: rmsNorm,
    attention: (index, step) => ({
      rotary,
      window: windowOf(config, index),
      normalizeHeads: (name, heads) => rmsNorm(step, `${name}_norm`, heads),
    }),
    ...(feedForward && { feedForward }),
  });
  return (step, index, x) => {
    const y = block(step, index, x);
    return index < numDeep ? addImageRows(step, y, 1 + index) : y;
  };
}

function* requests(file: ModelFile, config: RotaryDecoderConfig): Generator<WeightRequest> {
  yield* usualTensors(file, config, { attentionBias: settingBias(file, 'attention_bias') });
  for (let layer = 0; layer < config.numLayers; layer++) yield* headNormTensors(file, config, layer, {});
}
