/** Converts the settings of a Hugging Face folder to GGUF metadata. */
import type { GgufValueInput } from '@winnow/gguf';
import {
  hubRopeFields,
  rotaryLayersOf,
  type DecoderConfig,
  type EmbedderDescription,
  type Fields,
} from '@winnow/models';
import type { Shape } from '@winnow/tensor';
import { gemma3nPairs } from './gemma3n-settings.js';
import { gemma4Factors, gemma4Pairs } from './gemma4-settings.js';
import { capOf, localBase, windowPattern } from './layer-settings.js';
import { f32, ropeToGguf, u32, type GgufPairs } from './rope-values.js';

/** Architectures that GGUF files give the name of another one. */
const ggufNames: Readonly<Record<string, string>> = { mixtral: 'llama', 'xlm-roberta': 'bert', gte: 'nomic-bert' };

/** Architectures whose epsilon is that of LayerNorm. */
const layerNormed: readonly string[] = ['phi2', 'gpt2', 'starcoder2', 'stablelm', 'bert', 'nomic-bert', 'modern-bert'];

/** Architectures for which GGUF readers apply a sliding window. */
export const windowInGguf: readonly string[] = [
  'llama',
  'llama4',
  'mixtral',
  'gemma2',
  'gemma3',
  'gemma3n',
  'gemma4',
  'gemma-embedding',
  'olmo2',
  'gpt-oss',
  'modern-bert',
];

/** The architecture with latent attention: it has its own keys for head sizes, and a rotary amplitude of 1. */
export const latentArchitecture = 'deepseek2';

/** The activation that GGUF readers assume by default. */
const usualActivations: Readonly<Record<string, DecoderConfig['activation']>> = {
  ...Object.fromEntries(
    ['phi2', 'gpt2', 'starcoder2', 'gemma', 'gemma2', 'gemma3', 'gemma3n', 'gemma4', 'gemma-embedding'].map((name) => [
      name,
      'gelu-tanh',
    ]),
  ),
  bert: 'gelu-tanh',
  'modern-bert': 'gelu-tanh',
};

/** Names of activations in `hidden_act`. */
export const activationNames: Readonly<Record<DecoderConfig['activation'], string>> = {
  silu: 'silu',
  relu: 'relu',
  relu2: 'relu2',
  sigmoid: 'sigmoid',
  'gelu-erf': 'gelu',
  'gelu-tanh': 'gelu_pytorch_tanh',
};

export interface GgufSettings {
  /** `general.architecture`. */
  readonly architecture: string;
  readonly pairs: GgufPairs;
  /** Vectors that are f32 tensors in GGUF files. */
  readonly tables: ReadonlyMap<string, Float32Array>;
}

/** @param fields settings of config.json, or of its `text_config` */
export function ggufSettings(fields: Fields, description: EmbedderDescription): GgufSettings {
  const { config } = description;
  const architecture = ggufNames[config.architecture] ?? config.architecture;
  const { rope, experts, isEncoder } = config;
  const evenDim = config.hiddenDim / config.numHeads;
  const epsilon = layerNormed.includes(architecture) ? 'layer_norm_epsilon' : 'layer_norm_rms_epsilon';
  const pairs: GgufPairs = [
    ['vocab_size', u32(config.vocabSize)],
    ['context_length', u32(config.contextLength)],
    ['embedding_length', u32(config.hiddenDim)],
    ['block_count', u32(config.numLayers)],
    ['feed_forward_length', u32(config.ffnDim)],
    ['attention.head_count', u32(config.numHeads)],
    ['attention.head_count_kv', kvHeads(config)],
    [`attention.${epsilon}`, f32(config.normEps)],
  ];
  if (config.numHeads > 0 && config.headDim !== evenDim && architecture !== latentArchitecture) {
    pairs.push(['attention.key_length', u32(config.headDim)], ['attention.value_length', u32(config.headDim)]);
  }
  if (config.slidingWindow > 0) pairs.push(['attention.sliding_window', u32(config.slidingWindow)]);
  const usual = usualActivations[architecture] ?? 'silu';
  if (config.activation !== usual) pairs.push(['hidden_act', activationNames[config.activation]]);
  if (isEncoder === true) pairs.push(['attention.causal', false]);
  const tables = new Map<string, Float32Array>();
  if (rope !== undefined) {
    const words = ropeToGguf(rope);
    const hasMultiplier = architecture === latentArchitecture || architecture === 'mistral3';
    const isKnown = (name: string): boolean => hasMultiplier && name.endsWith('attn_factor');
    pairs.push(...words.pairs.filter(([name]) => !isKnown(name)));
    for (const [name, values] of words.tensors) tables.set(name, values);
  }
  if (architecture === 'gemma4') tables.set('rope_freqs.weight', gemma4Factors(config));
  if (experts !== undefined) pairs.push(...expertPairs(config));
  pairs.push(...ownPairs(fields, description));
  const last = new Map(pairs); // own pairs replace the usual ones
  return { architecture, pairs: [...last].map(([name, value]) => [`${architecture}.${name}`, value]), tables };
}

