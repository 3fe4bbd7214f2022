/** Settings of Gemma 3n in both formats. */
import type { StreamSizes } from '../blocks/alternating-updates.js';
import type { Fields } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig, RopeConfig, RotaryDecoderConfig } from '../program/config.js';
import { capOf } from '../settings/config-checks.js';
import { configFromGguf } from '../settings/gguf-settings.js';
import { configFromHub, windowedLayersOf } from '../settings/hub-settings.js';
import { listOf } from '../settings/recurrent-settings.js';
import { hasRopeByLayerType, ropeFromHub } from '../settings/rope-settings.js';
import { gemmaHub, windowedByPeriod, withGgufWindow, withSharedLayers } from './gemma-settings.js';
import { normalQuantile } from './normal-quantile.js';

export const architecture = 'gemma3n';
const usualPeriod = 5;
/** Without a pattern, this many first layers skip this share of the neurons. */
const [usualSparseLayers, usualSparsity] = [10, 0.95];

export interface Gemma3nSettings {
  /** `rope` is that of layers without the sliding window. */
  readonly config: RotaryDecoderConfig;
  readonly localRope: RopeConfig;
  /** Values per token of the input that each layer has of its own, and rows of their table. */
  readonly inputDim: number;
  readonly inputRows: number;
  readonly finalCap: number;
  readonly streams: StreamSizes;
  readonly laurelDim: number;
  /** Whether the active stream is scaled before the input of the layer gates it. */
  readonly scalesActive: boolean;
  /** For each layer, how many standard deviations above the mean a gate has to be to count; -Infinity for none. */
  readonly cutoffs: readonly number[];
}

export async function gemma3nFromGguf(file: ModelFile): Promise<Gemma3nSettings> {
  const { fields, store } = file;
  const key = (name: string): string => `${architecture}.${name}`;
  const plain = await configFromGguf(withFirst(file, key('feed_forward_length')), {
    architecture,
    norm: 'rms',
    activation: 'gelu_pytorch_tanh',
    known: ['final_logit_softcapping'],
  });
  const windowed = withGgufWindow(fields, plain, { window: 512, period: usualPeriod });
  const config = withSharedLayers(fields, windowed, {
    numShared: fields.integer(key('attention.shared_kv_layers')),
    ffnDims: fields.counts(key('feed_forward_length'), plain.numLayers),
  });
  const { layout, rotaryDim } = config.rope;
  const rows = (name: string): number => Number(store.tensors.get(name)?.shape[0] ?? 0);
  return {
    config,
    localRope: { layout, rotaryDim, base: fields.number(key('rope.freq_base_swa'), 10_000) },
    inputDim: fields.count(key('embedding_length_per_layer_input')),
    inputRows: rows('per_layer_token_embd.weight'),
    finalCap: capOf(fields, key('final_logit_softcapping'), 30),
    streams: streamsOf(fields, key('altup.num_inputs'), key('altup.active_idx')),
    laurelDim: rows('blk.0.laurel_l.weight'),
    scalesActive: true,
    cutoffs: perLayer(fields, key('activation_sparsity_scale'), config, (value) => !Number.isNaN(value)) ?? [],
  };
}

export function gemma3nFromHub(file: ModelFile): Gemma3nSettings {
  const { fields } = file;
  const type = fields.string('model_type');
  if (type !== 'gemma3n_text') throw fields.refusal('text_config.model_type', 'gemma3n_text', type);
  const plain = configFromHub(withFirst(file, 'intermediate_size'), {
    ...gemmaHub(fields, architecture),
    numHeads: 8,
    numKvHeads: 2,
    contextLength: 32_768,
    known: ['final_logit_softcapping'],
    rope: { base: 1_000_000, layerType: 'full_attention' },
  });
  const windowedLayers = windowedLayersOf(fields, plain.numLayers) ?? windowedByPeriod(plain, usualPeriod);
  const windowed = { ...plain, slidingWindow: fields.count('sliding_window', 512), windowedLayers };
  const config = withSharedLayers(fields, windowed, {
    numShared: fields.integer('num_kv_shared_layers', 15),
    ffnDims: fields.counts('intermediate_size', plain.numLayers, plain.ffnDim),
  });
  const { layout, rotaryDim, headDim } = { ...config.rope, ...config };
  const base = fields.number('rope_local_base_freq', 10_000);
  return {
    config,
    localRope: hasRopeByLayerType(fields, 'sliding_attention')
      ? ropeFromHub(fields, headDim, { base, layerType: 'sliding_attention' })
      : { layout, rotaryDim, base },
    inputDim: fields.count('hidden_size_per_layer_input', 256),
    inputRows: fields.count('vocab_size_per_layer_input', 262_144),
    finalCap: capOf(fields, 'final_logit_softcapping', 30),
    streams: streamsOf(fields, 'altup_num_inputs', 'altup_active_idx'),
    laurelDim: fields.count('laurel_rank', 64),
    scalesActive: fields.boolean('altup_correct_scale', true),
    cutoffs: gemma3nCutoffs(fields, config),
  };
}

/** The file with the first value of a setting that may be a list. */
function withFirst(file: ModelFile, name: string): ModelFile {
  const list = listOf(file.fields, name);
  return list === undefined ? file : { ...file, fields: file.fields.with({ [name]: list[0] }) };
}

function streamsOf(fields: Fields, count: string, index: string): StreamSizes {
  const numStreams = fields.count(count, 4);
  const active = fields.integer(index, 0);
  if (numStreams < 2 || numStreams > 64) throw fields.refusal(count, 'a number from 2 to 64', numStreams);
  if (active >= numStreams) throw fields.refusal(index, `a number below ${numStreams}`, active);
  return { numStreams, active };
}

/** For each layer, by `activation_sparsity_pattern`, how many standard deviations above the mean gates have to be; -Infinity for none. */
export function gemma3nCutoffs(fields: Fields, config: Pick<DecoderConfig, 'numLayers'>): number[] {
  const { numLayers } = config;
  const name = 'activation_sparsity_pattern';
  const usual = Array.from({ length: numLayers }, (_, layer) =>
    numLayers > usualSparseLayers && layer < usualSparseLayers ? usualSparsity : 0,
  );
  const shares = perLayer(fields, name, config, (share) => share >= 0 && share < 1) ?? usual;
  return shares.map((share) => (share === 0 ? -Infinity : normalQuantile(share)));
}

/** A list of numbers of all layers; `undefined` without one. */
function perLayer(
  fields: Fields,
  name: string,
  { numLayers }: Pick<DecoderConfig, 'numLayers'>,
  isValid: (value: number) => boolean,
): number[] | undefined {
  const values = listOf(fields, name);
  if (values === undefined) {
    if (fields.has(name)) throw fields.refusal(name, `an array of ${numLayers}`, fields.raw(name));
    return undefined;
  }
  const isNumber = (value: unknown): value is number => typeof value === 'number' && isValid(value);
  if (values.length === numLayers && values.every(isNumber)) return values;
  throw fields.refusal(name, `an array of ${numLayers} numbers`, values);
}
