/**
 * A program as 32-bit words, which WASM workers and native threads interpret without JavaScript.
 *
 * Per record: `opcode, length, layer` (`recordWords`), then each input and output in the order of the spec, then each attribute. A
 * tensor is `0` if absent (an optional input or an output that was not requested), else `rank + 1, dtype, address low,
 * address high, dims...` (`tensorWords`); a dim is a size, or `-1 - w` when it is word `w` of the scalar block. An attribute is an
 * integer, the bits of an f32, the index of the chosen string, or 0 / 1. `length` counts the words of the record
 * including the opcode.
 */
import { CapacityError, dtypeInfo, dtypeOfGgmlType, invariant, type DType } from '@winnow/tensor';
import { opcodeOf, opSpec, specOfOpcode } from '../ops/registry.js';
import type { AttributeSpec, AttributeValue } from '../spec/op-spec.js';
import type { Program, TensorRef } from './program.js';

/** The first words of a record, then its tensors. */
export const recordWords = { opcode: 0, length: 1, layer: 2, tensors: 3 } as const;
/** The words of a tensor in a record. An absent one has the first word only, which is 0. */
export const tensorWords = { rankPlusOne: 0, dtype: 1, addressLow: 2, addressHigh: 3, dims: 4 } as const;

const f32 = new Float32Array(1);
const bitsOfF32 = new Int32Array(f32.buffer);

/**
 * @param addressOf byte address of a program buffer in the memory of the executing threads
 * @throws {CapacityError} for an axis of 2^31 elements or more
 */
export function encodeProgram(program: Program, addressOf: (buffer: number) => number): Int32Array {
  const words: number[] = [];
  for (const record of program.records) {
    const begin = words.length;
    words.push(opcodeOf(record.op), 0, record.layer);
    const spec = opSpec(record.op);
    for (const name of Object.keys(spec.inputs)) encodeTensor(program, record.inputs[name], addressOf, words);
    for (const name of Object.keys(spec.outputs)) encodeTensor(program, record.outputs[name], addressOf, words);
    for (const [name, attribute] of Object.entries(spec.attributes)) {
      words.push(encodeAttribute(attribute, record.attributes[name] as AttributeValue));
    }
    words[begin + recordWords.length] = words.length - begin;
  }
  return Int32Array.from(words);
}

/** A record of no layer with one tensor and no attributes, for jobs of a backend that are no ops. */
export function encodeJob(opcode: number, ggmlType: number, address: number, dims: readonly number[]): number[] {
  const words = [opcode, 0, -1];
  pushTensor(words, ggmlType, address, dims);
  words[recordWords.length] = words.length;
  return words;
}

function pushTensor(words: number[], ggmlType: number, address: number, dims: readonly number[]): void {
  const low = address >>> 0;
  words.push(dims.length + 1, ggmlType, low | 0, (address - low) / 2 ** 32, ...dims);
}

function encodeTensor(
  program: Program,
  tensor: TensorRef | undefined,
  addressOf: (buffer: number) => number,
  words: number[],
): void {
  if (tensor === undefined) {
    words.push(0);
    return;
  }
  const dims = tensor.shape.map((dim) => {
    if (typeof dim === 'number' && dim > 0x7fffffff) {
      throw new CapacityError({
        resource: `axis of ${tensor.name}`,
        needed: dim,
        available: 0x7fffffff,
        unit: 'elements',
      });
    }
    return typeof dim === 'number' ? dim : -1 - (program.scalars.slots.get(dim)?.wordOffset as number);
  });
  pushTensor(words, dtypeInfo(tensor.dtype).ggmlType, addressOf(tensor.buffer) + tensor.byteOffset, dims);
}

function encodeAttribute({ kind, values, integer }: AttributeSpec, value: AttributeValue): number {
  if (kind === 'boolean') return value === true ? 1 : 0;
  if (kind === 'string') return (values as readonly string[]).indexOf(value as string);
  if (integer === true) return value as number;
  f32[0] = value as number;
  return bitsOfF32[0];
}

/** A decoded record: addresses instead of buffers, words instead of symbols. */
export interface DecodedRecord {
  readonly op: string;
  readonly layer: number;
  readonly inputs: Readonly<Record<string, DecodedTensor>>;
  readonly outputs: Readonly<Record<string, DecodedTensor>>;
  readonly attributes: Readonly<Record<string, AttributeValue>>;
}

export interface DecodedTensor {
  readonly address: number;
  readonly dtype: DType;
  readonly dims: readonly number[]; // size, or -1 - word of the scalar block
}

/** Decodes words as an interpreter in another language would, to test the format. */
export function decodeProgram(words: Int32Array): DecodedRecord[] {
  const records: DecodedRecord[] = [];
  let at = 0;
  const tensors = (names: string[]): Record<string, DecodedTensor> => {
    const result: Record<string, DecodedTensor> = {};
    for (const name of names) {
      const rank = words[at + tensorWords.rankPlusOne] - 1;
      if (rank < 0) {
        at += 1;
        continue;
      }
      const dtype = dtypeOfGgmlType(words[at + tensorWords.dtype]);
      invariant(dtype !== undefined, 'encoded dtype is known');
      const address = (words[at + tensorWords.addressLow] >>> 0) + words[at + tensorWords.addressHigh] * 2 ** 32;
      at += tensorWords.dims;
      result[name] = { address, dtype, dims: Array.from(words.subarray(at, at + rank)) };
      at += rank;
    }
    return result;
  };
  while (at < words.length) {
    const end = at + words[at + recordWords.length];
    const spec = specOfOpcode(words[at + recordWords.opcode]);
    const layer = words[at + recordWords.layer];
    at += recordWords.tensors;
    const inputs = tensors(Object.keys(spec.inputs));
    const outputs = tensors(Object.keys(spec.outputs));
    const attributes: Record<string, AttributeValue> = {};
    for (const [name, attribute] of Object.entries(spec.attributes)) {
      attributes[name] = decodeAttribute(attribute, words[at++]);
    }
    invariant(at === end, 'record length matches its contents');
    records.push({ op: spec.name, layer, inputs, outputs, attributes });
  }
  return records;
}

function decodeAttribute({ kind, values, integer }: AttributeSpec, word: number): AttributeValue {
  if (kind === 'boolean') return word !== 0;
  if (kind === 'string') return (values as readonly string[])[word];
  if (integer === true) return word;
  bitsOfF32[0] = word;
  return f32[0];
}

/** The dims of a tensor with symbols read from the scalar block. */
export function resolveDims(dims: readonly number[], scalars: Int32Array): number[] {
  return dims.map((dim) => (dim < 0 ? scalars[-1 - dim] : dim));
}
