/** RoPE settings of GGUF metadata and config.json, in all variants that files use. */
import type { TensorStore } from '@winnow/bytes';
import { ropeFrequencies, type RopeScaling, type RopeTable } from '@winnow/ops';
import { ArgumentError, describeValue, FormatError } from '@winnow/tensor';
import { Fields } from '../file/fields.js';
import { collectWeights, loadWeight } from '../file/weights.js';
import type { RopeConfig } from '../program/config.js';

const ggufTypes = ['none', 'linear', 'yarn'];
const hubTypes = ['default', 'linear', 'dynamic', 'yarn', 'llama3'];

/** M-RoPE: which pairs are rotated by the time, row and column coordinates. */
export interface RopeSections {
  /** Number of pairs per coordinate, unless the settings specify it. */
  readonly sections: readonly number[];
  /** Whether row and column get every third pair, from the second and third on. Default: the sections are consecutive. */
  readonly areInterleaved?: boolean;
}

/** Defaults of config.json; with sections, pairs are rotated by three coordinates. */
export interface HubRopeDefaults extends Partial<RopeSections> {
  /** Default: 10000. */
  readonly base?: number;
  /** Rotated fraction of each head. Default: all. */
  readonly share?: number;
  /** Layer type to select from `rope_parameters` that are grouped by type. */
  readonly layerType?: string;
  /** Pairing of the rotated dimensions. Default: split halves. */
  readonly layout?: RopeConfig['layout'];
  /** Whether the caller reads the scaling. */
  readonly isPlain?: boolean;
}

/**
 * @param architecture prefix of the keys
 * @param freqFactors values of `rope_freqs.weight`, if the file has it
 * @param rope M-RoPE models have sections here; the file must specify its own
 */
export function ropeFromGguf(
  fields: Fields,
  architecture: string,
  headDim: number,
  layout: RopeConfig['layout'],
  freqFactors: Float32Array | undefined,
  rope: Partial<RopeSections> = {},
): RopeConfig {
  const base = fields.number(`${architecture}.rope.freq_base`, 10000);
  const rotaryDim = ggufRotaryDim(fields, architecture, headDim);
  const scaling: RopeScaling | undefined =
    freqFactors === undefined ? ggufScaling(fields, architecture) : { type: 'factors', factors: freqFactors };
  if (rope.sections !== undefined) {
    if (scaling !== undefined) throw fields.refusal(`${architecture}.rope.scaling.type`, 'none', scaling.type);
    return { layout, base, rotaryDim, coordinates: ggufCoordinates(fields, architecture, rotaryDim / 2, rope) };
  }
  return { layout, base, rotaryDim, ...(scaling === undefined ? {} : { scaling }) };
}

/** GGUF files have a fourth section, which images do not use. */
function ggufCoordinates(
  fields: Fields,
  architecture: string,
  numPairs: number,
  { areInterleaved = false }: Partial<RopeSections>,
): number[] {
  const name = `${architecture}.rope.dimension_sections`;
  const value = fields.raw(name);
  const list = Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as ArrayLike<unknown>) : undefined;
  const sections = list?.length === 4 && list[3] === 0 ? list.slice(0, 3) : (list ?? value);
  return coordinatesOf(fields, [name, sections], numPairs, areInterleaved);
}

/** Number of rotated dimensions per head: the whole head unless the file specifies fewer. */
export function ggufRotaryDim(fields: Fields, architecture: string, headDim: number): number {
  const name = `${architecture}.rope.dimension_count`;
  return rotaryDimOf(fields, name, fields.count(name, headDim), headDim);
}

