/**
 * Ministral 3: the Llama block with queries scaled by position, as in the layers of Llama 4 without RoPE:
 * `q_t *= 1 + beta * ln(1 + floor(t / C))`, where C is the original context length of YaRN, whose amplitude is 1.
 * Source: models/ministral3/modeling_ministral3.py of transformers 5.18.0.
 */
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import { rotaryOf } from '../blocks/rotary.js';
import { queryScales, scaledQueries } from '../blocks/scaled-queries.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type RopeConfig, type RotaryDecoderConfig } from '../program/config.js';
import { isDerivedTensor, usualTensors } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub } from '../settings/hub-settings.js';
import { hubRopeFields } from '../settings/rope-settings.js';
import { textPartOf, visionLanguageParts } from '../settings/text-part.js';

const architecture = 'mistral3';

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly beta: number;
}

export const ministral3: Architecture = {
  name: architecture,
  models: 'Ministral 3 (3B, 8B, 14B), also the language model of multimodal checkpoints',
  limits: [
    'Only the language model of multimodal checkpoints is read, in f32, f16 or bf16.',
    'Beyond the trained context, queries keep the scale of its last position.',
  ],
  ggufNames: [architecture],
  hubNames: ['ministral3', 'mistral3'],
  hubClass: 'Ministral3ForCausalLM',
  async describe(checkpoint) {
    const file = textPartOf(checkpoint, visionLanguageParts);
    const { config: decoder, beta } = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const config = { ...decoder, neighborsInGguf: true } as const;
    const weights = collectWeights(file.store, usualTensors(file, config, {}), (name) => isDerivedTensor(name, config));
    const rotary = rotaryOf(file.fields, config.rope);
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index, step) => ({
        rotary,
        window: windowOf(config, index),
        scaleQueries: (query) => scaledQueries(step, query),
      }),
    });
    const constants = [queryScales(file, config, { scale: beta, length: originalLength(config), offset: 0 })];
    return describeDecoder({ config, weights, rotaries: [rotary], constants, norm: rmsNorm, layer });
  },
};

function originalLength({ rope, contextLength }: RotaryDecoderConfig): number {
  return rope.scaling?.type === 'yarn' ? rope.scaling.originalContextLength : contextLength;
}

async function ofGguf(file: ModelFile): Promise<Settings> {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const config = await configFromGguf(file, {
    architecture,
    norm: 'rms',
    layout: 'neighbors',
    known: ['attention.temperature_scale'],
  });
  const rope = withLogMultiplier(config.rope, fields.number(key('rope.scaling.yarn_log_multiplier'), 0));
  return { config: { ...config, rope }, beta: fields.number(key('attention.temperature_scale'), 0) };
}

/** The amplitude `(1 + 0.1 ln f) / (1 + 0.1 m ln f)` of a factor f, with the multiplier m of the file. */
function withLogMultiplier(rope: RopeConfig, multiplier: number): RopeConfig {
  const { scaling } = rope;
  if (scaling?.type !== 'yarn' || multiplier === 0 || scaling.factor <= 1) return rope;
  const amplitude = (scale: number): number => 1 + 0.1 * scale * Math.log(scaling.factor);
  return { ...rope, scaling: { ...scaling, attentionFactor: amplitude(1) / amplitude(multiplier) } };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  const type = fields.string('model_type');
  if (type !== 'ministral3') throw fields.refusal('text_config.model_type', 'ministral3', type);
  const config = configFromHub(file, {
    architecture,
    epsilon: ['rms_norm_eps', 1e-5],
    headDim: 128,
    numKvHeads: 8,
    contextLength: 262144,
    rope: { base: 1000000 },
  });
  const slidingWindow = fields.integer('sliding_window', 0);
  return { config: { ...config, slidingWindow }, beta: hubRopeFields(fields).number('llama_4_scaling_beta', 0) };
}