/** Hybrids that mark layers without attention by 0 KV heads. */
const kvHeadsPerLayer: readonly string[] = ['lfm2', 'lfm2moe', 'granitehybrid'];

/** One number, or one per layer if some layers have no attention. */
function kvHeads({ architecture, numKvHeads, recurrentLayers }: DecoderConfig): GgufValueInput {
  if (!kvHeadsPerLayer.includes(architecture) || recurrentLayers === undefined) return u32(numKvHeads);
  const value = recurrentLayers.map((isRecurrent) => (isRecurrent ? 0 : numKvHeads));
  return { type: 'array', elementType: 'int32', value };
}

function expertPairs({ architecture, experts }: DecoderConfig): GgufPairs {
  if (experts === undefined) return [];
  const { numExperts, numChosen, ffnDim, sharedFfnDim, numShared, groups, score, normalize, scale, layers } = experts;
  const numDense = layers.findIndex(Boolean);
  const isSized = architecture.startsWith('granite');
  const sized: GgufPairs = sharedFfnDim === 0 ? [] : [['expert_shared_feed_forward_length', u32(sharedFfnDim)]];
  return [
    ['expert_count', u32(numExperts)],
    ['expert_used_count', u32(numChosen)],
    ['expert_feed_forward_length', u32(ffnDim)],
    ...(numShared === undefined || isSized ? sized : ([['expert_shared_count', u32(numShared)]] as GgufPairs)),
    ...(groups === undefined ? [] : groupPairs(groups)),
    ['expert_gating_func', u32(score === 'sigmoid' ? 2 : 1)],
    ['expert_weights_norm', normalize],
    ...(scale === 1 ? [] : ([['expert_weights_scale', f32(scale)]] as GgufPairs)),
    ...(numDense > 0 && architecture !== 'llama4' ? ([['leading_dense_block_count', u32(numDense)]] as GgufPairs) : []),
  ];
}

function groupPairs({ numGroups, numChosen }: NonNullable<NonNullable<DecoderConfig['experts']>['groups']>): GgufPairs {
  return [
    ['expert_group_count', u32(numGroups)],
    ['expert_group_used_count', u32(numChosen)],
  ];
}

/** Settings of individual architectures. */
function ownPairs(fields: Fields, description: EmbedderDescription): GgufPairs {
  const { config, weights } = description;
  switch (config.architecture) {
    case 'gemma2':
      return [
        ['attn_logit_softcapping', f32(capOf(fields, 'attn_logit_softcapping', 50))],
        ['final_logit_softcapping', f32(capOf(fields, 'final_logit_softcapping', 30))],
        ...windowPattern(config, 2),
      ];
    case 'gemma3':
    case 'gemma-embedding': {
      const cap = capOf(fields, 'final_logit_softcapping', 0);
      return [
        ['rope.freq_base_swa', f32(localBase(fields, fields.number('rope_local_base_freq', 10_000)))],
        ...(cap === 0 ? [] : ([['final_logit_softcapping', f32(cap)]] as GgufPairs)),
        ...windowPattern(config, 6),
      ];
    }
    case 'granite':
    case 'granitemoe':
      return granitePairs(fields);
    case 'granitehybrid':
      return graniteHybridPairs(fields, config);
    case 'falcon-h1':
      return stateSpacePairs(fields, weights.get('blk.0.ssm_out.weight')?.shape[1] as number);
    case 'mamba':
    case 'mamba2':
      return attentionFreePairs(fields, description);
    case latentArchitecture:
      return latentPairs(fields, config);
    case 'mistral3':
      return scaledQueryPairs(fields, config);
    case 'llama4':
      return chunkedPairs(fields, config);
    case 'gpt-oss':
      return windowPattern(config, 2);
    case 'olmo2':
      return windowPattern(config, 4);
    case 'modern-bert':
      return [['rope.freq_base_swa', f32(modernBertLocalBase(fields, config))], ...globalPeriod(config)];
    case 'stablelm':
      return [['use_parallel_residual', !weights.has('blk.0.ffn_norm.weight')]];
    case 'lfm2':
    case 'lfm2moe':
      return [['shortconv.l_cache', u32(fields.count('conv_L_cache', 3))]];
    case 'qwen35':
    case 'qwen35moe':
      return [...deltaPairs(fields, config), coordinatePairs(fields)];
    case 'qwen3next':
      return deltaPairs(fields, config);
    case 'qwen2vl':
    case 'qwen3vl':
    case 'qwen3vlmoe':
      return [rotarySections(countsOf(config.rope?.coordinates ?? []))];
    default:
      return layeredPairs[config.architecture]?.(fields, description) ?? [];
  }
}