function ggufScaling(fields: Fields, architecture: string): RopeScaling | undefined {
  const key = (name: string): string => `${architecture}.rope.scaling.${name}`;
  const legacy = fields.number(`${architecture}.rope.scale_linear`, 1);
  const factor = fields.number(key('factor'), legacy);
  const type = fields.string(key('type'), 'linear');
  if (!ggufTypes.includes(type)) throw fields.refusal(key('type'), ggufTypes.join(', '), type);
  const attention = fields.number(key('attn_factor'), 1);
  if (type !== 'yarn' && attention !== 1) throw fields.refusal(key('attn_factor'), `1 for type ${type}`, attention);
  if (type === 'none' || factor === 0 || (type === 'linear' && factor === 1)) return undefined;
  if (type === 'linear') return { type: 'linear', factor };
  return {
    type: 'yarn',
    factor,
    originalContextLength: fields.count(key('original_context_length'), fields.count(`${architecture}.context_length`)),
    betaFast: fields.number(key('yarn_beta_fast'), 32),
    betaSlow: fields.number(key('yarn_beta_slow'), 1),
    attentionFactor: attention * (factor <= 1 ? 1 : 1 + 0.1 * Math.log(factor)),
  };
}

/** Reads `rope_theta`, `rope_scaling` and `partial_rotary_factor`, or the newer `rope_parameters`. */
export function ropeFromHub(fields: Fields, headDim: number, defaults: HubRopeDefaults = {}): RopeConfig {
  const nested = hubRopeFields(fields, defaults.layerType);
  const base = nested.number('rope_theta', fields.number('rope_theta', defaults.base ?? 10000));
  const share = nested.number('partial_rotary_factor', fields.number('partial_rotary_factor', defaults.share ?? 1));
  const rotaryDim = rotaryDimOf(fields, 'partial_rotary_factor', Math.floor(headDim * share), headDim);
  const usual = { layout: defaults.layout ?? 'halves', base, rotaryDim };
  if (defaults.isPlain === true) return usual;
  if (defaults.sections !== undefined) {
    return { ...usual, coordinates: hubCoordinates(fields, nested, rotaryDim / 2, defaults) };
  }
  const scaling = hubScaling(fields, nested);
  const dynamic = hubDynamic(fields, nested);
  if (dynamic !== undefined && defaults.layerType !== undefined) {
    throw fields.refusal(
      'rope_parameters',
      'a type that does not depend on the length, because types differ between layers',
      'dynamic',
    );
  }
  return { ...usual, ...(scaling && { scaling }), ...(dynamic && { dynamic }) };
}

function hubCoordinates(
  fields: Fields,
  nested: Fields,
  numPairs: number,
  { sections: usual, areInterleaved = false }: HubRopeDefaults,
): number[] {
  const type = ropeTypeOf(nested);
  if (type !== 'default' && type !== 'mrope') throw fields.refusal('rope_scaling.rope_type', 'default or mrope', type);
  const name = 'mrope_section';
  return coordinatesOf(fields, [name, nested.raw(name) ?? usual], numPairs, areInterleaved);
}

/** The coordinate of each pair: sections for time, row and column, in this order or interleaved. */
function coordinatesOf(
  fields: Fields,
  [name, sections]: readonly [name: string, value: unknown],
  numPairs: number,
  areInterleaved: boolean,
): number[] {
  const isCount = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) >= 0;
  const isValid = Array.isArray(sections) && sections.length === 3 && sections.every(isCount);
  if (!isValid || sections.reduce((sum, count) => sum + count, 0) !== numPairs) {
    throw fields.refusal(name, `three numbers with the sum ${numPairs}, the pairs of a head`, sections);
  }
  if (!areInterleaved) return sections.flatMap((count: number, coordinate) => Array<number>(count).fill(coordinate));
  return Array.from({ length: numPairs }, (_, pair) => (pair < 3 * (sections[pair % 3] as number) ? pair % 3 : 0));
}

/** As in transformers, the original context of `dynamic` is `max_position_embeddings`, not the `original_` one. */
function hubDynamic(fields: Fields, nested: Fields): RopeConfig['dynamic'] {
  if (ropeTypeOf(nested) !== 'dynamic') return undefined;
  return { contextLength: fields.count('max_position_embeddings', 2048), factor: nested.number('factor') };
}

function ropeTypeOf(nested: Fields): string {
  return nested.string('rope_type', nested.string('type', 'default'));
}

