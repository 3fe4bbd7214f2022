/**
 * Gemma 3 (arXiv:2503.19786), text and images: sandwich norms, an RMS norm of each head of q and k before RoPE, and five local
 * layers to each global one. Local layers have a separate RoPE base and no scaling.
 */
import { describeDecoder, rmsNorm, type DecoderDesign } from '../blocks/decoder-blocks.js';
import { localRotaries } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig, type RotaryDecoderConfig } from '../program/config.js';
import { embedTokens } from '../program/decoder-program.js';
import { headNormTensors, isDerivedTensor, settingBias } from '../program/tensors.js';
import { capOf, refuseSettings } from '../settings/config-checks.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { hasRopeByLayerType, ropeFromHub } from '../settings/rope-settings.js';
import { textPartOf, visionLanguageParts } from '../settings/text-part.js';
import {
  gemmaEmbeddingScale,
  gemmaGgufScale,
  gemmaHub,
  gemmaHubScale,
  windowedByPeriod,
  withGgufWindow,
} from './gemma-settings.js';
import { describeGemmaVision, hasGemmaVision } from './gemma3-vision.js';
import { gemmaNorms, sandwichLayer, sandwichTensors } from './sandwich-blocks.js';
import { describeWithImages } from './with-images.js';

/** Number of layers of the 27B model, which has a different attention scale. */
const depthOf27B = 62;
const usualPeriod = 6;

export interface Gemma3Settings {
  readonly config: RotaryDecoderConfig;
  /** RoPE base of the layers with a sliding window. */
  readonly localRope: RopeConfig;
  readonly scale: number;
  readonly finalCap: number;
}

export const gemma3: Architecture = {
  name: 'gemma3',
  models: 'Gemma 3 (text and images)',
  limits: [
    'GGUF files have no key for the attention scale: a model with 62 layers gets the scale of the 27B model.',
    'Images: a Hugging Face folder, or a GGUF file and an `mmproj` file.',
    'Attention within images is dense under every attention policy.',
    'Images are not cropped into several parts (`do_pan_and_scan`).',
  ],
  ggufNames: ['gemma3'],
  hubNames: ['gemma3_text', 'gemma3'],
  hubClass: 'Gemma3ForCausalLM',
  async describe(file) {
    if (!hasGemmaVision(file)) return describeGemma3(textPartOf(file, visionLanguageParts));
    const { fields } = file;
    const token = fields.integer(fields.has('image_token_id') ? 'image_token_id' : 'image_token_index', 262144);
    const decoders = { gemma3_text: describeGemma3 };
    return describeWithImages(file, visionLanguageParts, token, describeGemmaVision, decoders);
  },
};

/** @param imageTokenId the token that stands for a row of an image. Default: the model takes no images */
export async function describeGemma3(file: ModelFile, imageTokenId?: number): Promise<ModelDescription> {
  refuseSettings(file.fields, { 'gemma3.attention.causal': [true], use_bidirectional_attention: [false] });
  const settings = await gemma3Settings(file, 'gemma3');
  const { finalCap } = settings;
  const config = { ...settings.config, ...(imageTokenId === undefined ? {} : { imageTokenId }) };
  const weights = collectWeights(file.store, gemma3Tensors(file, config), (name) => isDerivedTensor(name, config));
  const { rotaries, layer } = gemma3Layers(file, settings);
  return describeDecoder({
    config,
    weights,
    rotaries,
    embed: (step) => embedTokens(step, gemmaEmbeddingScale(config)),
    norm: rmsNorm,
    layer,
    softCap: finalCap,
  });
}

/** The layers, for causal and for bidirectional programs. */
export function gemma3Layers(
  { fields }: ModelFile,
  { config, localRope, scale }: Gemma3Settings,
): Required<Pick<DecoderDesign, 'rotaries' | 'layer'>> {
  const { rotaries, rotaryOfLayer } = localRotaries(fields, config, localRope);
  const layer = sandwichLayer((index, step) => ({
    rotary: rotaryOfLayer(index),
    scale,
    window: windowOf(config, index),
    normalizeHeads: (name, heads) => rmsNorm(step, `${name}_norm`, heads),
  }));
  return { rotaries, layer };
}

/** Does not check whether attention is bidirectional. @param architecture prefix of the GGUF keys */
export async function gemma3Settings(file: ModelFile, architecture: string): Promise<Gemma3Settings> {
  return file.format === 'gguf' ? ofGguf(file, architecture) : ofHub(file, architecture);
}

async function ofGguf(file: ModelFile, architecture: string): Promise<Gemma3Settings> {
  const { fields } = file;
  const base = await configFromGguf(file, {
    architecture,
    norm: 'rms',
    activation: 'gelu_pytorch_tanh',
    known: ['final_logit_softcapping', 'attention.causal'],
  });
  // without a sliding window no layer is local
  const config = withGgufWindow(fields, base, { window: 0, period: usualPeriod });
  const { layout, rotaryDim } = config.rope;
  return {
    config,
    localRope: { layout, rotaryDim, base: fields.number(`${architecture}.rope.freq_base_swa`, 10000) },
    scale: gemmaGgufScale(config, depthOf27B),
    finalCap: capOf(fields, `${architecture}.final_logit_softcapping`, 0),
  };
}

function ofHub(file: ModelFile, architecture: string): Gemma3Settings {
  const { fields } = file;
  const rope = { base: 1_000_000, layerType: 'full_attention' };
  const config = configFromHub(file, {
    ...gemmaHub(fields, architecture),
    numHeads: 8,
    numKvHeads: 4,
    contextLength: 131072,
    known: ['final_logit_softcapping', 'use_bidirectional_attention'],
    rope,
  });
  const period = fields.count('sliding_window_pattern', usualPeriod);
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? windowedByPeriod(config, period);
  const { layout, rotaryDim } = config.rope;
  const localBase = fields.number('rope_local_base_freq', 10000);
  return {
    config: { ...config, slidingWindow: fields.count('sliding_window', 4096), windowedLayers },
    localRope: hasRopeByLayerType(fields, 'sliding_attention')
      ? ropeFromHub(fields, config.headDim, { base: localBase, layerType: 'sliding_attention' })
      : { layout, rotaryDim, base: localBase },
    scale: gemmaHubScale(fields),
    finalCap: capOf(fields, 'final_logit_softcapping', 0),
  };
}

export function* gemma3Tensors(file: ModelFile, config: RotaryDecoderConfig): Generator<WeightRequest> {
  const bias = settingBias(file, 'attention_bias');
  yield* sandwichTensors(file, config, { attentionBias: bias, normsLackOne: true }, gemmaNorms);
  for (let layer = 0; layer < config.numLayers; layer++) {
    yield* headNormTensors(file, config, layer, { normsLackOne: true });
  }
}
