/** Settings of Gemma 4, whose layers have different sizes, in both formats. */
import {
  hubRopeFields,
  kvHeadsOf,
  kvLayerOf,
  type DecoderConfig,
  type EmbedderDescription,
  type Fields,
} from '@winnow/models';
import { FormatError } from '@winnow/tensor';
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

/** Frequencies divided by more than this are those of pairs that are not rotated. */
const unrotated = 1e20;

/** @param fields of config.json */
export function gemma4Pairs(fields: Fields, description: EmbedderDescription): GgufPairs {
  const { config } = description;
  const { headDim, ffnDim, ffnDims, numLayers } = config;
  const layers = Array.from({ length: numLayers }, (_, layer) => layer);
  const globalDim = config.globalHeads?.headDim ?? headDim;
  const cap = capOf(fields, 'final_logit_softcapping', 0);
  const rope = fields.has('rope_parameters') ? hubRopeFields(fields) : fields;
  return [
    ['attention.key_length', u32(globalDim)],
    ['attention.value_length', u32(globalDim)],
    ['attention.key_length_swa', u32(headDim)],
    ['attention.value_length_swa', u32(headDim)],
    ['attention.head_count_kv', layerCounts(layers.map((layer) => kvHeadsOf(config, layer).numKvHeads))],
    ['feed_forward_length', layerCounts(ffnDims ?? [ffnDim])],
    ...sharedLayerPairs(description),
    ['rope.freq_base_swa', f32(localBase(fields, rope.number('rope_theta', 10_000)))],
    ['rope.dimension_count_swa', u32(headDim)],
    ...(cap === 0 ? [] : ([['final_logit_softcapping', f32(cap)]] as GgufPairs)),
  ];
}

/** The divisors of the frequencies, which llama.cpp requires. */
export function gemma4Factors({ rope, globalHeads, headDim }: DecoderConfig): Float32Array {
  const scaling = rope?.scaling;
  if (scaling?.type === 'factors') return Float32Array.from(scaling.factors);
  return new Float32Array((globalHeads?.headDim ?? headDim) / 2).fill(1);
}

/** @param fields the metadata of the GGUF file */
export function gemma4Settings(fields: Fields, { config, weights }: EmbedderDescription): Json {
  const { numKvHeads, headDim, windowedLayers = [], experts, vocabSize } = config;
  const globalHeads = config.globalHeads ?? { numKvHeads, headDim };
  const isShared = (layer: number): boolean => kvLayerOf(config, layer) !== layer;
  const sharesValues = windowedLayers.some(
    (isWindowed, layer) => !isWindowed && !isShared(layer) && !weights.has(`blk.${layer}.attn_v.weight`),
  );
  const cap = fields.number('gemma4.final_logit_softcapping', 0);
  return {
    attention_bias: weights.has('blk.0.attn_q.bias'),
    head_dim: headDim,
    ...globalSettings(config, globalHeads, sharesValues),
    attention_k_eq_v: sharesValues,
    num_kv_shared_layers: numSharedOf(config),
    use_double_wide_mlp: isDoubleWide(fields, config),
    hidden_size_per_layer_input: inputDimOf(weights),
    vocab_size_per_layer_input: vocabSize,
    final_logit_softcapping: cap === 0 ? null : cap,
    ...windowedSettings(config),
    ...ropeByLayerType(globalRope(fields, config), fields.number('gemma4.rope.freq_base_swa', 10_000)),
    partial_rotary_factor: undefined,
    enable_moe_block: experts !== undefined,
    ...(experts && {
      num_experts: experts.numExperts,
      top_k_experts: experts.numChosen,
      moe_intermediate_size: experts.ffnDim,
    }),
  };
}

/** Numbers of KV heads of layers with full attention have a setting only where their values are their keys. */
function globalSettings(
  { numKvHeads, headDim, windowedLayers = [] }: DecoderConfig,
  globalHeads: NonNullable<DecoderConfig['globalHeads']>,
  sharesValues: boolean,
): Json {
  if (globalHeads.numKvHeads === numKvHeads) return { global_head_dim: globalHeads.headDim };
  if (sharesValues) {
    return { global_head_dim: globalHeads.headDim, num_global_key_value_heads: globalHeads.numKvHeads };
  }
  const own = {
    num_key_value_heads: globalHeads.numKvHeads,
    ...(globalHeads.headDim === headDim ? {} : { head_dim: globalHeads.headDim }),
  };
  const layers = windowedLayers.flatMap((isWindowed, layer) => (isWindowed ? [] : [[String(layer), own] as const]));
  return { per_layer_config: Object.fromEntries(layers) };
}

/** Whether layers that share keys have an FFN of twice the size. @throws {FormatError} for other sizes */
function isDoubleWide(fields: Fields, config: DecoderConfig): boolean {
  const { ffnDim, ffnDims } = config;
  if (ffnDims === undefined) return false;
  const isUsual = ffnDims.every((dim, layer) => dim === (kvLayerOf(config, layer) === layer ? ffnDim : 2 * ffnDim));
  if (isUsual) return true;
  throw fields.refusal('gemma4.feed_forward_length', 'twice the size in layers that share keys, for a folder', ffnDims);
}

/** @throws {FormatError} for divisors of frequencies that config.json cannot represent */
function globalRope(fields: Fields, { rope }: DecoderConfig): Json {
  const base = { rope_theta: rope?.base };
  const { scaling } = rope ?? {};
  if (scaling === undefined) return { rope_type: 'default', ...base };
  const factors = scaling.type === 'factors' ? Array.from(scaling.factors) : [];
  const first = factors.findIndex((factor) => factor > unrotated);
  const numRotated = first === -1 ? factors.length : first;
  const isUsual = factors.every((factor, pair) => (pair < numRotated ? factor === 1 : factor > unrotated));
  if (factors.length > 0 && isUsual) {
    return { rope_type: 'proportional', ...base, partial_rotary_factor: numRotated / factors.length };
  }
  const message = 'expected pairs that are rotated, followed by others that are not, for a folder';
  throw new FormatError({ source: fields.source, field: 'rope_freqs.weight', message });
}
