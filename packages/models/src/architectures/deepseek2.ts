/**
 * DeepSeek V2 and V3 (arXiv:2405.04434, arXiv:2412.19437): pre-norm blocks with latent attention and interleaved rotary
 * pairs; all but the first layers have a mixture of experts with shared experts. V2 has softmax scores, V3 sigmoid scores
 * with a selection bias. Large models select experts from the best groups only: V2 ranks a group by its best expert, V3 by
 * the sum of its best two. YaRN also scales the attention, by the square of `1 + 0.1 mscale_all_dim ln(factor)`.
 */
import { add, describeDecoder, rmsNorm } from '../blocks/decoder-blocks.js';
import { expertTensors, feedForwardOf } from '../blocks/experts.js';
import { latentAttention, latentConstants, latentTensors, type LatentSizes } from '../blocks/latent-attention.js';
import { rotaryOf } from '../blocks/rotary.js';
import { sharedExpertNames, sharedExpertsOf } from '../blocks/shared-experts.js';
import type { Fields } from '../file/fields.js';
import { collectWeights, type WeightRequest } from '../file/weights.js';
import type { Architecture, ModelFile } from '../program/architecture.js';
import type { ExpertConfig, RopeConfig, RotaryDecoderConfig } from '../program/config.js';
import {
  gatedFfnTensors,
  isDerivedTensor,
  isPredictorTensor,
  outerTensors,
  preNormTensors,
  settingBias,
} from '../program/tensors.js';
import { refuseSettings } from '../settings/config-checks.js';
import { unrotatedFromGguf, withoutPredictors } from '../settings/gguf-settings.js';
import { unrotatedFromHub } from '../settings/hub-settings.js';
import { hubRopeFields, ropeFromGguf, ropeFromHub } from '../settings/rope-settings.js';

const architecture = 'deepseek2';

interface Settings {
  readonly config: RotaryDecoderConfig;
  readonly sizes: LatentSizes;
  readonly scale: number;
  readonly experts: ExpertConfig;
}

export const deepseek2: Architecture = {
  name: architecture,
  models: 'DeepSeek V2, V2 Lite, V3, V3.1 and R1, Moonlight, Kimi K2',
  limits: [
    'V2 ranks groups of experts by their best one, as in Transformers; llama.cpp ranks them by their best two.',
    'Older GGUF files lack the number of groups: their experts are selected without groups, as in llama.cpp.',
    'Cached values take as much memory as keys: 576 numbers per token for a latent of 512.',
    'The norms of latents use an epsilon of 1e-6, as in Transformers; llama.cpp uses that of the other norms.',
    '`attn_kv_b` of older GGUF files must be unquantized.',
    'Multi-token prediction layers are ignored.',
    'Kimi K2 only as a GGUF file.',
  ],
  ggufNames: [architecture],
  hubNames: ['deepseek_v3', 'deepseek_v2'],
  hubClass: 'DeepseekV3ForCausalLM',
  preTokenizer: 'deepseek-llm',
  async describe(file) {
    const { config, sizes, scale, experts } = file.format === 'gguf' ? ofGguf(file) : ofHub(file);
    const weights = collectWeights(file.store, requests(file, config, sizes, experts), (name) => {
      return isDerivedTensor(name, config) || isPredictorTensor(name, config);
    });
    const rotary = rotaryOf(file.fields, config.rope);
    const feedForward = feedForwardOf(experts);
    return describeDecoder({
      config: { ...config, experts },
      weights,
      rotaries: [rotary],
      constants: latentConstants(config),
      norm: rmsNorm,
      layer(step, layer, input) {
        const normed = rmsNorm(step, `blk.${layer}.attn_norm`, input);
        const x = add(step, input, latentAttention(step, layer, normed, { sizes, rotary, scale }));
        return add(step, x, feedForward(step, layer, rmsNorm(step, `blk.${layer}.ffn_norm`, x)));
      },
    });
  },
};

/** Overrides the KV head settings of the file: one KV head holds the latents. */
function asLatents(file: ModelFile, own: Readonly<Record<string, unknown>>): ModelFile {
  return { ...file, fields: file.fields.with(own) };
}

function ofGguf(file: ModelFile): Settings {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const rotaryDim = fields.count(key('rope.dimension_count'));
  const latentDim = fields.count(key('attention.kv_lora_rank'));
  const headDim = latentDim + rotaryDim;
  // older files store the head sizes instead
  const queryDim = fields.count(key('attention.key_length_mla'), fields.count(key('attention.key_length')));
  const valueDim = fields.count(key('attention.value_length_mla'), fields.count(key('attention.value_length')));
  const sizes = { latentDim, rotaryDim, plainDim: plainDimOf(fields, queryDim, rotaryDim), valueDim };
  const own = { 'attention.key_length': headDim, 'attention.value_length': headDim, 'attention.head_count_kv': 1 };
  const latents = asLatents(file, Object.fromEntries(Object.entries(own).map(([name, value]) => [key(name), value])));
  const plain = unrotatedFromGguf(latents, { architecture, norm: 'rms', known: ['expert_count'] });
  const rope = withAmplitudeOne(ropeFromGguf(fields, architecture, rotaryDim, 'neighbors', undefined));
  const config = withoutPredictors(file, { ...plain, rope });
  const mscale = 10 * fields.number(key('rope.scaling.yarn_log_multiplier'), 0);
  return {
    config,
    sizes: { ...sizes, queryLatentDim: fields.integer(key('attention.q_lora_rank'), 0) },
    scale: scaleOf(rope, queryDim, mscale),
    experts: ggufExperts(file, config),
  };
}

