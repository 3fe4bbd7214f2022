/** Settings of decoders in config.json, with the defaults of the models' configuration classes. */
import type { Fields } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, RotaryDecoderConfig } from '../program/config.js';
import { activationOf, checked, evenShare, refuseSettings, vocabSizeOf } from './config-checks.js';
import { ropeFromHub, type HubRopeDefaults } from './rope-settings.js';

/** Names of an architecture's settings, and their defaults. */
export interface HubDecoder {
  readonly architecture: string;
  /** Default: `rms_norm_eps`, 1e-6. */
  readonly epsilon?: readonly [name: string, fallback: number];
  /** Default: `hidden_act`, silu. */
  readonly activation?: readonly [name: string, fallback: string];
  /** Default: hidden size divided by the number of heads. */
  readonly headDim?: number;
  /** Default of the context length. Default: 2048. */
  readonly contextLength?: number;
  /** Default of the number of heads. Default: config.json must declare it. */
  readonly numHeads?: number;
  /** Default of the number of KV heads. Default: the number of heads. */
  readonly numKvHeads?: number;
  /** Whether the output matrix is the embedding table. Default: false. */
  readonly isTied?: boolean;
  /** Default: base 10000, all dimensions of a head. */
  readonly rope?: HubRopeDefaults;
  /** Default: `model.embed_tokens.weight`. */
  readonly embedding?: string;
  /** Names of sizes that differ from the standard ones. */
  readonly names?: Readonly<Record<string, string>>;
  /** Default of the FFN dimension. */
  readonly ffnDim?: (hiddenDim: number) => number;
  /** Name of a quantization method that the architecture reads. Default: none. */
  readonly quantization?: string;
  /** Settings of the list below that the architecture reads. */
  readonly known?: readonly string[];
}

/** Settings that change the computation but not the tensors: other values are rejected. */
const neutralValues: Readonly<Record<string, readonly unknown[]>> = {
  add_cross_attention: [false],
  alibi: [false],
  attention_multiplier: [],
  attn_logit_softcapping: [0],
  clip_qkv: [],
  embedding_multiplier: [1],
  final_logit_softcapping: [0],
  logit_scale: [1],
  logits_scaling: [1],
  num_experts: [0],
  num_local_experts: [0],
  qk_layernorm: [false],
  residual_multiplier: [1],
  rope_interleaved: [false],
  use_bidirectional_attention: [false],
  use_parallel_residual: [false],
  use_qk_norm: [false],
};

/**
 * Reads the settings of decoders with RoPE.
 * @throws {FormatError} for a missing, invalid or unknown setting
 */
export function configFromHub(file: ModelFile, decoder: HubDecoder): RotaryDecoderConfig {
  const config = unrotatedFromHub(file, decoder);
  return { ...config, rope: ropeFromHub(file.fields, config.headDim, decoder.rope) };
}

/** The same for models with learned positions. */
export function unrotatedFromHub(file: ModelFile, decoder: HubDecoder): DecoderConfig {
  const { fields, store } = file;
  const method = quantizationOf(fields);
  if (method !== undefined && method !== decoder.quantization) {
    throw fields.refusal('quantization_config', 'unquantized weights', fields.raw('quantization_config'));
  }
  refuseSettings(fields, neutralValues, decoder.known);
  const { epsilon = ['rms_norm_eps', 1e-6], activation = ['hidden_act', 'silu'], names = {} } = decoder;
  const name = (usual: string): string => (fields.has(usual) ? usual : (names[usual] ?? usual));
  const hiddenDim = fields.count(name('hidden_size'));
  const numHeads = fields.count(name('num_attention_heads'), decoder.numHeads);
  const headDim = fields.count('head_dim', decoder.headDim ?? evenShare(hiddenDim, numHeads));
  const embedding = store.tensors.get(decoder.embedding ?? 'model.embed_tokens.weight');
  return checked(file, {
    architecture: decoder.architecture,
    vocabSize: vocabSizeOf(fields, embedding, fields.raw('vocab_size')),
    hiddenDim,
    numLayers: fields.count(name('num_hidden_layers')),
    numHeads,
    numKvHeads: fields.count('num_key_value_heads', decoder.numKvHeads ?? numHeads),
    headDim,
    ffnDim: fields.count(name('intermediate_size'), decoder.ffnDim?.(hiddenDim)),
    contextLength: fields.count(name('max_position_embeddings'), decoder.contextLength ?? 2048),
    normEps: fields.number(...epsilon),
    activation: activationOf(fields, ...activation),
    slidingWindow: 0,
    isTied: fields.boolean('tie_word_embeddings', decoder.isTied ?? false),
  });
}

/** The quantization method of the weights; `undefined` without one. */
function quantizationOf(fields: Fields): unknown {
  const settings = fields.raw('quantization_config');
  return settings === undefined
    ? undefined
    : ((settings as { quant_method?: unknown } | null)?.quant_method ?? 'unknown');
}

/** Which layers have a sliding window according to `layer_types`; `undefined` without such a list. */
export function windowedLayersOf(fields: Fields, numLayers: number): boolean[] | undefined {
  return fields.has('layer_types') ? layersOfType(fields, numLayers, 'sliding_attention') : undefined;
}

/** Which layers have this type in `layer_types`; the others are `full_attention`. */
export function layersOfType(fields: Fields, numLayers: number, wanted: string): boolean[] {
  const types = fields.raw('layer_types');
  if (!Array.isArray(types) || types.length !== numLayers) {
    throw fields.refusal('layer_types', `an array of ${numLayers}`, types);
  }
  return types.map((type: unknown) => {
    if (type === wanted || type === 'full_attention') return type === wanted;
    throw fields.refusal('layer_types', `${wanted} or full_attention`, type);
  });
}

/** Default period of layers without rotary positions. */
const usualRotaryPeriod = 4;

/**
 * Which layers have rotary positions: those with 1 in `no_rope_layers`, or by default all but every n-th. An empty list counts
 * as a missing one.
 */
export function rotaryLayersOf(fields: Fields, config: DecoderConfig): boolean[] {
  const listed = fields.raw('no_rope_layers');
  if (listed === undefined || (Array.isArray(listed) && listed.length === 0)) {
    return rotaryByPeriod(config, fields.count('no_rope_layer_interval', usualRotaryPeriod));
  }
  if (Array.isArray(listed) && listed.length >= config.numLayers) return listed.slice(0, config.numLayers).map(Boolean);
  throw fields.refusal('no_rope_layers', `an array of ${config.numLayers}`, listed);
}

/** All layers but every `period`-th have rotary positions. */
export function rotaryByPeriod({ numLayers }: DecoderConfig, period: number = usualRotaryPeriod): boolean[] {
  return Array.from({ length: numLayers }, (_, layer) => (layer + 1) % period !== 0);
}
