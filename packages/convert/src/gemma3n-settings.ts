/** Settings of Gemma 3n in both formats. */
import {
  cutoffsOf,
  ffnDimOf,
  hubRopeFields,
  kvLayerOf,
  normalShare,
  type DecoderConfig,
  type EmbedderDescription,
  type Fields,
} from '@winnow/models';
import type { GgufValueInput } from '@winnow/gguf';
import { f32, u32, type GgufPairs } from './rope-values.js';

type Json = Record<string, unknown>;

/** @param fields of config.json @throws {FormatError} for a setting that GGUF files have no key for */
export function gemma3nPairs(fields: Fields, { config, weights }: EmbedderDescription): GgufPairs {
  const { windowedLayers = [], numLayers, ffnDims, ffnDim } = config;
  if (!fields.boolean('altup_correct_scale', true)) {
    throw fields.refusal('altup_correct_scale', 'true, for a GGUF file', false);
  }
  const cap = fields.isNull('final_logit_softcapping') ? 0 : fields.number('final_logit_softcapping', 30);
  const sizes = Array.from({ length: numLayers }, (_, layer) => ffnDimOf(config, layer));
  return [
    ['feed_forward_length', ffnDims === undefined ? u32(ffnDim) : numbers('int32', sizes)],
    ['attention.key_length', u32(config.headDim)],
    ['attention.value_length', u32(config.headDim)],
    ['attention.shared_kv_layers', u32(numSharedOf(config))],
    ['attention.sliding_window_pattern', { type: 'array', elementType: 'bool', value: windowedLayers }],
    ['embedding_length_per_layer_input', u32(inputDimOf(weights))],
    ['altup.num_inputs', u32(fields.count('altup_num_inputs', 4))],
    ['altup.active_idx', u32(fields.integer('altup_active_idx', 0))],
    ['activation_sparsity_scale', numbers('float32', cutoffsOf(fields, config))],
    ['rope.freq_base_swa', f32(localBaseOf(fields))],
    ['final_logit_softcapping', f32(cap)],
  ];
}

function numbers(elementType: 'int32' | 'float32', value: number[]): GgufValueInput {
  return { type: 'array', elementType, value };
}

function numSharedOf(config: DecoderConfig): number {
  return (config.kvLayers ?? []).filter((_, layer) => kvLayerOf(config, layer) !== layer).length;
}

function inputDimOf(weights: EmbedderDescription['weights']): number {
  return weights.get('per_layer_proj_norm.weight')?.shape[0] ?? 0;
}

function localBaseOf(fields: Fields): number {
  const usual = fields.number('rope_local_base_freq', 10_000);
  const rope = fields.raw('rope_parameters') as Record<string, unknown> | undefined;
  if (rope?.['sliding_attention'] === undefined) return usual;
  return hubRopeFields(fields, 'sliding_attention').number('rope_theta', usual);
}

/** @param fields the metadata of the GGUF file */
export function gemma3nSettings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  const { windowedLayers = [], numLayers, ffnDims, slidingWindow, rope, vocabSize } = config;
  const cutoffs = fields.raw('gemma3n.activation_sparsity_scale') as ArrayLike<number> | undefined;
  const cap = fields.number('gemma3n.final_logit_softcapping', 30);
  return {
    ...(ffnDims === undefined ? {} : { intermediate_size: ffnDims }),
    head_dim: config.headDim,
    sliding_window: slidingWindow,
    layer_types: windowedLayers.map((isWindowed) => (isWindowed ? 'sliding_attention' : 'full_attention')),
    num_kv_shared_layers: numSharedOf(config),
    hidden_size_per_layer_input: inputDimOf(weights),
    vocab_size_per_layer_input: weights.get('per_layer_token_embd.weight')?.shape[0] ?? vocabSize,
    altup_num_inputs: fields.count('gemma3n.altup.num_inputs', 4),
    altup_active_idx: fields.integer('gemma3n.altup.active_idx', 0),
    altup_correct_scale: true,
    laurel_rank: weights.get('blk.0.laurel_l.weight')?.shape[0],
    activation_sparsity_pattern: Array.from({ length: numLayers }, (_, layer) => shareOf(cutoffs?.[layer])),
    final_logit_softcapping: cap === 0 ? null : cap,
    rope_theta: undefined,
    rope_scaling: undefined,
    rope_parameters: {
      full_attention: { rope_type: 'default', rope_theta: rope?.base },
      sliding_attention: { rope_type: 'default', rope_theta: fields.number('gemma3n.rope.freq_base_swa', 10_000) },
    },
  };
}

/** The share of neurons below a cutoff, without the rounding of the cutoff to f32. */
function shareOf(cutoff = -Infinity): number {
  return cutoff === -Infinity ? 0 : Math.round(normalShare(cutoff) * 1e6) / 1e6;
}
