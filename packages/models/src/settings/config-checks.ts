/** Validation of settings, for both formats. */
import type { StoredTensor } from '@winnow/bytes';
import type { ActivationKind } from '@winnow/ops';
import { Fields } from '../file/fields.js';
import type { ModelFile } from '../program/architecture.js';
import type { DecoderConfig } from '../program/config.js';

/** Values of `hidden_act` and similar settings. */
const activations: ReadonlyMap<string, ActivationKind> = new Map([
  ['silu', 'silu'],
  ['swish', 'silu'],
  ['relu', 'relu'],
  ['relu2', 'relu2'],
  ['gelu', 'gelu-erf'],
  ['gelu_new', 'gelu-tanh'],
  ['gelu_fast', 'gelu-tanh'],
  ['gelu_pytorch_tanh', 'gelu-tanh'],
]);

/** @param fallback the value when the file does not specify one */
export function activationOf(fields: Fields, name: string, fallback = 'silu'): ActivationKind {
  const value = fields.string(name, fallback);
  const kind = activations.get(value);
  if (kind === undefined) throw fields.refusal(name, [...activations.keys()].join(', '), value);
  return kind;
}

/** A count that a file stores either once or per layer; the layers must agree. */
export function uniformCount(fields: Fields, name: string, fallback?: number): number {
  const value = fields.raw(name);
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) return fields.count(name, fallback);
  const counts = Array.from(value as ArrayLike<unknown>);
  if (counts.length === 0 || counts.some((count) => count !== counts[0])) {
    throw fields.refusal(name, 'the same number for every layer', counts);
  }
  return Fields.ofJson(fields.source, { [name]: counts[0] }).count(name);
}

/**
 * The default head size; `undefined` when the number of heads does not divide the hidden size, so that the file must
 * specify it.
 */
export function evenShare(hiddenDim: number, numHeads: number): number | undefined {
  return hiddenDim % numHeads === 0 ? hiddenDim / numHeads : undefined;
}

/** The number of rows of the embedding table, which must match the setting. */
export function vocabSizeOf(fields: Fields, table: StoredTensor | undefined, setting: unknown): number {
  const numRows = table?.shape[0];
  if (numRows === undefined) throw fields.refusal('embedding table', 'a tensor', undefined);
  if (numRows === 0) throw fields.refusal('embedding table', 'at least one row', numRows);
  if (setting !== undefined && setting !== numRows)
    throw fields.refusal('vocab_size', `${numRows} embedding rows`, setting);
  return numRows;
}

/**
 * Compares the number of layers and the sizes with the tensors of the file, before anything of that size is allocated.
 * @throws {FormatError} when sizes are inconsistent, or larger than the file has room for
 */
export function checked({ fields, store }: ModelFile, config: DecoderConfig): DecoderConfig {
  const { numLayers, hiddenDim, ffnDim, numHeads, numKvHeads, headDim, normEps } = config;
  const tensors = [...store.tensors.values()];
  const atMost = (name: string, value: number, max: number, what: string): void => {
    if (value > max) throw fields.refusal(name, `at most ${max}, ${what}`, value);
  };
  atMost('layers', numLayers, tensors.length, 'the number of tensors');
  // no single tensor bounds the sizes of experts and of tied matrices
  const numWeights = tensors.reduce((sum, { shape }) => sum + shape.reduce((product, dim) => product * dim, 1), 0);
  atMost('hidden size', hiddenDim, numWeights, 'the number of weights');
  atMost('FFN size', ffnDim, numWeights, 'the number of weights');
  atMost('attention size', numHeads * headDim, numWeights, 'the number of weights');
  if (numHeads % numKvHeads !== 0) throw fields.refusal('KV heads', `a divisor of ${numHeads} heads`, numKvHeads);
  if (!(normEps > 0 && Number.isFinite(Math.fround(normEps)))) {
    throw fields.refusal('norm epsilon', 'a positive number that f32 can hold', normEps);
  }
  return config;
}

/** Rejects unsupported settings unless their values have no effect. */
export function refuseSettings(
  fields: Fields,
  neutralValues: Readonly<Record<string, readonly unknown[]>>,
  known: readonly string[] = [],
): void {
  for (const [name, neutral] of Object.entries(neutralValues)) {
    const value = fields.raw(name);
    if (value === undefined || known.includes(name) || neutral.includes(value)) continue;
    throw fields.refusal(
      name,
      neutral.length === 0 ? 'no value, because it is not supported' : neutral.join(' or '),
      value,
    );
  }
}

/** A soft cap; `fallback` without the setting, 0 (no cap) for null. @throws {FormatError} for a negative cap */
export function capOf(fields: Fields, name: string, fallback: number): number {
  if (fields.isNull(name)) return 0;
  const cap = fields.number(name, fallback);
  if (cap < 0 || !Number.isFinite(Math.fround(cap))) throw fields.refusal(name, 'a positive number or none', cap);
  return cap;
}
