/** Settings of models whose layers have different windows, rotary positions or sizes, in both formats. */
import type { GgufValueInput } from '@winnow/gguf';
import { hubRopeFields, type DecoderConfig, type EmbedderDescription, type Fields } from '@winnow/models';
import { u32, type GgufPairs } from './rope-values.js';

type Json = Record<string, unknown>;

/** One number, or one per layer where they are different. */
export function layerCounts(counts: readonly number[]): GgufValueInput {
  const isUniform = counts.every((count) => count === counts[0]);
  return isUniform ? u32(counts[0] as number) : { type: 'array', elementType: 'int32', value: [...counts] };
}

/** The layers with a sliding window, unless they follow the usual pattern (all but every `period`-th). */
export function windowPattern({ windowedLayers }: DecoderConfig, period?: number): GgufPairs {
  const isUsual = (is: boolean, layer: number): boolean => period !== undefined && is === layer % period < period - 1;
  if (windowedLayers === undefined || windowedLayers.every(isUsual)) return [];
  return [['attention.sliding_window_pattern', { type: 'array', elementType: 'bool', value: windowedLayers }]];
}

/** The sliding window and the layers that have it, in config.json. */
export function windowedSettings({ slidingWindow, windowedLayers }: DecoderConfig): Json {
  return { sliding_window: slidingWindow, layer_types: windowedLayers?.map(attentionType) };
}

export function attentionType(isWindowed: boolean): string {
  return isWindowed ? 'sliding_attention' : 'full_attention';
}

/** The rotary base of layers with the sliding window in config.json. @param usual the base unless `rope_parameters` has one for them */
export function localBase(fields: Fields, usual: number): number {
  const { sliding_attention: own } = (fields.raw('rope_parameters') ?? {}) as Readonly<Record<string, unknown>>;
  return own === undefined ? usual : hubRopeFields(fields, 'sliding_attention').number('rope_theta', usual);
}

/** A soft cap in config.json; 0 for none. */
export function capOf(fields: Fields, name: string, fallback: number): number {
  return fields.isNull(name) ? 0 : fields.number(name, fallback);
}

/** What Gemma 3n and Gemma 4 have in common: layers that share keys, and an input of each layer. */
export function sharedLayerPairs({ config, weights }: EmbedderDescription): GgufPairs {
  return [
    ['attention.shared_kv_layers', u32(numSharedOf(config))],
    ...windowPattern(config),
    ['embedding_length_per_layer_input', u32(inputDimOf(weights))],
  ];
}

/** Rotary positions by type of layer, which replace those of all layers in config.json. */
export function ropeByLayerType(global: Json, base: number): Json {
  return {
    rope_theta: undefined,
    rope_scaling: undefined,
    rope_parameters: { full_attention: global, sliding_attention: { rope_type: 'default', rope_theta: base } },
  };
}

/** The number of last layers that attend to the keys and values of earlier ones. */
export function numSharedOf({ kvLayers = [] }: DecoderConfig): number {
  return kvLayers.filter((from, layer) => from !== layer).length;
}

/** Values per token of the input that each layer has of its own; 0 without them. */
export function inputDimOf(weights: EmbedderDescription['weights']): number {
  return weights.get('per_layer_proj_norm.weight')?.shape[0] ?? 0;
}
