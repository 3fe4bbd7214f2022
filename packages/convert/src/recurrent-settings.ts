/** The settings of recurrent layers in config.json. */
import type { DecoderConfig, Fields } from '@winnow/models';
import { ropeToHub } from './rope-values.js';

type Json = Record<string, unknown>;

export function layerKinds({ recurrentLayers = [] }: DecoderConfig, kind: string): string[] {
  return recurrentLayers.map((isRecurrent) => (isRecurrent ? kind : 'full_attention'));
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

/** Mamba-2 layers, and the layers that have them. */
export function stateSpaceSettings(fields: Fields, config: DecoderConfig, hasConvBias: boolean): Json {
  const key = (part: string): string => `${config.architecture}.${part}`;
  const numHeads = fields.count(key('ssm.time_step_rank'));
  const innerDim = fields.count(key('ssm.inner_size'));
  return {
    layer_types: config.recurrentLayers?.map((isRecurrent) => (isRecurrent ? 'mamba' : 'attention')),
    mamba_n_heads: numHeads,
    mamba_d_head: innerDim / numHeads,
    mamba_expand: innerDim / config.hiddenDim,
    mamba_n_groups: 1,
    mamba_d_state: fields.count(key('ssm.state_size')),
    mamba_d_conv: fields.count(key('ssm.conv_kernel'), 4),
    mamba_conv_bias: hasConvBias,
    mamba_proj_bias: false,
  };
}
