/** Settings of Gemma 3n in both formats. */
import { gemma3nCutoffs, normalCdf, type EmbedderDescription, type Fields } from '@winnow/models';
import {
  capOf,
  inputDimOf,
  layerCounts,
  localBase,
  numSharedOf,
  ropeByLayerType,
  sharedLayerPairs,
  windowedSettings,
} from './layer-settings.js';
import { f32, u32, type GgufPairs } from './rope-values.js';

type Json = Record<string, unknown>;

/** @param fields of config.json @throws {FormatError} for a setting that GGUF files have no key for */
export function gemma3nPairs(fields: Fields, description: EmbedderDescription): GgufPairs {
  const { ffnDims, ffnDim, headDim } = description.config;
  if (!fields.boolean('altup_correct_scale', true)) {
    throw fields.refusal('altup_correct_scale', 'true, for a GGUF file', false);
  }
  const cutoffs = gemma3nCutoffs(fields, description.config);
  return [
    ['feed_forward_length', layerCounts(ffnDims ?? [ffnDim])],
    ['attention.key_length', u32(headDim)],
    ['attention.value_length', u32(headDim)],
    ...sharedLayerPairs(description),
    ['altup.num_inputs', u32(fields.count('altup_num_inputs', 4))],
    ['altup.active_idx', u32(fields.integer('altup_active_idx', 0))],
    ['activation_sparsity_scale', { type: 'array', elementType: 'float32', value: cutoffs }],
    ['rope.freq_base_swa', f32(localBase(fields, fields.number('rope_local_base_freq', 10_000)))],
    ['final_logit_softcapping', f32(capOf(fields, 'final_logit_softcapping', 30))],
  ];
}

/** @param fields the metadata of the GGUF file */
export function gemma3nSettings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  const { numLayers, ffnDims, rope, vocabSize } = config;
  const cutoffs = fields.raw('gemma3n.activation_sparsity_scale') as ArrayLike<number> | undefined;
  const cap = fields.number('gemma3n.final_logit_softcapping', 30);
  return {
    ...(ffnDims === undefined ? {} : { intermediate_size: ffnDims }),
    head_dim: config.headDim,
    ...windowedSettings(config),
    num_kv_shared_layers: numSharedOf(config),
    hidden_size_per_layer_input: inputDimOf(weights),
    vocab_size_per_layer_input: weights.get('per_layer_token_embd.weight')?.shape[0] ?? vocabSize,
    altup_num_inputs: fields.count('gemma3n.altup.num_inputs', 4),
    altup_active_idx: fields.integer('gemma3n.altup.active_idx', 0),
    altup_correct_scale: true,
    laurel_rank: weights.get('blk.0.laurel_l.weight')?.shape[0],
    activation_sparsity_pattern: Array.from({ length: numLayers }, (_, layer) => shareOf(cutoffs?.[layer])),
    final_logit_softcapping: cap === 0 ? null : cap,
    ...ropeByLayerType(
      { rope_type: 'default', rope_theta: rope?.base },
      fields.number('gemma3n.rope.freq_base_swa', 10_000),
    ),
  };
}

/** The share of neurons below a cutoff, without the rounding of the cutoff to f32. */
function shareOf(cutoff = -Infinity): number {
  return cutoff === -Infinity ? 0 : Math.round(normalCdf(cutoff) * 1e6) / 1e6;
}
