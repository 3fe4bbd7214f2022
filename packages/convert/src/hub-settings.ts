/** Converts the settings of a GGUF file to config.json. */
import {
  architectures,
  type DecoderConfig,
  type EmbedderDescription,
  type Fields,
  type ModelDescription,
} from '@winnow/models';
import { FormatError } from '@winnow/tensor';
import { expertSettings, localExpertSettings } from './expert-settings.js';
import { gemma3nSettings } from './gemma3n-settings.js';
import { gemma4Settings } from './gemma4-settings.js';
import { activationNames, latentArchitecture } from './gguf-settings.js';
import { attentionType, windowedSettings } from './layer-settings.js';
import {
  attentionFreeSettings,
  deltaSettings,
  falconH1Settings,
  lfm2Settings,
  mambaSettings,
  stateSpaceSettings,
} from './recurrent-settings.js';
import { ropeToHub } from './rope-values.js';

export type Json = Record<string, unknown>;

/** Classes for the additional `model_type`s of an architecture. */
const variantClasses: Readonly<Record<string, string>> = {
  mistral: 'MistralForCausalLM',
  olmo3: 'Olmo3ForCausalLM',
  deepseek_v2: 'DeepseekV2ForCausalLM',
  deepseek_v3: 'DeepseekV3ForCausalLM',
  granitemoeshared: 'GraniteMoeSharedForCausalLM',
};

/** `model_type` and class of an architecture. */
function hubModel(name: string): { readonly modelType: string; readonly className: string } | undefined {
  const className = variantClasses[name];
  if (className !== undefined) return { modelType: name, className };
  const found = architectures.find((architecture) => architecture.name === name);
  const [modelType] = found?.hubNames ?? [];
  return found === undefined || modelType === undefined ? undefined : { modelType, className: found.hubClass };
}

/** Language models of vision families, and the text-only architecture that each of them equals. */
export const textOnly: Readonly<Record<string, string>> = {
  qwen2vl: 'qwen2',
  qwen3vl: 'qwen3',
  qwen3vlmoe: 'qwen3moe',
};

/** The `model_type` of the architecture. */
export function hubArchitecture({ architecture, experts, slidingWindow }: DecoderConfig): string {
  if (architecture === 'olmo2' && slidingWindow > 0) return 'olmo3';
  if (architecture === 'granitemoe' && experts?.numShared !== undefined) return 'granitemoeshared';
  const plain = textOnly[architecture];
  if (plain !== undefined) return plain;
  if (architecture === latentArchitecture) return experts?.score === 'softmax' ? 'deepseek_v2' : 'deepseek_v3';
  if (architecture !== 'llama') return architecture;
  return experts === undefined ? (slidingWindow > 0 ? 'mistral' : 'llama') : 'mixtral';
}

/** Architectures whose `intermediate_size` is the size of an expert. */
const ffnSizedExperts: readonly string[] = [
  'mixtral',
  'olmoe',
  'granitemoe',
  'granitemoeshared',
  'granitehybrid',
  'gpt-oss',
  'llama4',
];

/** Architectures that call the number of experts `num_local_experts`. */
const localExperts: readonly string[] = [
  'mixtral',
  'granitemoe',
  'granitemoeshared',
  'granitehybrid',
  'gpt-oss',
  'llama4',
  'gemma4',
];

/** Names of the epsilon in architectures that do not call it `rms_norm_eps`. */
const epsilonNames: Readonly<Record<string, string>> = {
  phi2: 'layer_norm_eps',
  gpt2: 'layer_norm_epsilon',
  starcoder2: 'norm_epsilon',
  stablelm: 'layer_norm_eps',
  lfm2: 'norm_eps',
  lfm2moe: 'norm_eps',
  bert: 'layer_norm_eps',
  'xlm-roberta': 'layer_norm_eps',
  'modern-bert': 'norm_eps',
  'nomic-bert': 'layer_norm_epsilon',
  mamba: 'layer_norm_epsilon',
  mamba2: 'layer_norm_epsilon',
};

