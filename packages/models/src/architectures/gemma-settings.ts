/** Settings common to all Gemma generations. */
import { sharedKvLayers } from '../blocks/normed-attention.js';
import { isList, type Fields } from '../file/fields.js';
import type { DecoderConfig, RotaryDecoderConfig } from '../program/config.js';
import type { HubDecoder } from '../settings/hub-settings.js';

/** Scale of the embeddings. */
export function gemmaEmbeddingScale({ hiddenDim }: Pick<DecoderConfig, 'hiddenDim'>): number {
  return Math.sqrt(hiddenDim);
}

/** Settings of config.json. The first checkpoints call the tanh approximation `gelu`. */
export function gemmaHub(fields: Fields, architecture: string): HubDecoder {
  const name = fields.has('hidden_activation') ? 'hidden_activation' : 'hidden_act';
  const usesTanh = name === 'hidden_act' && fields.raw(name) === 'gelu';
  return {
    architecture,
    // without a setting, a name that no file contains makes the reader use the default
    activation: [usesTanh ? 'hidden_activation' : name, 'gelu_pytorch_tanh'],
    headDim: 256,
    contextLength: 8192,
    isTied: true,
  };
}

/**
 * The attention scale of config.json, `1 / sqrt(query_pre_attn_scalar)`.
 * @throws {FormatError} for a scale that is not positive
 */
export function gemmaHubScale(fields: Fields): number {
  const scalar = fields.number('query_pre_attn_scalar', 256);
  if (!(scalar > 0)) throw fields.refusal('query_pre_attn_scalar', 'a positive number', scalar);
  return 1 / Math.sqrt(scalar);
}

/** The attention scale of a GGUF file, which has no key for it: the 27B models are identified by their depth. */
export function gemmaGgufScale({ numLayers, hiddenDim, numHeads, headDim }: DecoderConfig, depthOf27B: number): number {
  return 1 / Math.sqrt(numLayers === depthOf27B ? hiddenDim / numHeads : headDim);
}

/** All layers except every `period`-th have the sliding window. */
export function windowedByPeriod({ numLayers }: DecoderConfig, period: number): boolean[] {
  const isWindowed = (_: unknown, layer: number): boolean => layer % period < period - 1;
  return Array.from({ length: numLayers }, isWindowed);
}

/** The sliding window of a GGUF file; its optional pattern is a period or one value per layer. */
export function withGgufWindow(
  fields: Fields,
  config: RotaryDecoderConfig,
  defaults: { readonly window: number; readonly period: number },
): RotaryDecoderConfig {
  const key = `${config.architecture}.attention.sliding_window`;
  const slidingWindow = fields.integer(key, defaults.window);
  if (slidingWindow === 0) return config;
  const pattern = fields.raw(`${key}_pattern`);
  if (!isList(pattern)) {
    const windowedLayers = windowedByPeriod(config, fields.count(`${key}_pattern`, defaults.period));
    return { ...config, slidingWindow, windowedLayers };
  }
  const layers = Array.from(pattern, Boolean);
  if (layers.length === config.numLayers) return { ...config, slidingWindow, windowedLayers: layers };
  throw fields.refusal(`${key}_pattern`, `an array of ${config.numLayers}`, layers);
}

/** What layers share, and their sizes. */
export interface SharedLayers {
  /** Number of last layers that attend to the keys and values of earlier ones. */
  readonly numShared: number;
  readonly ffnDims: readonly number[];
}

/** Adds what differs between layers. @throws {FormatError} for layers that share keys with none */
export function withSharedLayers<C extends DecoderConfig>(
  fields: Fields,
  config: C,
  { numShared, ffnDims }: SharedLayers,
): C {
  const kvLayers = sharedKvLayers(config.windowedLayers ?? [], numShared);
  if (kvLayers === undefined) {
    throw fields.refusal('layers that share keys', 'an earlier layer of the same type for each', numShared);
  }
  return {
    ...config,
    ...(numShared === 0 ? {} : { kvLayers }),
    ...(ffnDims.every((size) => size === config.ffnDim) ? {} : { ffnDims }),
  };
}
