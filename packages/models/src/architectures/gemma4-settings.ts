/** Settings of Gemma 4 in both formats. */
import { isRecord } from '@winnow/tensor';
import { expertsFromGguf, expertsFromHub, type Routing } from '../blocks/experts.js';
import type { Fields } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, ExpertConfig, KvHeads, RopeConfig, RotaryDecoderConfig } from '../program/config.js';
import { capOf, refuseSettings } from '../settings/config-checks.js';
import { unrotatedFromGguf } from '../settings/gguf-settings.js';
import { unrotatedFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { listOf } from '../settings/recurrent-settings.js';
import { ggufRotaryDim, hubRopeFields, readFreqFactors, ropeFromGguf } from '../settings/rope-settings.js';
import { gemmaHub, windowedByPeriod, withGgufWindow, withSharedLayers } from './gemma-settings.js';

export const architecture = 'gemma4';
const usualPeriod = 6;
/** Defaults by `model_type`; models with images and sound in the language model itself have no per-layer inputs. */
const hubDefaults: Readonly<Record<string, Record<'window' | 'contextLength' | 'inputDim', number>>> = {
  gemma4_text: { window: 512, contextLength: 131_072, inputDim: 256 },
  gemma4_unified_text: { window: 1024, contextLength: 262_144, inputDim: 0 },
};
const routing: Routing = { score: 'softmax', normalize: true };
/** The divisor of the frequencies of pairs that are not rotated, as in GGUF files. */
const unrotatedFactor = 1e30;
/** A larger head is an error of the settings: factors of its pairs would fill the memory. */
const maxHeadDim = 2 ** 16;

export interface Gemma4Settings {
  /** `rope` is that of layers without the sliding window. */
  readonly config: RotaryDecoderConfig;
  readonly localRope: RopeConfig;
  /** Values per token of the input that each layer has of its own; 0 without them. */
  readonly inputDim: number;
  readonly finalCap: number;
  /** Whether the values of layers without the sliding window are their keys. Default: those without a matrix of values. */
  readonly sharesValues?: boolean;
}

export async function gemma4FromGguf(file: ModelFile): Promise<Gemma4Settings> {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const layers = withGgufWindow(fields, plainFromGguf(file), { window: 0, period: usualPeriod });
  if (layers.slidingWindow === 0) throw fields.refusal(key('attention.sliding_window'), 'a positive integer', 0);
  const { windowedLayers = [], headDim } = layers;
  const kvHeads = fields.counts(key('attention.head_count_kv'), layers.numLayers, layers.numHeads);
  const globalDim = fields.count(key('attention.key_length'));
  const valueDim = fields.count(key('attention.value_length'), globalDim);
  if (valueDim !== globalDim) throw fields.refusal(key('attention.value_length'), String(globalDim), valueDim);
  const ofType = (isLocal: boolean, fallback: number): number =>
    commonCount(fields, key('attention.head_count_kv'), kvHeads, (layer) => windowedLayers[layer] === isLocal) ??
    fallback;
  const numKvHeads = ofType(true, kvHeads[0] as number);
  const globalHeads = { numKvHeads: ofType(false, numKvHeads), headDim: globalDim };
  const ffnDims = fields.counts(key('feed_forward_length'), layers.numLayers);
  const numShared = fields.integer(key('attention.shared_kv_layers'), 0);
  const sized = withGlobalHeads(fields, { ...layers, numKvHeads }, globalHeads);
  const base = withSharedLayers(fields, sized, { numShared, ffnDims });
  const factors = await readFreqFactors(file.store, ggufRotaryDim(fields, architecture, globalDim) / 2);
  const rope = ropeFromGguf(fields, architecture, globalDim, 'halves', factors);
  const own = fields.with({ [key('rope.dimension_count')]: fields.raw(key('rope.dimension_count_swa')) });
  const hasExperts = fields.integer(key('expert_count'), 0) > 0;
  return {
    config: { ...base, rope, ...(hasExperts ? { experts: expertsFromGguf(file, base, routing) } : {}) },
    localRope: {
      layout: 'halves',
      rotaryDim: ggufRotaryDim(own, architecture, headDim),
      base: fields.number(key('rope.freq_base_swa'), 10_000),
    },
    inputDim: fields.integer(key('embedding_length_per_layer_input'), 0),
    finalCap: capOf(fields, key('final_logit_softcapping'), 0),
  };
}

/** The sizes of layers with the sliding window; lists of sizes are read separately. */
function plainFromGguf(file: ModelFile): RotaryDecoderConfig {
  const { fields } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const first = (name: string): unknown => listOf(fields, key(name))?.[0] ?? fields.raw(key(name));
  const local = fields.with({
    [key('attention.key_length')]: fields.count(key('attention.key_length_swa')),
    [key('attention.value_length')]: fields.raw(key('attention.value_length_swa')),
    [key('attention.head_count_kv')]: first('attention.head_count_kv'),
    [key('feed_forward_length')]: first('feed_forward_length'),
  });
  const known = ['expert_count', 'final_logit_softcapping'];
  const config = unrotatedFromGguf(
    { ...file, fields: local },
    { architecture, norm: 'rms', activation: 'gelu_pytorch_tanh', known },
  );
  return { ...config, rope: { layout: 'halves', base: 1, rotaryDim: config.headDim } };
}

/** The count that the selected layers have; `undefined` without any. @throws {FormatError} when they differ */
function commonCount(
  fields: Fields,
  name: string,
  counts: readonly number[],
  isSelected: (layer: number) => boolean,
): number | undefined {
  const selected = counts.filter((_, layer) => isSelected(layer));
  if (selected.some((count) => count !== selected[0])) {
    throw fields.refusal(name, 'one number for layers with the sliding window and one for the others', counts);
  }
  return selected[0];
}

export function gemma4FromHub(file: ModelFile): Gemma4Settings {
  const { fields } = file;
  const type = fields.string('model_type');
  const usual = hubDefaults[type];
  if (usual === undefined) {
    throw fields.refusal('text_config.model_type', Object.keys(hubDefaults).join(' or '), type);
  }
  refuseSettings(fields, { use_bidirectional_attention: ['vision', false] });
  const config = unrotatedFromHub(file, {
    ...gemmaHub(fields, architecture),
    numHeads: 8,
    numKvHeads: 4,
    contextLength: usual.contextLength,
    known: ['final_logit_softcapping', 'num_experts', 'use_bidirectional_attention'],
  });
  const windowedLayers = windowedLayersOf(fields, config.numLayers) ?? windowedByPeriod(config, usualPeriod);
  windowedLayers[config.numLayers - 1] = false; // transformers forces the last layer
  const slidingWindow = fields.count('sliding_window', usual.window);
  const layers = { ...config, slidingWindow, windowedLayers };
  const sharesValues = fields.boolean('attention_k_eq_v', false);
  const globalHeads = globalHeadsOf(fields, layers, sharesValues);
  const numShared = fields.integer('num_kv_shared_layers', 0);
  const factor = fields.boolean('use_double_wide_mlp', false) ? 2 : 1;
  const firstShared = config.numLayers - numShared;
  const ffnDims = windowedLayers.map((_, layer) => (layer < firstShared ? 1 : factor) * config.ffnDim);
  const base = withSharedLayers(fields, withGlobalHeads(fields, layers, globalHeads), { numShared, ffnDims });
  const rope = hubRope(fields, 'full_attention', globalHeads.headDim);
  const hasExperts = fields.boolean('enable_moe_block', false);
  return {
    config: { ...base, rope, ...(hasExperts ? { experts: hubExperts(file, base) } : {}) },
    localRope: hubRope(fields, 'sliding_attention', config.headDim),
    inputDim: fields.isNull('hidden_size_per_layer_input')
      ? 0
      : fields.integer('hidden_size_per_layer_input', usual.inputDim),
    finalCap: capOf(fields, 'final_logit_softcapping', 0),
    sharesValues,
  };
}

function hubExperts(file: ModelFile, config: DecoderConfig): ExpertConfig {
  const own = file.fields.with({ num_experts_per_tok: file.fields.count('top_k_experts') });
  return expertsFromHub({ ...file, fields: own }, config, { ...routing, isExpertLayer: () => true });
}

/** Published checkpoints have two settings, transformers writes a list of what layers have instead of the usual. */
function globalHeadsOf(fields: Fields, config: DecoderConfig, sharesValues: boolean): KvHeads {
  const { numKvHeads, headDim, numLayers, windowedLayers = [] } = config;
  const own = fields.raw('per_layer_config');
  if (own === undefined) {
    const usual = sharesValues ? fields.count('num_global_key_value_heads', numKvHeads) : numKvHeads;
    return { numKvHeads: usual, headDim: fields.count('global_head_dim', 512) };
  }
  const known = ['head_dim', 'num_key_value_heads'];
  if (!isRecord(own)) throw fields.refusal('per_layer_config', 'an object', own);
  let found: KvHeads | undefined;
  for (let layer = 0; layer < numLayers; layer++) {
    const settings = own[layer] ?? {};
    const isWindowed = windowedLayers[layer] === true;
    const isKnown = isRecord(settings) && Object.keys(settings).every((name) => !isWindowed && known.includes(name));
    if (!isKnown) throw fields.refusal('per_layer_config', `${known.join(' and ')} of layers with full attention`, own);
    if (isWindowed) continue;
    const sizes = fields.with({ head_dim: headDim, num_key_value_heads: numKvHeads, ...settings });
    const heads = { numKvHeads: sizes.count('num_key_value_heads'), headDim: sizes.count('head_dim') };
    found ??= heads;
    if (found.numKvHeads !== heads.numKvHeads || found.headDim !== heads.headDim) {
      throw fields.refusal('per_layer_config', 'the same heads in all layers with full attention', own);
    }
  }
  return found ?? { numKvHeads, headDim };
}

/** Proportional: the first pairs of a head are rotated by the frequencies that they have if all of them are, the others are not. */
function hubRope(fields: Fields, layerType: string, headDim: number): RopeConfig {
  const isGlobal = layerType === 'full_attention';
  const usual = { rope_type: 'proportional', partial_rotary_factor: 0.25, rope_theta: 1_000_000 };
  const nested = fields.has('rope_parameters') ? hubRopeFields(fields, layerType) : fields.with(isGlobal ? usual : {});
  const plain = { layout: 'halves', base: nested.number('rope_theta', 10_000), rotaryDim: headDim } as const;
  const type = nested.string('rope_type', 'default');
  if (type === 'default') return plain;
  const expected = isGlobal ? 'default or proportional' : 'default';
  if (!isGlobal || type !== 'proportional') throw fields.refusal('rope_parameters.rope_type', expected, type);
  refuseSettings(nested, { factor: [1] });
  const numRotated = Math.floor((nested.number('partial_rotary_factor', 1) * headDim) / 2);
  if (numRotated < 0 || 2 * numRotated > headDim) {
    throw fields.refusal('partial_rotary_factor', 'a number from 0 to 1', nested.raw('partial_rotary_factor'));
  }
  if (headDim > maxHeadDim) throw fields.refusal('head_dim', `at most ${maxHeadDim}`, headDim);
  const factors = new Float32Array(headDim / 2).fill(1).fill(unrotatedFactor, numRotated);
  return numRotated === factors.length ? plain : { ...plain, scaling: { type: 'factors', factors } };
}

/** Adds the heads of layers with full attention. */
function withGlobalHeads<C extends DecoderConfig>(fields: Fields, config: C, globalHeads: KvHeads): C {
  const { numHeads } = config;
  if (numHeads % globalHeads.numKvHeads !== 0) {
    throw fields.refusal('KV heads', `a divisor of ${numHeads} heads`, globalHeads.numKvHeads);
  }
  return { ...config, globalHeads };
}
