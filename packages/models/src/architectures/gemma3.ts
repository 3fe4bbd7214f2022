/**
 * Gemma 3 (arXiv:2503.19786), text: sandwich norms, an RMS norm of each head of q and of k before the rotation, five
 * local layers to each global one. Local layers have a separate RoPE base and no scaling.
 */
import { describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig, type RotaryDecoderConfig } from '../program/config.js';
import { embedTokens, ropeFrequenciesName } from '../program/decoder-program.js';
import { headNormTensors, isDerivedTensor, settingBias, type Bias } from '../program/tensors.js';
import { capOf } from '../settings/config-checks.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { hasRopeByLayerType, ropeFromHub } from '../settings/rope-settings.js';
import { textPartOf } from '../settings/text-part.js';
import {
  gemmaEmbeddingScale,
  gemmaGgufScale,
  gemmaHub,
  gemmaHubScale,
  windowedByPeriod,
  withGgufWindow,
} from './gemma-settings.js';
import { gemmaNorms, sandwichLayer, sandwichTensors } from './sandwich-blocks.js';

/** Number of layers of the 27B model, which has a different attention scale. */
const depthOf27B = 62;
const usualPeriod = 6;

/** Newer and older prefixes of multimodal checkpoints. */
const textPart = {
  renamed: [
    ['model.language_model.', 'model.'],
    ['language_model.', ''],
  ],
  otherParts: ['vision_tower.', 'multi_modal_projector.', 'model.vision_tower.', 'model.multi_modal_projector.'],
} as const;

interface Gemma3Settings {
  readonly config: RotaryDecoderConfig;
  /** RoPE base of the layers with a sliding window. */
  readonly localRope: RopeConfig;
  readonly scale: number;
  readonly finalCap: number;
}

export const gemma3: Architecture = {
  name: 'gemma3',
  models: 'Gemma 3, also the language model of multimodal checkpoints',
  limits: [
    'GGUF files have no key for the attention scale: a model with 62 layers gets the scale of the 27B model.',
    'Only the language model of multimodal checkpoints is read; bidirectional attention is not supported.',
  ],
  ggufNames: ['gemma3'],
  hubNames: ['gemma3_text', 'gemma3'],
  hubClass: 'Gemma3ForCausalLM',
  async describe(checkpoint) {
    const file = textPartOf(checkpoint, textPart);
    const { config, localRope, scale, finalCap } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const tensors = requests(file, config, settingBias(file, 'attention_bias'));
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const localRotary = rotaryOf(file.fields, localRope, `${ropeFrequenciesName}.local`);
    return describeDecoder({
      config,
      weights,
      rotaries: [rotary, localRotary],
      embed: (step) => embedTokens(step, gemmaEmbeddingScale(config)),
      norm: rmsNorm,
      layer: sandwichLayer((layer, step) => ({
        rotary: config.windowedLayers?.[layer] === true ? localRotary : rotary,
        scale,
        window: windowOf(config, layer),
        normalizeHeads: (name, heads) => rmsNorm(step, `${name}_norm`, heads),
      })),
      softCap: finalCap,
    });
  },
};

async function ofGguf(file: ModelFile): Promise<Gemma3Settings> {
  const { fields } = file;
  const base = await configFromGguf(file, {
    architecture: 'gemma3',
    norm: 'rms',
    activation: 'gelu_pytorch_tanh',
    known: ['final_logit_softcapping'],
  });
  // without a sliding window no layer is local
  const config = withGgufWindow(fields, base, { window: 0, period: usualPeriod });
  const { layout, rotaryDim } = config.rope;
  return {
    config,
    localRope: { layout, rotaryDim, base: fields.number('gemma3.rope.freq_base_swa', 10000) },
    scale: gemmaGgufScale(config, depthOf27B),
    finalCap: capOf(fields, 'gemma3.final_logit_softcapping', 0),
  };
}

function ofHub(file: ModelFile): Gemma3Settings {
  const { fields } = file;
  const rope = { base: 1_000_000, layerType: 'full_attention' };
  const config = configFromHub(file, {
    ...gemmaHub(fields, 'gemma3'),
    numHeads: 8,
    numKvHeads: 4,
    contextLength: 131072,
    known: ['final_logit_softcapping'],
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

function* requests(file: ModelFile, config: RotaryDecoderConfig, bias: Bias): Generator<WeightRequest> {
  yield* sandwichTensors(file, config, { attentionBias: bias, normsLackOne: true }, gemmaNorms);
  for (let layer = 0; layer < config.numLayers; layer++) {
    yield* headNormTensors(file, config, layer, { normsLackOne: true });
  }
}