/**
 * @param fields the metadata of the GGUF file
 * @throws {FormatError} for an architecture without a `model_type`
 */
export function hubSettings(fields: Fields, description: EmbedderDescription): Json {
  const { config, weights } = description;
  const name = hubArchitecture(config);
  const model = hubModel(name);
  if (model === undefined) {
    const message = `expected one of ${architectures.map((one) => one.name).join(', ')} for a folder, got ${name}`;
    throw new FormatError({ source: fields.source, field: 'general.architecture', message });
  }
  const { modelType, className } = model;
  const { rope, experts } = config;
  const hasBias = (tensor: string): boolean => weights.has(`${tensor}.bias`);
  const usual: Json = {
    architectures: [className],
    model_type: modelType,
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenDim,
    num_hidden_layers: config.numLayers,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKvHeads,
    ...(config.headDim === config.hiddenDim / config.numHeads ? {} : { head_dim: config.headDim }),
    intermediate_size: ffnSizedExperts.includes(name) ? (experts?.ffnDim ?? config.ffnDim) : config.ffnDim,
    max_position_embeddings: config.contextLength,
    hidden_act: activationNames[config.activation],
    [epsilonNames[name] ?? 'rms_norm_eps']: config.normEps,
    tie_word_embeddings: config.isTied,
    ...(rope === undefined ? {} : { rope_theta: rope.base }),
    ...(rope === undefined || rope.rotaryDim === config.headDim
      ? {}
      : { partial_rotary_factor: rope.rotaryDim / config.headDim }),
  };
  const scaling = rope && (name === 'gemma4' ? undefined : ropeToHub(rope));
  return {
    ...usual,
    ...(scaling === undefined ? {} : { rope_scaling: scaling }),
    ...(scaling?.['original_max_position_embeddings'] === undefined || name !== 'phi3'
      ? {}
      : { original_max_position_embeddings: scaling['original_max_position_embeddings'] }),
    ...(experts === undefined || localExperts.includes(name) ? {} : expertSettings(config)),
    ...ownSettings({ name, fields, description, hasBias }),
  };
}

interface Source {
  /** The `model_type` of the architecture. */
  readonly name: string;
  readonly fields: Fields;
  readonly description: EmbedderDescription;
  readonly hasBias: (tensor: string) => boolean;
}

/** Settings of individual architectures. */
function ownSettings(source: Source): Json {
  return ownSettingsOf[source.name]?.(source) ?? {};
}

