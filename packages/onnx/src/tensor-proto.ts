/** Initializers: reads their header and locates their data. */
import { readBytes, type ByteSource } from '@winnow/bytes';
import { CapacityError, FormatError, type DType } from '@winnow/tensor';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { maxDims, maxListedValues, maxTensorHeaderBytes } from './limits.js';
import { decodeMessage, wireError, wireFields } from './wire.js';

/** Supported element types, by their number in TensorProto. */
const elementTypes: Readonly<Record<number, readonly [type: OnnxType, bits: number]>> = {
  1: ['f32', 32],
  2: ['u8', 8],
  3: ['i8', 8],
  5: ['i16', 16],
  6: ['i32', 32],
  7: ['i64', 64],
  9: ['u8', 8],
  10: ['f16', 16],
  11: ['f64', 64],
  16: ['bf16', 16],
  21: ['u4', 4],
  22: ['i4', 4],
};

/** Types of initializers; `u8`, `u4` and `i4` occur in quantized ones only. */
export type OnnxType =
  | Extract<DType, 'f32' | 'f16' | 'bf16' | 'f64' | 'i8' | 'i16' | 'i32' | 'i64'>
  | 'u8'
  | 'u4'
  | 'i4';

/** An initializer. Its data is not read until `read` is called. */
export interface OnnxTensor {
  readonly name: string;
  readonly type: OnnxType;
  readonly shape: readonly number[];
  readonly sizeBytes: number;
  read(target: Uint8Array, options?: { byteOffset?: number; signal?: AbortSignal }): Promise<void>;
}

/** Opens a file of external data next to the model. */
export type OpenExternal = (location: string) => Promise<ByteSource>;

interface Header {
  name: string;
  type: number;
  isExternal: boolean;
  readonly dims: number[];
  readonly external: Map<string, string>;
  data: { readonly begin: number; readonly end: number } | undefined;
  /** Values encoded as varints. */
  listed: { readonly begin: number; readonly end: number } | undefined;
}

/** @throws {FormatError} for a tensor whose data does not match its shape */
export async function readTensorProto(
  source: ByteSource,
  begin: number,
  end: number,
  openExternal: OpenExternal | undefined,
  signal?: AbortSignal,
): Promise<OnnxTensor | undefined> {
  const header = await readHeader(source, begin, end, signal);
  const { name, dims, external } = header;
  const fail = (message: string): FormatError => wireError(source.name, begin, `initializer ${name}`, message);
  const known = elementTypes[header.type];
  if (known === undefined) return undefined;
  const [type, bits] = known;
  if (dims.length > maxDims) throw fail(`expected at most ${maxDims} dimensions, got ${dims.length}`);
  let numValues = 1;
  for (const dim of dims) {
    numValues *= dim;
    if (!Number.isSafeInteger(dim) || dim < 0 || !Number.isSafeInteger(numValues * 8)) {
      throw fail(`expected non-negative dimensions with a product below 2^53, got [${dims.join(', ')}]`);
    }
  }
  const sizeBytes = Math.ceil((numValues * bits) / 8);
  if (header.isExternal) {
    const range = externalRange(external, sizeBytes, fail);
    return { name, type, shape: dims, sizeBytes, read: externalReader(range, sizeBytes, openExternal, fail) };
  }
  if (header.data === undefined && header.listed !== undefined) {
    const bytes = await listedValues(source, header.listed, numValues, bits, fail, signal);
    return { name, type, shape: dims, sizeBytes, read: memoryReader(name, bytes) };
  }
  const range = header.data ?? { begin: end, end };
  if (range.end - range.begin !== sizeBytes) {
    throw fail(`expected ${sizeBytes} bytes of data for ${type} [${dims.join(', ')}], got ${range.end - range.begin}`);
  }
  return {
    name,
    type,
    shape: dims,
    sizeBytes,
    read(target, { byteOffset = 0, ...options } = {}) {
      checkRange(name, sizeBytes, byteOffset, target.length);
      return source.read(range.begin + byteOffset, target, options);
    },
  };
}

function checkRange(name: string, sizeBytes: number, byteOffset: number, length: number): void {
  if (byteOffset >= 0 && byteOffset + length <= sizeBytes) return;
  throw new CapacityError({
    resource: `data of ${name}`,
    needed: byteOffset + length,
    available: sizeBytes,
    unit: 'bytes',
  });
}