/** The settings of `rope_parameters`, which may be grouped by layer type, or of `rope_scaling`. */
export function hubRopeFields(fields: Fields, layerType?: string): Fields {
  const merged = fields.has('rope_parameters') ? fields.raw('rope_parameters') : fields.raw('rope_scaling');
  const nested = Fields.ofJson(fields.source, merged ?? {});
  const ofType = layerType === undefined ? undefined : nested.raw(layerType);
  return ofType === undefined ? nested : Fields.ofJson(fields.source, ofType);
}

/** Whether `rope_parameters` has separate settings for this type of layers. */
export function hasRopeByLayerType(fields: Fields, layerType: string): boolean {
  const parameters = fields.raw('rope_parameters');
  return typeof parameters === 'object' && parameters !== null && Object.hasOwn(parameters, layerType);
}

function hubScaling(fields: Fields, nested: Fields): RopeScaling | undefined {
  const type = ropeTypeOf(nested);
  const trained = (): number => fields.count('max_position_embeddings', 2048);
  switch (type) {
    case 'default':
      return undefined;
    case 'dynamic': // see hubDynamic
      return undefined;
    case 'linear':
      return { type: 'linear', factor: nested.number('factor') };
    case 'llama3':
      return {
        type: 'llama3',
        factor: nested.number('factor'),
        lowFreqFactor: nested.number('low_freq_factor'),
        highFreqFactor: nested.number('high_freq_factor'),
        originalContextLength: nested.count('original_max_position_embeddings', trained()),
      };
    case 'yarn':
      return hubYarn(nested, trained);
    default:
      throw fields.refusal('rope_scaling.rope_type', hubTypes.join(', '), type);
  }
}

/** The amplitude: `attention_factor`, or the ratio of `mscale` to `mscale_all_dim`, or `1 + 0.1 ln(factor)`. */
function hubYarn(nested: Fields, trained: () => number): RopeScaling {
  const originalContextLength = nested.count('original_max_position_embeddings', trained());
  const factor = nested.number('factor', trained() / originalContextLength);
  const amplitude = (scale: number): number => (factor <= 1 ? 1 : 1 + 0.1 * scale * Math.log(factor));
  const hasScales = nested.has('mscale') && nested.has('mscale_all_dim');
  const derived = hasScales
    ? amplitude(nested.number('mscale')) / amplitude(nested.number('mscale_all_dim'))
    : amplitude(1);
  return {
    type: 'yarn',
    factor,
    originalContextLength,
    betaFast: nested.number('beta_fast', 32),
    betaSlow: nested.number('beta_slow', 1),
    attentionFactor: nested.number('attention_factor', derived),
    ...(nested.boolean('truncate', true) ? {} : { truncate: false }),
  };
}

function rotaryDimOf(fields: Fields, name: string, rotaryDim: number, headDim: number): number {
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headDim) {
    throw new FormatError({
      source: fields.source,
      field: name,
      message: `expected an even number of rotated dimensions up to the head size ${headDim}, got ${describeValue(rotaryDim)}`,
    });
  }
  return rotaryDim;
}

/**
 * The values of `rope_freqs.weight` or another tensor of factors; `undefined` without it.
 * @throws {FormatError} before reading it, when its shape is not `[numPairs]` or it does not contain floats
 */
export async function readFreqFactors(
  store: TensorStore,
  numPairs: number,
  name = 'rope_freqs.weight',
): Promise<Float32Array | undefined> {
  if (!store.tensors.has(name)) return undefined;
  const weight = collectWeights(store, [{ name, storedName: name, shape: [numPairs] }], () => true).get(name);
  const values = new Float32Array(numPairs);
  if (weight !== undefined) await loadWeight(weight, new Uint8Array(values.buffer));
  return values;
}

/**
 * Computes the RoPE frequencies from a model's settings.
 * @throws {FormatError} when the settings are invalid, such as a base or a factor of 0
 */
export function ropeTable(fields: Fields, rope: RopeConfig): RopeTable {
  try {
    return ropeFrequencies(rope);
  } catch (cause) {
    if (!(cause instanceof ArgumentError)) throw cause;
    throw new FormatError({ source: fields.source, field: 'rope', message: cause.message }, { cause });
  }
}
