/**
 * Llama 4, text only: pre-norm blocks with interleaved rotary pairs. In three of four layers, q and k are rotated, then
 * normalized without weights (`x / sqrt(mean(x^2) + eps)`, not in Maverick), and a query sees only the chunk of positions that
 * contains it. The other layers have no rotary positions, see all keys, and scale their queries by position:
 * `q_t *= 1 + s * ln(1 + floor((t + 1) / C))`. Every layer or every second one has a mixture of experts: the top expert, whose
 * input is scaled by the sigmoid of its score, plus a shared expert.
 * Source: models/llama4/modeling_llama4.py of transformers 5.18.0.
 */
import type { ProgramTensor } from '@winnow/ops';
import { describeDecoder, preNormLayer, rmsNorm } from '../blocks/decoder-blocks.js';
import {
  expertDecoderTensors,
  expertsFromGguf,
  expertsFromHub,
  feedForwardOf,
  type HubExpertNames,
} from '../blocks/experts.js';
import { rotaryOf, type Rotary } from '../blocks/rotary.js';
import { queryScales, scaledQueries, type QueryTemperature } from '../blocks/scaled-queries.js';
import type { Fields } from '../file/fields.js';
import { collectWeights } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import { windowOf, type ExpertConfig, type RotaryDecoderConfig } from '../program/config.js';
import type { DecoderStep } from '../program/decoder-program.js';
import { isDerivedTensor, settingBias } from '../program/tensors.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, layersOfType, rotaryByPeriod, rotaryLayersOf } from '../settings/hub-settings.js';
import { textPartOf, type TextPart } from '../settings/text-part.js';
import { withGgufWindow } from './gemma-settings.js';

const architecture = 'llama4';
const usualChunk = 8192;
const usualTemperature: QueryTemperature = { scale: 0.1, length: 8192, offset: 1 };
const chunkPeriod = 4;
const routing = { score: 'sigmoid', normalize: false } as const;
/** GGUF files have no key for the norm of q and k: as in llama.cpp, models with this many experts (Maverick) lack it. */
const numExpertsWithoutNorm = 128;
/** The name of the table of ones that the norm of q and k needs as its weight. */
const onesName = 'heads.ones';

const parts: TextPart = {
  renamed: [['language_model.', '']],
  otherParts: ['vision_model.', 'multi_modal_projector.'],
};

const hubNames: HubExpertNames = {
  module: 'feed_forward',
  router: 'router',
  shared: 'feed_forward.shared_expert',
  isTransposed: true,
};

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly experts: ExpertConfig;
  /** Which layers have rotary positions. */
  readonly rotaryLayers: readonly boolean[];
  readonly isNormed: boolean;
  /** Scaling of queries in layers without rotary positions; a scale of 0 disables it. */
  readonly temperature: QueryTemperature;
}

export const llama4: Architecture = {
  name: architecture,
  models: 'Llama 4 Scout and Maverick, the language model of their multimodal checkpoints',
  limits: [
    'Only the language model of multimodal checkpoints is read, in f32, f16 or bf16; only with one expert per token.',
    'Layers with chunked attention are dense under every attention policy.',
    'Beyond the trained context, queries keep the scale of its last position.',
    'GGUF files: every fourth layer has no rotary positions, and models with 128 experts do not normalize q and k, as in ' +
      'llama.cpp, which ignores chunk sizes and temperature lengths other than 8,192.',
  ],
  ggufNames: [architecture],
  hubNames: ['llama4_text', 'llama4'],
  hubClass: 'Llama4ForCausalLM',
  preTokenizer: 'llama4',
  async describe(checkpoint) {
    const file = textPartOf(checkpoint, parts);
    const settings = file.format === 'gguf' ? await ofGguf(file) : ofHub(file);
    const { config, experts, rotaryLayers, isNormed, temperature } = settings;
    const rotary = rotaryOf(file.fields, config.rope);
    const isScaled = temperature.scale !== 0 && rotaryLayers.includes(false);
    const constants = [
      ...(isNormed ? [[onesName, new Float32Array(config.headDim).fill(1)] as const] : []),
      ...(isScaled ? [queryScales(file, config, temperature)] : []),
    ];
    const usual = { attentionBias: settingBias(file, 'attention_bias'), ffnModule: 'feed_forward' };
    const tensors = expertDecoderTensors(file, config, experts, usual, hubNames);
    const weights = collectWeights(file.store, tensors, (name) => isDerivedTensor(name, config));
    const layer = preNormLayer({
      norm: rmsNorm,
      attention: (index, step) => ({
        window: windowOf(config, index),
        chunked: config.windowedLayers?.[index] === true,
        ...(rotaryLayers[index] === true ? { rotary: isNormed ? normalizing(rotary) : rotary } : {}),
        ...(rotaryLayers[index] === false && isScaled
          ? { scaleQueries: (query: ProgramTensor) => scaledQueries(step, query) }
          : {}),
      }),
      feedForward: feedForwardOf(experts),
    });
    const described = { config: { ...config, experts }, weights, constants };
    return describeDecoder({ ...described, rotaries: [rotary], norm: rmsNorm, layer });
  },
};