const ownSettingsOf: Readonly<Record<string, (source: Source) => Json>> = {
  llama: biases,
  mistral: (source) => ({ ...biases(source), sliding_window: source.description.config.slidingWindow }),
  mixtral: ({ description: { config } }) => ({ ...localExpertSettings(config), sliding_window: windowOrNull(config) }),
  qwen3: (source) => ({ ...attentionBias(source), head_dim: source.description.config.headDim }),
  qwen3moe: attentionBias,
  olmoe: attentionBias,
  granite: (source) => ({ ...biases(source), ...graniteSettings(source) }),
  granitemoe: graniteExpertSettings,
  granitemoeshared: graniteExpertSettings,
  granitehybrid: graniteHybridSettings,
  'falcon-h1': (source) => ({ ...attentionBias(source), ...falconH1Settings(source.fields, source.description) }),
  mamba: ({ fields, description }) => mambaSettings(fields, description),
  mamba2: ({ fields, description }) => attentionFreeSettings(fields, description),
  smollm3: biases,
  ernie4_5: (source) => ({ use_bias: biases(source).attention_bias }),
  glm4: attentionBias,
  glm4moe: (source) => ({
    ...attentionBias(source),
    use_qk_norm: source.description.weights.has('blk.0.attn_q_norm.weight'),
  }),
  mistral3: scaledQuerySettings,
  llama4: chunkedSettings,
  deepseek_v2: latentSettings,
  deepseek_v3: (source) => ({ ...latentSettings(source), rope_interleave: true }),
  olmo2: attentionBias,
  'gpt-oss': (source) => ({
    ...attentionBias(source),
    ...localExpertSettings(source.description.config),
    ...windowedSettings(source.description.config),
    swiglu_limit: source.description.config.experts?.clamp?.limit,
  }),
  olmo3: (source) => ({ ...attentionBias(source), ...windowedSettings(source.description.config) }),
  gemma: (source) => ({ ...attentionBias(source), ...gemmaActivation(source) }),
  qwen2moe: (source) => ({ qkv_bias: biases(source).attention_bias }),
  phi3: () => ({ sliding_window: null }),
  gemma2: gemma2Settings,
  gemma3: gemma3Settings,
  gemma3n: (source) => ({
    ...gemmaActivation(source),
    ...attentionBias(source),
    ...gemma3nSettings(source.fields, source.description),
  }),
  gemma4: (source) => ({ ...gemmaActivation(source), ...gemma4Settings(source.fields, source.description) }),
  'gemma-embedding': (source) => ({ ...gemma3Settings(source), use_bidirectional_attention: true }),
  gpt2: positionedSettings,
  'nomic-bert': positionedSettings,
  starcoder2: (source) => ({
    use_bias: biases(source).attention_bias,
    sliding_window: windowOrNull(source.description.config),
  }),
  stablelm: (source) => ({
    use_qkv_bias: biases(source).attention_bias,
    use_parallel_residual: !source.description.weights.has('blk.0.ffn_norm.weight'),
    qk_layernorm: source.description.weights.has('blk.0.attn_q_norm.weight'),
  }),
  lfm2: ({ fields, description }) => lfm2Settings(fields, description),
  lfm2moe: ({ fields, description }) => lfm2Settings(fields, description),
  qwen35: ({ fields, description }) => deltaSettings(fields, description.config),
  qwen35moe: ({ fields, description }) => deltaSettings(fields, description.config),
  qwen3next: ({ fields, description }) => deltaSettings(fields, description.config),
  bert: bertSettings,
  'xlm-roberta': (source) => {
    const { fields, description } = source;
    const padding = fields.integer('tokenizer.ggml.padding_token_id', 1);
    // the position table begins with padding rows, which no token uses
    return {
      ...bertSettings(source),
      max_position_embeddings: description.config.contextLength + padding + 1,
      pad_token_id: padding,
    };
  },
  'modern-bert': modernBertSettings,
};

function bertSettings({ description: { weights } }: Source): Json {
  return {
    type_vocab_size: weights.get('token_types.weight')?.shape[0] ?? 0,
    position_embedding_type: 'absolute',
  };
}

function biases({ hasBias }: Source): { attention_bias: boolean; mlp_bias: boolean } {
  return { attention_bias: hasBias('blk.0.attn_q'), mlp_bias: hasBias('blk.0.ffn_up') };
}

function attentionBias(source: Source): Json {
  return { attention_bias: biases(source).attention_bias };
}

function windowOrNull({ slidingWindow }: DecoderConfig): number | null {
  return slidingWindow === 0 ? null : slidingWindow;
}

function gemma2Settings(source: Source): Json {
  const { fields, description } = source;
  const { architecture } = description.config;
  return {
    ...gemmaActivation(source),
    ...attentionBias(source),
    query_pre_attn_scalar: attentionScalar(description),
    attn_logit_softcapping: fields.number(`${architecture}.attn_logit_softcapping`, 50),
    final_logit_softcapping: fields.number(`${architecture}.final_logit_softcapping`, 30),
    ...windowedSettings(description.config),
  };
}

