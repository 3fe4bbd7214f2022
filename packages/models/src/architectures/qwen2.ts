/**
 * Qwen 2 and 2.5 (arXiv:2407.10671): the Llama block with biases on q, k and v,
 * `x += attn(rms(x)); x += down(act(gate(rms(x))) * up(rms(x)))`, split-half rotary pairs.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelDescription, ModelFile } from '../program/architecture.js';
import { windowOf, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, usualTensors, type UsualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import type { HubRopeDefaults } from '../settings/rope-settings.js';

export const qwen2: Architecture = {
  name: 'qwen2',
  models: 'Qwen 2, 2.5',
  limits: [
    'A window is applied from config.json (`use_sliding_window`); llama.cpp reads no key for it from GGUF files.',
  ],
  ggufNames: ['qwen2'],
  hubNames: ['qwen2'],
  hubClass: 'Qwen2ForCausalLM',
  preTokenizer: 'qwen2',
  describe: (file) => describeQwen2(file),
};

/** How the decoder of a family that reads images differs. */
export interface Qwen2Family {
  readonly architecture: string;
  /** Defaults of RoPE, whose pairs are rotated by three coordinates (M-RoPE). */
  readonly rope: HubRopeDefaults;
}

/**
 * @param imageTokenId the token that stands for a row of an image. Default: the model takes no images
 * @param family default: Qwen 2
 */
export async function describeQwen2(
  file: ModelFile,
  imageTokenId?: number,
  family: Partial<Qwen2Family> = {},
): Promise<ModelDescription> {
  const isHub = file.format === 'safetensors';
  const common = { architecture: 'qwen2', ...family };
  const settings = isHub
    ? withQwenWindow(file, configFromHub(file, { ...common, contextLength: 32768 }))
    : await configFromGguf(file, { ...common, norm: 'rms' });
  const config = { ...settings, ...(imageTokenId === undefined ? {} : { imageTokenId }) };
  const usual: UsualTensors = { attentionBias: isHub ? 'required' : 'optional', outputBias: 'optional' };
  const tensors = usualTensors(file, config, usual);
  const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
  const rotary = rotaryOf(file.fields, config.rope);
  const layer = preNormLayer({ norm: rmsNorm, attention: (index) => ({ rotary, window: windowOf(config, index) }) });
  return describeDecoder({ config, weights, rotaries: [rotary], norm: rmsNorm, layer });
}

/**
 * The window of `use_sliding_window`, which applies from layer `max_window_layers` on, or to the layers named by
 * `layer_types`.
 */
export function withQwenWindow({ fields }: ModelFile, config: RotaryDecoderConfig): RotaryDecoderConfig {
  const types = windowedLayersOf(fields, config.numLayers);
  const hasWindow = fields.boolean('use_sliding_window', false) && !fields.isNull('sliding_window');
  if (!hasWindow) {
    if (types?.includes(true) !== true) return config;
    throw fields.refusal('layer_types', 'full_attention only, without use_sliding_window', 'sliding_attention');
  }
  const firstLayer = fields.integer('max_window_layers', 28);
  const isWindowed = (_: unknown, layer: number): boolean => layer >= firstLayer;
  const windowedLayers = types ?? Array.from({ length: config.numLayers }, isWindowed);
  return { ...config, slidingWindow: fields.count('sliding_window', 4096), windowedLayers };
}
