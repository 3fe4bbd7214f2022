/**
 * Low-rank adapters (LoRA, arXiv:2106.09685): `y = W x + scale B (A x)` with A `[rank, numInputs]` and B `[numOutputs,
 * rank]`. Reads GGUF files written by llama.cpp's convert_lora_to_gguf, and PEFT safetensors with their
 * adapter_config.json.
 */
import type { StoredTensor, TensorStore } from '@winnow/bytes';
import { decoder, dtypeInfo, FormatError, formatShape, numElements } from '@winnow/tensor';
import type { Fields } from '../file/fields.js';

/** An open adapter: GGUF metadata or adapter_config.json, and its tensors. */
export interface LoraFile {
  readonly format: 'gguf' | 'safetensors';
  readonly fields: Fields;
  readonly store: TensorStore;
}

/** The two factors for one matrix of the base model. */
export interface LoraPart {
  readonly rank: number;
  readonly numInputs: number;
  readonly numOutputs: number;
  readonly a: Float32Array; // [rank, numInputs]
  readonly b: Float32Array; // [numOutputs, rank], times the adapter's own scale
}

/** An adapter in memory. */
export interface Lora {
  readonly name: string;
  readonly format: LoraFile['format'];
  /** By the name of the matrix without `.weight`: a GGUF name or a module name. */
  readonly parts: ReadonlyMap<string, LoraPart>;
}

/** Maximum number of values of one factor: a vocabulary of a million tokens at rank 512. */
const maxFactorValues = 2 ** 29;

/** @throws {FormatError} for an unsupported kind of adapter, and for inconsistent factors */
export async function readLora(file: LoraFile, signal?: AbortSignal): Promise<Lora> {
  const { format, fields, store } = file;
  if (format === 'gguf') {
    expectValue(fields, 'general.type', 'adapter');
    expectValue(fields, 'adapter.type', 'lora');
  } else checkPeft(fields);
  const pairs = new Map<string, { a?: StoredTensor; b?: StoredTensor }>();
  for (const [name, tensor] of store.tensors) {
    const found = format === 'gguf' ? ggufName(name) : peftName(name);
    if (found === undefined) throw refusal(store.name, name, 'expected a factor of a matrix, lora_a or lora_b');
    const pair = pairs.get(found.target) ?? {};
    pair[found.factor] = tensor;
    pairs.set(found.target, pair);
  }
  if (pairs.size === 0) throw refusal(store.name, 'tensors', 'expected at least one pair of factors, got none');
  const parts = new Map<string, LoraPart>();
  for (const [target, { a, b }] of pairs) {
    if (a === undefined || b === undefined) {
      throw refusal(
        store.name,
        target,
        `expected lora_a and lora_b, got only ${a === undefined ? 'lora_b' : 'lora_a'}`,
      );
    }
    parts.set(target, await readPart(file, target, a, b, signal));
  }
  return { name: store.name, format, parts };
}

function refusal(source: string, field: string, message: string): FormatError {
  return new FormatError({ source, field, message });
}

function expectValue(fields: Fields, name: string, expected: string): void {
  const value = fields.string(name);
  if (value !== expected) throw fields.refusal(name, expected, value);
}

function ggufName(name: string): { target: string; factor: 'a' | 'b' } | undefined {
  const match = /^(.+)\.weight\.lora_([ab])$/.exec(name);
  return match === null ? undefined : { target: match[1] as string, factor: match[2] as 'a' | 'b' };
}

function peftName(name: string): { target: string; factor: 'a' | 'b' } | undefined {
  const match = /^(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.[\w-]+)?\.weight$/.exec(name);
  if (match === null) return undefined;
  return { target: match[1] as string, factor: (match[2] as string).toLowerCase() as 'a' | 'b' };
}

/** Settings that change the meaning of the tensors. */
function checkPeft(fields: Fields): void {
  expectValue(fields, 'peft_type', 'LORA');
  for (const name of ['use_dora', 'lora_bias', 'use_qalora']) {
    if (fields.boolean(name, false)) throw fields.refusal(name, 'false', true);
  }
  const bias = fields.string('bias', 'none');
  if (bias !== 'none') throw fields.refusal('bias', 'none', bias);
  for (const name of ['modules_to_save', 'trainable_token_indices']) {
    const value = fields.raw(name);
    const isEmpty = value === undefined || (Array.isArray(value) && value.length === 0);
    if (!isEmpty) throw fields.refusal(name, 'no value, because it is not supported', value);
  }
}