function gemma3Settings(source: Source): Json {
  const { fields, description } = source;
  const { architecture, slidingWindow, windowedLayers, contextLength, numLayers } = description.config;
  const cap = fields.number(`${architecture}.final_logit_softcapping`, 0);
  return {
    ...gemmaActivation(source),
    ...attentionBias(source),
    query_pre_attn_scalar: attentionScalar(description),
    final_logit_softcapping: cap === 0 ? null : cap,
    sliding_window: slidingWindow === 0 ? contextLength : slidingWindow,
    rope_local_base_freq: fields.number(`${architecture}.rope.freq_base_swa`, 10000),
    layer_types: Array.from({ length: numLayers }, (_, layer) =>
      attentionType(slidingWindow > 0 && windowedLayers?.[layer] === true),
    ),
  };
}

function graniteSettings({ fields, description }: Source): Json {
  const { architecture } = description.config;
  const factor = (name: string): number => {
    const stored = fields.number(`${architecture}.${name}`, 0);
    return stored === 0 ? 1 : stored;
  };
  return {
    embedding_multiplier: factor('embedding_scale'),
    attention_multiplier: attentionScale(description),
    residual_multiplier: factor('residual_scale'),
    logits_scaling: factor('logit_scale'),
  };
}

function graniteExpertSettings(source: Source): Json {
  const { config } = source.description;
  const { numShared, sharedFfnDim } = config.experts ?? {};
  return {
    ...attentionBias(source),
    ...localExpertSettings(config),
    ...graniteSettings(source),
    ...(numShared === undefined ? {} : { shared_intermediate_size: sharedFfnDim }),
  };
}

function graniteHybridSettings(source: Source): Json {
  const { config } = source.description;
  const first = config.recurrentLayers?.indexOf(true) ?? -1;
  return {
    ...graniteExpertSettings(source),
    ...(config.experts === undefined ? { num_local_experts: 0, num_experts_per_tok: 0 } : {}),
    shared_intermediate_size: config.experts?.sharedFfnDim ?? config.ffnDim,
    position_embedding_type: config.rope === undefined ? 'nope' : 'rope',
    layer_types: config.recurrentLayers?.map((isRecurrent) => (isRecurrent ? 'mamba' : 'attention')),
    ...stateSpaceSettings(source.fields, config, source.hasBias(`blk.${first}.ssm_conv1d`)),
  };
}

function scaledQuerySettings({ fields, description: { config } }: Source): Json {
  const scaling = config.rope && ropeToHub(config.rope);
  const beta = fields.number('mistral3.attention.temperature_scale', 0);
  return { rope_scaling: { rope_type: 'default', ...scaling, llama_4_scaling_beta: beta }, sliding_window: null };
}

function chunkedSettings(source: Source): Json {
  const { fields, description } = source;
  const { experts, headDim, ffnDim, numLayers, slidingWindow, windowedLayers } = description.config;
  const scale = fields.number('llama4.attention.temperature_scale', 0.1);
  return {
    ...attentionBias(source),
    ...localExpertSettings(description.config),
    head_dim: headDim,
    intermediate_size_mlp: ffnDim,
    interleave_moe_layer_step: (experts?.layers.indexOf(true) ?? 0) + 1,
    use_qk_norm: experts?.numExperts !== 128,
    no_rope_layers: Array.from({ length: numLayers }, (_, layer) => Number((layer + 1) % 4 !== 0)),
    attention_chunk_size: slidingWindow,
    layer_types: windowedLayers?.map((isChunked) => (isChunked ? 'chunked_attention' : 'full_attention')),
    attn_temperature_tuning: scale !== 0,
    attn_scale: scale === 0 ? 0.1 : scale,
    floor_scale: fields.count('llama4.attention.temperature_length', 8192),
  };
}