/** Of architectures whose layers have different sizes. */
const layeredPairs: Readonly<Record<string, typeof gemma4Pairs>> = { gemma3n: gemma3nPairs, gemma4: gemma4Pairs };

function granitePairs(fields: Fields): GgufPairs {
  const factor = (name: string): GgufValueInput => f32(fields.number(name, 1));
  return [
    ['embedding_scale', factor('embedding_multiplier')],
    ['attention.scale', factor('attention_multiplier')],
    ['residual_scale', factor('residual_multiplier')],
    ['logit_scale', factor('logits_scaling')],
  ];
}

function graniteHybridPairs(fields: Fields, { hiddenDim, rope }: DecoderConfig): GgufPairs {
  return [
    ...granitePairs(fields),
    ...stateSpacePairs(fields, fields.count('mamba_expand', 2) * hiddenDim),
    ['rope.scaling.finetuned', rope !== undefined],
  ];
}

function stateSpacePairs(fields: Fields, innerDim: number): GgufPairs {
  return [
    ['ssm.conv_kernel', u32(fields.count('mamba_d_conv', 4))],
    ['ssm.state_size', u32(fields.count('mamba_d_state', 256))],
    ['ssm.group_count', u32(fields.count('mamba_n_groups', 1))],
    ['ssm.inner_size', u32(innerDim)],
    ['ssm.time_step_rank', u32(fields.count('mamba_n_heads', 128))],
  ];
}

/** Sizes that have defaults are taken from the weights. */
function attentionFreePairs(fields: Fields, { config, weights }: EmbedderDescription): GgufPairs {
  const shapeOf = (name: string): Shape => weights.get(`blk.0.${name}`)?.shape ?? [];
  const isFirst = config.architecture === 'mamba';
  const taps = shapeOf('ssm_conv1d.weight').at(-1) as number;
  const pairs: GgufPairs = [
    ['ssm.conv_kernel', u32(taps)],
    ['ssm.inner_size', u32(shapeOf('ssm_out.weight')[1] as number)],
  ];
  if (!isFirst) {
    const numHeads = shapeOf('ssm_dt.bias')[0] as number;
    return [
      ...pairs,
      ['ssm.state_size', u32(fields.count('state_size', 128))],
      ['ssm.group_count', u32(fields.count('n_groups', 8))],
      ['ssm.time_step_rank', u32(numHeads)],
    ];
  }
  return [
    ...pairs,
    ['ssm.state_size', u32(shapeOf('ssm_a')[1] as number)],
    ['ssm.time_step_rank', u32(shapeOf('ssm_dt.weight')[1] as number)],
    ['ssm.dt_b_c_rms', fields.raw('model_type') === 'falcon_mamba'],
  ];
}

/** @throws {FormatError} for a rotary amplitude other than 1: GGUF files have no key for it */
function latentPairs(fields: Fields, { rope, headDim }: DecoderConfig): GgufPairs {
  const rotaryDim = fields.count('qk_rope_head_dim', 64);
  const latentDim = headDim - rotaryDim;
  const queryLatentDim = fields.isNull('q_lora_rank') ? 0 : fields.count('q_lora_rank', 1536);
  const mscale = hubRopeFields(fields).number('mscale_all_dim', 0);
  const isYarn = rope?.scaling?.type === 'yarn';
  if (isYarn && rope.scaling.attentionFactor !== 1) {
    throw fields.refusal(
      'rope_scaling',
      'mscale and mscale_all_dim that are equal, for a GGUF file',
      fields.raw('rope_parameters') ?? fields.raw('rope_scaling'),
    );
  }
  const isScaled = isYarn && mscale !== 0;
  return [
    ['attention.key_length', u32(headDim)],
    ['attention.value_length', u32(latentDim)],
    ['attention.key_length_mla', u32(fields.count('qk_nope_head_dim', 128) + rotaryDim)],
    ['attention.value_length_mla', u32(fields.count('v_head_dim', 128))],
    ['attention.kv_lora_rank', u32(latentDim)],
    ...(queryLatentDim === 0 ? [] : ([['attention.q_lora_rank', u32(queryLatentDim)]] as GgufPairs)),
    ...(isScaled ? ([['rope.scaling.yarn_log_multiplier', f32(0.1 * mscale)]] as GgufPairs) : []),
  ];
}