/** Normalizes the heads after their rotation. */
function normalizing(rotary: Rotary): Rotary {
  const normalize = ({ b, constant, config }: DecoderStep, x: ProgramTensor): ProgramTensor =>
    b.activation('rms-norm', { x, weight: constant(onesName) }, { eps: config.normEps });
  return { ...rotary, rotate: (step, heads, positions) => normalize(step, rotary.rotate(step, heads, positions)) };
}

async function ofGguf(file: ModelFile): Promise<Settings> {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const known = ['expert_count', 'attention.temperature_scale'];
  const plain = await configFromGguf(file, { architecture, norm: 'rms', layout: 'neighbors', known });
  const windowed = withGgufWindow(fields, plain, { window: usualChunk, period: chunkPeriod });
  if (windowed.slidingWindow === 0) {
    throw fields.refusal(key('attention.sliding_window'), 'a chunk size, which all models of this family have', 0);
  }
  const step = fields.count(key('interleave_moe_layer_step'));
  const isExpertLayer = (layer: number): boolean => (layer + 1) % step === 0;
  const experts = scalingInputs(fields, key('expert_used_count'), expertsFromGguf(file, plain, routing));
  return {
    config: { ...windowed, isChunked: true },
    experts: { ...experts, layers: experts.layers.map((_, layer) => isExpertLayer(layer)) },
    rotaryLayers: rotaryByPeriod(plain),
    isNormed: experts.numExperts !== numExpertsWithoutNorm,
    temperature: {
      ...usualTemperature,
      scale: fields.number(key('attention.temperature_scale'), usualTemperature.scale),
      length: fields.count(key('attention.temperature_length'), usualTemperature.length),
    },
  };
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  const type = fields.string('model_type');
  if (type !== 'llama4_text') throw fields.refusal('text_config.model_type', 'llama4_text', type);
  const usual = configFromHub(file, {
    architecture,
    epsilon: ['rms_norm_eps', 1e-5],
    headDim: 128,
    numHeads: 40,
    numKvHeads: 8,
    contextLength: 131_072,
    rope: { base: 500_000, layout: 'neighbors' },
    known: ['num_local_experts', 'use_qk_norm'],
  });
  const config = { ...usual, ffnDim: fields.count('intermediate_size_mlp', 16_384) };
  const isExpertLayer = expertLayersOf(fields);
  const sizes = { count: 'num_local_experts', size: 'intermediate_size', isExpertLayer };
  const rotaryLayers = rotaryLayersOf(fields, config);
  const windowedLayers = fields.has('layer_types')
    ? layersOfType(fields, config.numLayers, 'chunked_attention')
    : rotaryLayers;
  const window = windowedLayers.includes(true) ? fields.count('attention_chunk_size', usualChunk) : 0;
  if (fields.isNull('attention_chunk_size') && window > 0) {
    throw fields.refusal('attention_chunk_size', 'a chunk size', null);
  }
  return {
    config: { ...config, slidingWindow: window, windowedLayers, isChunked: true },
    experts: scalingInputs(fields, 'num_experts_per_tok', expertsFromHub(file, config, { ...routing, ...sizes })),
    rotaryLayers,
    isNormed: fields.boolean('use_qk_norm', true),
    temperature: {
      ...usualTemperature,
      scale: isTuned(fields) ? fields.number('attn_scale', usualTemperature.scale) : 0,
      length: fields.count('floor_scale', usualTemperature.length),
    },
  };
}

/** Which layers have experts: those of `moe_layers`, or every n-th. */
function expertLayersOf(fields: Fields): (layer: number) => boolean {
  const listed = fields.raw('moe_layers');
  if (Array.isArray(listed)) return (layer) => listed.includes(layer);
  if (listed !== undefined) throw fields.refusal('moe_layers', 'an array', listed);
  const step = fields.count('interleave_moe_layer_step', 1);
  return (layer) => (layer + 1) % step === 0;
}

/** Older checkpoints store a number, which is true unless 0. */
function isTuned(fields: Fields): boolean {
  const value = fields.raw('attn_temperature_tuning');
  return typeof value === 'number' ? value !== 0 : fields.boolean('attn_temperature_tuning', true);
}

/** The shared expert has the size of the others. */
function scalingInputs(fields: Fields, name: string, experts: ExpertConfig): ExpertConfig {
  if (experts.numChosen !== 1) throw fields.refusal(name, '1', experts.numChosen);
  return { ...experts, sharedFfnDim: experts.ffnDim, numShared: 1, scalesInput: true };
}
