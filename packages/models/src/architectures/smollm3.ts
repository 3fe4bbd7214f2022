/**
 * SmolLM 3: the Llama block, where every fourth layer has no rotary positions (arXiv:2501.18795). GGUF files use
 * interleaved rotary pairs.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, settingBias, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, rotaryByPeriod, rotaryLayersOf, windowedLayersOf } from '../settings/hub-settings.js';

interface SmolLm3Settings {
  readonly config: RotaryDecoderConfig;
  /** Which layers have rotary positions. */
  readonly rotaryLayers: readonly boolean[];
}

export const smollm3: Architecture = {
  name: 'smollm3',
  models: 'SmolLM 3',
  limits: [
    'GGUF files have no key for the layers without rotary positions: they are every fourth one, as in llama.cpp.',
    'A window is applied from config.json (`use_sliding_window`); llama.cpp reads no key for it from GGUF files.',
  ],
  ggufNames: ['smollm3'],
  hubNames: ['smollm3'],
  hubClass: 'SmolLM3ForCausalLM',
  preTokenizer: 'smaug-bpe',
  async describe(file) {
    const { config: decoder, rotaryLayers } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const config = { ...decoder, neighborsInGguf: true } as const;
    const biases = {
      attentionBias: settingBias(file, 'attention_bias'),
      ffnBias: settingBias(file, 'mlp_bias'),
    };
    const tensors = usualTensors(file, config, biases);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index) => ({
        ...(rotaryLayers[index] === true ? { rotary } : {}),
        window: windowOf(config, index),
      }),
    });
    return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

async function ofGguf(file: ModelFile): Promise<SmolLm3Settings> {
  const config = await configFromGguf(file, { architecture: 'smollm3', norm: 'rms', layout: 'neighbors' });
  return { config, rotaryLayers: rotaryByPeriod(config) };
}

function ofHub(file: ModelFile): SmolLm3Settings {
  const { fields } = file;
  const config = configFromHub(file, {
    architecture: 'smollm3',
    numHeads: 16,
    numKvHeads: 4,
    contextLength: 32768,
    isTied: true,
    rope: { base: 2_000_000 },
  });
  const rotaryLayers = rotaryLayersOf(fields, config);
  const hasWindow = fields.boolean('use_sliding_window', false) && !fields.isNull('sliding_window');
  if (!hasWindow) return { config, rotaryLayers };
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? rotaryLayers.map((isRotary) => !isRotary);
  return { config: { ...config, slidingWindow: fields.count('sliding_window'), windowedLayers }, rotaryLayers };
}