async function readHeader(source: ByteSource, begin: number, end: number, signal?: AbortSignal): Promise<Header> {
  const header: Header = {
    name: '',
    type: 0,
    isExternal: false,
    dims: [],
    external: new Map(),
    data: undefined,
    listed: undefined,
  };
  for await (const field of wireFields(source, begin, end, 'initializer', signal)) {
    const small = async (): Promise<Uint8Array> => {
      const length = field.end - field.begin;
      if (length > maxTensorHeaderBytes) {
        throw wireError(source.name, field.begin, 'initializer', `field ${field.number} has ${length} bytes`);
      }
      return readBytes(source, field.begin, length, signal === undefined ? {} : { signal });
    };
    switch (field.number) {
      case 1: // dims, packed or repeated
        if (field.wireType === 0) header.dims.push(field.value);
        else header.dims.push(...unpacked(await small(), source.name, field.begin));
        if (header.dims.length > maxDims) throw wireError(source.name, field.begin, 'dims', `more than ${maxDims}`);
        break;
      case 2:
        header.type = field.value;
        break;
      case 4: // float_data and double_data are little-endian when packed
      case 10:
        if (field.wireType === 2) header.data = { begin: field.begin, end: field.end };
        break;
      case 5:
      case 7:
        if (field.wireType === 2) header.listed = { begin: field.begin, end: field.end };
        break;
      case 8:
        header.name = new TextDecoder().decode(await small());
        break;
      case 9:
        header.data = { begin: field.begin, end: field.end };
        break;
      case 13: {
        const [key, value] = externalEntry(await small(), source.name, field.begin);
        header.external.set(key, value);
        break;
      }
      case 14:
        header.isExternal = field.value === 1;
        break;
      default:
        break;
    }
  }
  return header;
}

/** Key and value of one entry of `external_data`. */
function externalEntry(bytes: Uint8Array, source: string, byteOffset: number): [string, string] {
  let [key, value] = ['', ''];
  decodeMessage(source, byteOffset, 'external data', bytes, (number, reader) => {
    if (number === 1) key = reader.string();
    else if (number === 2) value = reader.string();
    else return false;
    return true;
  });
  return [key, value];
}

function unpacked(bytes: Uint8Array, source: string, byteOffset: number): number[] {
  const values: number[] = [];
  try {
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) values.push(Number(reader.int64()));
  } catch (cause) {
    throw new FormatError(
      { source, byteOffset, field: 'packed numbers', message: 'expected varints, the data ends inside one' },
      { cause },
    );
  }
  return values;
}

/** `int32_data` also holds small integers and f16, one varint each. */
async function listedValues(
  source: ByteSource,
  { begin, end }: { readonly begin: number; readonly end: number },
  numValues: number,
  bits: number,
  fail: (message: string) => FormatError,
  signal?: AbortSignal,
): Promise<Uint8Array> {
  if (numValues > maxListedValues || bits < 8) throw fail(`expected raw data for ${numValues} values of ${bits} bits`);
  const values = unpacked(
    await readBytes(source, begin, end - begin, signal === undefined ? {} : { signal }),
    source.name,
    begin,
  );
  if (values.length !== numValues) throw fail(`expected ${numValues} values, got ${values.length}`);
  const bytes = new Uint8Array((numValues * bits) / 8);
  const view = new DataView(bytes.buffer);
  values.forEach((value, index) => {
    if (bits === 8) view.setUint8(index, value);
    else if (bits === 16) view.setUint16(2 * index, value, true);
    else if (bits === 32) view.setInt32(4 * index, value, true);
    else view.setBigInt64(8 * index, BigInt(value), true);
  });
  return bytes;
}

function memoryReader(name: string, bytes: Uint8Array): OnnxTensor['read'] {
  return async (target, { byteOffset = 0 } = {}) => {
    checkRange(name, bytes.length, byteOffset, target.length);
    target.set(bytes.subarray(byteOffset, byteOffset + target.length));
  };
}

interface ExternalRange {
  readonly location: string;
  readonly offset: number;
}

function externalRange(
  external: ReadonlyMap<string, string>,
  sizeBytes: number,
  fail: (message: string) => FormatError,
): ExternalRange {
  const location = external.get('location');
  const isSafe =
    location !== undefined &&
    location !== '' &&
    !/^([\\/]|[A-Za-z]:)|\\|\0/.test(location) &&
    !location.split('/').includes('..');
  if (!isSafe) throw fail(`expected a file name beside the model as location, got ${JSON.stringify(location ?? null)}`);
  const number = (key: string, fallback: number): number => {
    const text = external.get(key);
    const value = text === undefined ? fallback : Number(text);
    if (!Number.isSafeInteger(value) || value < 0) throw fail(`expected ${key} to be a number of bytes, got ${text}`);
    return value;
  };
  const length = number('length', sizeBytes);
  if (length !== sizeBytes) throw fail(`expected ${sizeBytes} bytes of external data, got ${length}`);
  return { location, offset: number('offset', 0) };
}

function externalReader(
  { location, offset }: ExternalRange,
  sizeBytes: number,
  openExternal: OpenExternal | undefined,
  fail: (message: string) => FormatError,
): OnnxTensor['read'] {
  return async (target, { byteOffset = 0, ...options } = {}) => {
    checkRange(location, sizeBytes, byteOffset, target.length);
    if (openExternal === undefined) throw fail(`its data is in ${location}, which cannot be opened here`);
    const file = await openExternal(location);
    if (offset + sizeBytes > file.sizeBytes) {
      throw fail(`its data ends at byte ${offset + sizeBytes} of ${location}, which has ${file.sizeBytes}`);
    }
    await file.read(offset + byteOffset, target, options);
  };
}
