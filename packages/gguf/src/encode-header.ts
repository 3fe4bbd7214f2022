/** Encodes the header of a GGUF file in memory: metadata and tensor infos. */
import { ArgumentError, dtypeInfo, type DType, type Shape } from '@winnow/tensor';
import { metadataField } from './metadata.js';
import {
  ggufTypes,
  minValueBytes,
  type GgufArray,
  type GgufNumberType,
  type GgufType,
  type GgufTypedValue,
} from './value-types.js';

/** A growable little-endian byte buffer. */
export class ByteWriter {
  #buffer: Uint8Array<ArrayBuffer> = new Uint8Array(4096);
  #view: DataView = new DataView(this.#buffer.buffer);
  #sizeBytes = 0;
  readonly #encoder = new TextEncoder();

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  toBytes(): Uint8Array<ArrayBuffer> {
    return this.#buffer.subarray(0, this.#sizeBytes);
  }

  uint32(value: number): void {
    const at = this.#advance(4); // may replace the view
    this.#view.setUint32(at, value, true);
    this.#sizeBytes += 4;
  }

  uint64(value: number | bigint): void {
    const at = this.#advance(8);
    this.#view.setBigUint64(at, BigInt(value), true);
    this.#sizeBytes += 8;
  }

  /** One metadata value that is neither string nor array. */
  scalar(type: GgufType, value: number | bigint | boolean): void {
    const numBytes = minValueBytes[type];
    const at = this.#advance(numBytes);
    const view = this.#view;
    if (type === 'uint64') view.setBigUint64(at, BigInt(value), true);
    else if (type === 'int64') view.setBigInt64(at, BigInt(value), true);
    else if (type === 'float32') view.setFloat32(at, Number(value), true);
    else if (type === 'float64') view.setFloat64(at, Number(value), true);
    else if (numBytes === 1) view.setUint8(at, Number(value));
    else if (numBytes === 2) view.setUint16(at, Number(value), true);
    else view.setUint32(at, Number(value), true);
    this.#sizeBytes += numBytes;
  }

  /** Length and UTF-8 bytes of a well-formed string. */
  string(text: string): void {
    // one UTF-16 unit is at most three bytes of UTF-8
    const at = this.#advance(8 + text.length * 3);
    const { written } = this.#encoder.encodeInto(text, this.#buffer.subarray(at + 8));
    this.uint64(written);
    this.#sizeBytes += written;
  }

  bytes(bytes: Uint8Array): void {
    const at = this.#advance(bytes.byteLength);
    this.#buffer.set(bytes, at);
    this.#sizeBytes += bytes.byteLength;
  }

  padTo(alignment: number): void {
    const padding = (alignment - (this.#sizeBytes % alignment)) % alignment;
    this.#advance(padding);
    this.#sizeBytes += padding; // fresh memory is zero
  }

  /** Reserves space and returns its offset. */
  #advance(numBytes: number): number {
    const end = this.#sizeBytes + numBytes;
    if (end > this.#buffer.byteLength) {
      const grown = new Uint8Array(Math.max(end, this.#buffer.byteLength * 2));
      grown.set(this.toBytes());
      this.#buffer = grown;
      this.#view = new DataView(grown.buffer);
    }
    return this.#sizeBytes;
  }
}

const typeNumbers: ReadonlyMap<string, number> = new Map(ggufTypes.map((type, number) => [type, number]));

function typeNumber(type: string, argument: string): number {
  const number = typeNumbers.get(type);
  if (number === undefined) throw new ArgumentError({ argument, expected: ggufTypes.join(' | '), actual: type });
  return number;
}

/** Writes a key and its value. @throws {ArgumentError} when GGUF cannot represent them */
export function writeMetadataPair(writer: ByteWriter, key: string, value: GgufTypedValue): void {
  const field = metadataField(key);
  if (key === '') throw new ArgumentError({ argument: field, expected: 'a name', actual: 'an empty string' });
  checkText(key, field);
  writer.string(key);
  writer.uint32(typeNumber(value.type, `${field}.type`));
  writeValue(writer, value, field);
}

function writeValue(writer: ByteWriter, value: GgufTypedValue, field: string): void {
  if (value.type === 'array') writeArray(writer, value, field);
  else if (value.type === 'string') {
    checkText(value.value, field);
    writer.string(value.value);
  } else {
    checkScalar(value.type, value.value, field);
    writer.scalar(value.type, value.value);
  }
}

function writeArray(writer: ByteWriter, array: GgufArray, field: string): void {
  writer.uint32(typeNumber(array.elementType, `${field}.elementType`));
  writer.uint64(array.value.length);
  if (array.elementType === 'array') {
    array.value.forEach((element, index) => writeArray(writer, element, `${field}[${index}]`));
    return;
  }
  for (let index = 0; index < array.value.length; index++) {
    const element = array.value[index] as string | number | bigint | boolean;
    if (array.elementType === 'string') {
      checkText(element, field);
      writer.string(element);
    } else {
      checkScalar(array.elementType, element, field);
      writer.scalar(array.elementType, element);
    }
  }
}

function checkText(value: unknown, argument: string): asserts value is string {
  if (typeof value !== 'string' || !value.isWellFormed()) {
    const actual = typeof value === 'string' ? 'a lone surrogate' : typeof value;
    throw new ArgumentError({ argument, expected: 'well-formed text', actual });
  }
}

const integerRanges: Readonly<Partial<Record<GgufType, readonly [bigint, bigint]>>> = {
  uint8: [0n, 0xffn],
  int8: [-0x80n, 0x7fn],
  uint16: [0n, 0xffffn],
  int16: [-0x8000n, 0x7fffn],
  uint32: [0n, 0xffff_ffffn],
  int32: [-0x8000_0000n, 0x7fff_ffffn],
  uint64: [0n, 2n ** 64n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
};

function checkScalar(
  type: GgufNumberType | 'uint64' | 'int64' | 'bool',
  value: unknown,
  argument: string,
): asserts value is number | bigint | boolean {
  const range = integerRanges[type];
  const fits =
    range === undefined
      ? typeof value === (type === 'bool' ? 'boolean' : 'number')
      : (typeof value === 'bigint' || Number.isSafeInteger(value)) &&
        (value as number | bigint) >= range[0] &&
        (value as number | bigint) <= range[1];
  if (!fits) throw new ArgumentError({ argument, expected: `a value of type ${type}`, actual: String(value) });
}

/** Writes a tensor info. */
export function writeTensorInfo(
  writer: ByteWriter,
  info: { name: string; dtype: DType; shape: Shape; relativeOffset: number },
): void {
  writer.string(info.name);
  writer.uint32(info.shape.length);
  for (const dim of info.shape.toReversed()) writer.uint64(dim);
  writer.uint32(dtypeInfo(info.dtype).ggmlType);
  writer.uint64(info.relativeOffset);
}

/** llama.cpp stores names in 64 bytes including the terminating zero. */
const maxNameBytes = 63;

/** @throws {ArgumentError} for a name that readers reject */
export function checkTensorName(name: string): void {
  checkText(name, 'tensor name');
  const numBytes = new TextEncoder().encode(name).byteLength;
  if (numBytes === 0 || numBytes > maxNameBytes) {
    const expected = `1 to ${maxNameBytes} bytes`;
    throw new ArgumentError({ argument: 'tensor name', expected, actual: `${JSON.stringify(name)} (${numBytes})` });
  }
}