function latentSettings({ fields, description: { config }, hasBias }: Source): Json {
  const key = (part: string): string => `${latentArchitecture}.${part}`;
  const { rope, numHeads, headDim } = config;
  const rotaryDim = rope?.rotaryDim ?? 0;
  const queryLatentDim = fields.integer(key('attention.q_lora_rank'), 0);
  const queryDim = fields.count(key('attention.key_length_mla'), fields.count(key('attention.key_length')));
  const multiplier = fields.number(key('rope.scaling.yarn_log_multiplier'), 0);
  const scaling = rope && ropeToHub(rope);
  return {
    attention_bias: hasBias('blk.0.attn_kv_a_mqa'),
    num_key_value_heads: numHeads,
    head_dim: rotaryDim,
    partial_rotary_factor: undefined,
    kv_lora_rank: headDim - rotaryDim,
    q_lora_rank: queryLatentDim === 0 ? null : queryLatentDim,
    qk_rope_head_dim: rotaryDim,
    qk_nope_head_dim: queryDim - rotaryDim,
    v_head_dim: fields.count(key('attention.value_length_mla'), fields.count(key('attention.value_length'))),
    ...(scaling === undefined || multiplier === 0
      ? {}
      : { rope_scaling: { ...scaling, mscale: 10 * multiplier, mscale_all_dim: 10 * multiplier } }),
  };
}

function modernBertSettings({ fields, description: { config }, hasBias }: Source): Json {
  const period = config.windowedLayers?.indexOf(false, 1) ?? -1;
  return {
    hidden_activation: activationNames[config.activation],
    norm_bias: hasBias('output_norm'),
    attention_bias: hasBias('blk.0.attn_q'),
    mlp_bias: hasBias('blk.0.ffn_up'),
    local_attention: config.slidingWindow,
    global_attn_every_n_layers: period === -1 ? 3 : period,
    global_rope_theta: config.rope?.base,
    local_rope_theta: fields.number(`${config.architecture}.rope.freq_base_swa`, 10000),
  };
}

function gemmaActivation({ description: { config } }: Source): Json {
  return { hidden_activation: activationNames[config.activation] };
}

/** `1 / scale^2` of the attention, as in Gemma's config.json. */
function attentionScalar(description: EmbedderDescription): number {
  const scalar = 1 / attentionScale(description) ** 2;
  const rounded = Math.round(scalar);
  return Math.abs(scalar - rounded) < 1e-4 * rounded ? rounded : scalar;
}

/** The factor of attention scores. */
function attentionScale(description: EmbedderDescription): number {
  const sizes = { maxTokens: 1, maxSequences: 1 } as const;
  const cache = {
    numBlocks: 1,
    blockSize: 16,
    maxBlocksPerSequence: 1,
    dtype: { keys: 'f32', values: 'f32' },
  } as const;
  const program =
    'buildProgram' in description
      ? (description as ModelDescription).buildProgram({ ...sizes, maxOutputRows: 1, cache, topK: 1 })
      : description.buildEmbeddingProgram({ ...sizes, pooling: 'mean' });
  return Number(program.records.find(({ op }) => op === 'attention')?.attributes['scale']);
}

/** Field names of older architectures. */
function positionedSettings({ name, description: { config }, hasBias }: Source): Json {
  const sizes = {
    n_embd: config.hiddenDim,
    n_layer: config.numLayers,
    n_head: config.numHeads,
    n_positions: config.contextLength,
    n_inner: config.ffnDim,
  };
  if (name === 'gpt2') {
    const usual = config.activation === 'gelu-tanh' ? 'gelu_new' : activationNames[config.activation];
    return { ...sizes, activation_function: usual };
  }
  const { rope } = config;
  return {
    ...sizes,
    activation_function: config.activation === 'silu' ? 'swiglu' : 'geglu',
    ...(config.activation === 'silu' ? {} : { gate_activation: activationNames[config.activation] }),
    rotary_emb_base: rope?.base,
    rotary_emb_fraction: (rope?.rotaryDim ?? config.headDim) / config.headDim,
    rotary_emb_interleaved: false,
    qkv_proj_bias: hasBias('blk.0.attn_q'),
    mlp_fc1_bias: hasBias('blk.0.ffn_up'),
    mlp_fc2_bias: hasBias('blk.0.ffn_down'),
    causal: false,
    prenorm: false,
  };
}
