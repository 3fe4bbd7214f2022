/** The settings of recurrent layers in config.json. */
import type { DecoderConfig, EmbedderDescription, Fields } from '@winnow/models';
import { ropeToHub } from './rope-values.js';

type Json = Record<string, unknown>;

function layerKinds({ recurrentLayers = [] }: DecoderConfig, kind: string): string[] {
  return recurrentLayers.map((isRecurrent) => (isRecurrent ? kind : 'full_attention'));
}

export function lfm2Settings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  const { experts } = config;
  return {
    conv_L_cache: fields.count(`${config.architecture}.shortconv.l_cache`, 3),
    conv_bias: false,
    block_auto_adjust_ff_dim: false,
    layer_types: layerKinds(config, 'conv'),
    ...(experts === undefined
      ? { tie_embedding: config.isTied }
      : { num_dense_layers: Math.max(0, experts.layers.indexOf(true)), use_expert_bias: hasExpertBias(weights) }),
  };
}

function hasExpertBias(weights: EmbedderDescription['weights']): boolean {
  return [...weights.keys()].some((name) => name.endsWith('exp_probs_b.bias'));
}

export function deltaSettings(fields: Fields, config: DecoderConfig): Json {
  const key = (part: string): string => `${config.architecture}.${part}`;
  const numValueHeads = fields.count(key('ssm.time_step_rank'));
  const keyDim = fields.count(key('ssm.state_size'));
  const sections = fields.raw(key('rope.dimension_sections')) as ArrayLike<number> | undefined;
  const { rope } = config;
  return {
    linear_num_key_heads: fields.count(key('ssm.group_count')),
    linear_num_value_heads: numValueHeads,
    linear_key_head_dim: keyDim,
    linear_value_head_dim: fields.count(key('ssm.inner_size'), numValueHeads * keyDim) / numValueHeads,
    linear_conv_kernel_dim: fields.count(key('ssm.conv_kernel'), 4),
    attn_output_gate: true,
    layer_types: layerKinds(config, 'linear_attention'),
    head_dim: config.headDim,
    rope_parameters: {
      ...((rope && ropeToHub(rope)) ?? { rope_type: 'default' }),
      rope_theta: rope?.base,
      partial_rotary_factor: (rope?.rotaryDim ?? config.headDim) / config.headDim,
      ...(sections === undefined ? {} : { mrope_section: Array.from(sections).slice(0, 3), mrope_interleaved: true }),
    },
  };
}

/** Mamba-2 layers beside attention. */
export function stateSpaceSettings(fields: Fields, config: DecoderConfig, hasConvBias: boolean): Json {
  const key = (part: string): string => `${config.architecture}.${part}`;
  const numHeads = fields.count(key('ssm.time_step_rank'));
  const innerDim = fields.count(key('ssm.inner_size'));
  return {
    mamba_n_heads: numHeads,
    mamba_d_head: innerDim / numHeads,
    mamba_expand: innerDim / config.hiddenDim,
    mamba_n_groups: fields.count(key('ssm.group_count'), 1),
    mamba_d_state: fields.count(key('ssm.state_size')),
    mamba_d_conv: fields.count(key('ssm.conv_kernel'), 4),
    mamba_conv_bias: hasConvBias,
    mamba_proj_bias: false,
  };
}

/** Mamba and Mamba-2 without attention. Their head sizes are not those of attention, so these settings replace the usual ones. */
export function attentionFreeSettings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  const key = (part: string): string => `${config.architecture}.${part}`;
  const innerDim = fields.count(key('ssm.inner_size'));
  const rank = fields.count(key('ssm.time_step_rank'));
  const isSecond = config.architecture === 'mamba2';
  return {
    num_attention_heads: undefined,
    num_key_value_heads: undefined,
    max_position_embeddings: undefined,
    intermediate_size: isSecond ? undefined : innerDim,
    head_dim: isSecond ? innerDim / rank : undefined,
    ...(isSecond ? { num_heads: rank, n_groups: fields.count(key('ssm.group_count')) } : { time_step_rank: rank }),
    expand: innerDim / config.hiddenDim,
    state_size: fields.count(key('ssm.state_size')),
    conv_kernel: fields.count(key('ssm.conv_kernel')),
    use_conv_bias: weights.has('blk.0.ssm_conv1d.bias'),
    use_bias: false,
  };
}

/** Without factors, which GGUF files fold into the weights. */
export function falconH1Settings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  return {
    ...stateSpaceSettings(fields, config, weights.has('blk.0.ssm_conv1d.bias')),
    mamba_expand: undefined,
    mamba_d_ssm: fields.count(`${config.architecture}.ssm.inner_size`),
    mamba_rms_norm: weights.has('blk.0.ssm_norm.weight'),
    mamba_norm_before_gate: false,
  };
}

/** Falcon Mamba is recognized by normalized b, c and dt. */
export function mambaSettings(fields: Fields, description: EmbedderDescription): Json {
  const isFalcon = fields.boolean('mamba.ssm.dt_b_c_rms', false);
  return {
    ...attentionFreeSettings(fields, description),
    ...(isFalcon ? { model_type: 'falcon_mamba', architectures: ['FalconMambaForCausalLM'] } : {}),
  };
}