async function readPart(
  { format, fields, store }: LoraFile,
  target: string,
  a: StoredTensor,
  b: StoredTensor,
  signal: AbortSignal | undefined,
): Promise<LoraPart> {
  const [rank, numInputs] = a.shape;
  const [numOutputs, rankOfB] = b.shape;
  const isPair = a.shape.length === 2 && b.shape.length === 2 && rank === rankOfB;
  if (!isPair || rank === undefined || numInputs === undefined || numOutputs === undefined || rank === 0) {
    const message = `expected A [rank, inputs] and B [outputs, rank], got ${formatShape(a.shape)} and ${formatShape(b.shape)}`;
    throw refusal(store.name, target, message);
  }
  const scale = format === 'gguf' ? ggufScale(fields, rank) : peftScale(fields, target, rank);
  const valuesB = await readValues(store.name, b, signal);
  for (let i = 0; i < valuesB.length; i++) valuesB[i] = (valuesB[i] as number) * scale;
  return { rank, numInputs, numOutputs, a: await readValues(store.name, a, signal), b: valuesB };
}

async function readValues(source: string, tensor: StoredTensor, signal?: AbortSignal): Promise<Float32Array> {
  const { name, dtype, shape, sizeBytes } = tensor;
  const numValues = numElements(shape);
  const isFloat = dtypeInfo(dtype).isQuantized || ['f32', 'f16', 'bf16', 'f64'].includes(dtype);
  if (!isFloat || numValues > maxFactorValues) {
    throw refusal(source, name, `expected at most ${maxFactorValues} numbers, got ${numValues} as ${dtype}`);
  }
  const bytes = new Uint8Array(sizeBytes);
  await tensor.read(bytes, signal === undefined ? {} : { signal });
  const values = new Float32Array(numValues);
  decoder(dtype)(bytes, 0, values, 0, numValues);
  return values;
}

/** llama.cpp: `alpha / rank`, or 1 without alpha. */
function ggufScale(fields: Fields, rank: number): number {
  const alpha = fields.number('adapter.lora.alpha', 0);
  return alpha === 0 ? 1 : alpha / rank;
}

/** PEFT: `alpha / rank`, or `alpha / sqrt(rank)` (rsLoRA, arXiv:2312.03732); patterns match the ends of module names. */
function peftScale(fields: Fields, target: string, rank: number): number {
  const expectedRank = patternValue(fields, 'rank_pattern', target) ?? fields.count('r');
  if (expectedRank !== rank) throw fields.refusal(`r of ${target}`, String(rank), expectedRank);
  const alpha = patternValue(fields, 'alpha_pattern', target) ?? fields.number('lora_alpha', 8);
  return alpha / (fields.boolean('use_rslora', false) ? Math.sqrt(rank) : rank);
}

function patternValue(fields: Fields, name: string, target: string): number | undefined {
  const patterns = fields.raw(name) ?? {};
  if (typeof patterns !== 'object' || Array.isArray(patterns)) throw fields.refusal(name, 'an object', patterns);
  for (const [pattern, value] of Object.entries(patterns)) {
    if (!matchesModule(fields, name, pattern, target)) continue;
    if (typeof value === 'number' && Number.isFinite(value)) return value;
    throw fields.refusal(`${name}.${pattern}`, 'a number', value);
  }
  return undefined;
}

/** Maximum length of a pattern: patterns come from untrusted files. */
const maxPatternLength = 200;

/** Matches a module name as PEFT does: by name, suffix or regular expression, `(.*\.)?(pattern)$`. */
function matchesModule(fields: Fields, name: string, pattern: string, target: string): boolean {
  const plain = pattern.replace(/^\^/, '').replace(/\$$/, '');
  if (/^[\w.]+$/.test(plain)) return target === plain || target.endsWith(`.${plain}`);
  if (pattern.length > maxPatternLength || /[+*}]\)?[+*{]/.test(pattern)) {
    throw fields.refusal(`${name}.${pattern.slice(0, 60)}`, 'the name of a module', 'a pattern that is too long');
  }
  try {
    return new RegExp(`^(?:.*\\.)?(?:${plain})$`).test(target);
  } catch {
    throw fields.refusal(`${name}.${pattern}`, 'a regular expression', pattern);
  }
}