/** @throws {FormatError} for a rotary amplitude that `yarn_log_multiplier` cannot express */
function scaledQueryPairs(fields: Fields, { rope }: DecoderConfig): GgufPairs {
  const scaling = rope?.scaling;
  const settings = hubRopeFields(fields);
  const isYarn = scaling?.type === 'yarn';
  if (isYarn && (scaling.attentionFactor !== 1 || settings.number('mscale_all_dim', 1) !== 1)) {
    const actual = fields.raw('rope_parameters') ?? fields.raw('rope_scaling');
    throw fields.refusal('rope_parameters', 'mscale and mscale_all_dim of 1, for a GGUF file', actual);
  }
  return [
    ['attention.temperature_scale', f32(settings.number('llama_4_scaling_beta', 0))],
    ...(isYarn ? ([['rope.scaling.yarn_log_multiplier', f32(1)]] as GgufPairs) : []),
  ];
}

/** @throws {FormatError} for layers with rotary positions, norms or experts that GGUF files have no key for */
function chunkedPairs(fields: Fields, config: DecoderConfig): GgufPairs {
  const { experts, numLayers, slidingWindow } = config;
  const refuse = (name: string, expected: string): never => {
    throw fields.refusal(name, `${expected}, for a GGUF file`, fields.raw(name));
  };
  if (slidingWindow === 0) refuse('layer_types', 'layers with chunked attention');
  if (rotaryLayersOf(fields, config).some((is, layer) => is !== ((layer + 1) % 4 !== 0))) {
    refuse('no_rope_layers', 'every fourth layer without rotary positions');
  }
  const isNormed = experts?.numExperts !== 128;
  if (fields.boolean('use_qk_norm', true) !== isNormed) refuse('use_qk_norm', `${isNormed} with these experts`);
  const layers = experts?.layers ?? [];
  const step = layers.indexOf(true) + 1;
  if (step === 0 || layers.some((has, layer) => has !== ((layer + 1) % step === 0))) {
    refuse('moe_layers', `every n-th of ${numLayers} layers`);
  }
  const isTuned = Boolean(fields.raw('attn_temperature_tuning') ?? true);
  return [
    ['interleave_moe_layer_step', u32(step)],
    ['attention.temperature_scale', f32(isTuned ? fields.number('attn_scale', 0.1) : 0)],
    ['attention.temperature_length', u32(fields.count('floor_scale', 8192))],
    ...windowPattern(config, 4),
  ];
}

/** Null stands for the base of the other layers. */
function modernBertLocalBase(fields: Fields, { rope }: DecoderConfig): number {
  const isGlobal = fields.isNull('local_rope_theta') && rope !== undefined;
  return localBase(fields, isGlobal ? rope.base : fields.number('local_rope_theta', 10_000));
}

/** The period of layers with full attention. */
function globalPeriod({ windowedLayers = [] }: DecoderConfig): GgufPairs {
  const next = windowedLayers.indexOf(false, 1);
  return next === -1 || next === 3 ? [] : [['attention.sliding_window_pattern', u32(next)]];
}

function deltaPairs(fields: Fields, { recurrentLayers = [] }: DecoderConfig): GgufPairs {
  const numValueHeads = fields.count('linear_num_value_heads', 32);
  const interval = recurrentLayers.indexOf(false) + 1;
  const isRegular = interval > 0 && recurrentLayers.every((is, layer) => is === ((layer + 1) % interval !== 0));
  return [
    ['ssm.conv_kernel', u32(fields.count('linear_conv_kernel_dim', 4))],
    ['ssm.state_size', u32(fields.count('linear_key_head_dim', 128))],
    ['ssm.group_count', u32(fields.count('linear_num_key_heads', 16))],
    ['ssm.time_step_rank', u32(numValueHeads)],
    ['ssm.inner_size', u32(numValueHeads * fields.count('linear_value_head_dim', 128))],
    isRegular
      ? ['full_attention_interval', u32(interval)]
      : ['attention.recurrent_layers', { type: 'array', elementType: 'bool', value: recurrentLayers }],
  ];
}

function coordinatePairs(fields: Fields): GgufPairs[number] {
  const nested = (fields.raw('rope_parameters') ?? fields.raw('rope_scaling') ?? {}) as { mrope_section?: number[] };
  return rotarySections(nested.mrope_section ?? []);
}

/** The number of pairs that are rotated by time, row and column. */
function countsOf(coordinates: readonly number[]): number[] {
  return [0, 1, 2].map((which) => coordinates.filter((each) => each === which).length);
}

/** The key for the sections of M-RoPE: four numbers, of which images use three. */
function rotarySections(sections: readonly number[]): GgufPairs[number] {
  const value = [...sections, 0, 0, 0, 0].slice(0, 4);
  return ['rope.dimension_sections', { type: 'array', elementType: 'int32', value }];
}