/** No key holds the model version, which decides how groups are ranked; sigmoid scores identify V3. */
function ggufExperts(file: ModelFile, config: RotaryDecoderConfig): ExpertConfig {
  const isV3 = file.fields.integer(`${architecture}.expert_gating_func`, 1) === 2;
  return sharedExpertsOf(file, config, { score: 'softmax', normalize: false }, 0, isV3 ? 'best-two' : 'best');
}

/** GGUF files have no key for the rotary amplitude, which is 1 in the published models. */
function withAmplitudeOne(rope: RopeConfig): RopeConfig {
  return rope.scaling?.type === 'yarn' ? { ...rope, scaling: { ...rope.scaling, attentionFactor: 1 } } : rope;
}

function ofHub(file: ModelFile): Settings {
  const { fields } = file;
  const isV3 = fields.string('model_type') === 'deepseek_v3';
  refuseSettings(fields, {
    topk_method: isV3 ? ['noaux_tc'] : ['greedy', 'group_limited_greedy'],
    scoring_func: [isV3 ? 'sigmoid' : 'softmax'],
    moe_layer_freq: [1],
    rope_interleave: [true],
  });
  const latentDim = fields.count('kv_lora_rank', 512);
  const rotaryDim = fields.count('qk_rope_head_dim', 64);
  const plainDim = fields.count('qk_nope_head_dim', 128);
  const latents = asLatents(file, { head_dim: latentDim + rotaryDim, num_key_value_heads: 1 });
  const plain = unrotatedFromHub(latents, { architecture, contextLength: isV3 ? 4096 : 2048 });
  const rope = ropeFromHub(fields, rotaryDim, { layout: 'neighbors' });
  const config = { ...plain, rope };
  const queryLatentDim = fields.isNull('q_lora_rank') ? 0 : fields.count('q_lora_rank', 1536);
  return {
    config,
    sizes: { latentDim, rotaryDim, plainDim, valueDim: fields.count('v_head_dim', 128), queryLatentDim },
    scale: scaleOf(rope, plainDim + rotaryDim, hubRopeFields(fields).number('mscale_all_dim', 0)),
    experts: hubExperts(file, config, isV3),
  };
}

/** Transformers ignores the setting for V2 and never normalizes its weights. */
function hubExperts(file: ModelFile, config: RotaryDecoderConfig, isV3: boolean): ExpertConfig {
  if (isV3) {
    const groups = { n_group: file.fields.integer('n_group', 8), topk_group: file.fields.integer('topk_group', 4) };
    return sharedExpertsOf(asLatents(file, groups), config, { score: 'sigmoid', normalize: true }, 3, 'best-two');
  }
  refuseSettings(file.fields, { norm_topk_prob: [false] });
  const isGrouped = file.fields.raw('topk_method') === 'group_limited_greedy';
  const own = isGrouped ? file : asLatents(file, { n_group: 1 });
  return sharedExpertsOf(own, config, { score: 'softmax', normalize: false }, 0, 'best');
}

function plainDimOf(fields: Fields, queryDim: number, rotaryDim: number): number {
  if (queryDim > rotaryDim) return queryDim - rotaryDim;
  throw fields.refusal(
    `${architecture}.attention.key_length_mla`,
    `more than ${rotaryDim}, the rotated part`,
    queryDim,
  );
}

function scaleOf({ scaling }: RopeConfig, queryDim: number, mscale: number): number {
  const factor = scaling?.type === 'yarn' && scaling.factor > 1 ? 1 + 0.1 * mscale * Math.log(scaling.factor) : 1;
  return (factor * factor) / Math.sqrt(queryDim);
}

function* requests(
  file: ModelFile,
  config: RotaryDecoderConfig,
  sizes: LatentSizes,
  experts: ExpertConfig,
): Generator<WeightRequest> {
  const bias = settingBias(file, 'attention_bias');
  yield* outerTensors(file, config, {});
  for (let layer = 0; layer < config.numLayers; layer++) {
    yield* preNormTensors(file, config, layer, {});
    yield* latentTensors(file, config, sizes, layer, bias);
    yield* experts.layers[layer] === false
      ? gatedFfnTensors(file, config, layer, {})
      : expertTensors(file, config, experts, layer, sharedExpertNames);
  }
}
