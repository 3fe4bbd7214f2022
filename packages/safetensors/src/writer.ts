/** Writes a safetensors file front to back, one tensor at a time. */
import type { ByteSink, StoredTensor } from '@winnow/bytes';
import {
  ArgumentError,
  checkOptions,
  type DType,
  DTypeError,
  type OptionNames,
  type Shape,
  ShapeError,
  tensorBytes,
} from '@winnow/tensor';
import { fileDTypeFor, type FileDType } from './dtypes.js';
import { MAX_DIMS, MAX_HEADER_BYTES, MAX_METADATA_ENTRIES, MAX_TENSORS } from './limits.js';

/** A tensor to write: its bytes (little-endian, row-major), or a stored tensor of any format. */
export type TensorToWrite =
  | { readonly name: string; readonly dtype: DType; readonly shape: Shape; readonly data: Uint8Array }
  | StoredTensor;

/** The contents of the file to write. */
export interface WriteSafetensorsOptions {
  /** In any order. The file stores them by descending alignment of their dtype, then by name, as upstream does. */
  readonly tensors: Iterable<TensorToWrite>;
  readonly metadata?: ReadonlyMap<string, string> | Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

const writeNames: OptionNames<WriteSafetensorsOptions> = { tensors: true, metadata: true, signal: true };

/** Number of bytes of a stored tensor in memory at a time. */
const copyChunkBytes = 4 * 1024 * 1024;

/** The JSON starts after its 8-byte length and is padded to a multiple of this, so that data starts aligned. */
const headerAlignment = 8;

interface Planned {
  readonly tensor: TensorToWrite;
  readonly type: FileDType;
  readonly nameBytes: Uint8Array;
  readonly sizeBytes: number;
}

/**
 * Writes header and data to `sink` and closes it; on any failure the sink is aborted, so no partial file remains.
 * Stored tensors are copied in pieces of a few megabytes. Everything is validated before the first byte is written.
 * @returns the size of the file
 * @throws {DTypeError} for a dtype that the format lacks (the quantized ones)
 * @throws {ArgumentError} for a duplicate or reserved name, or a header above the format's limit
 * @throws {ShapeError} when the size of a tensor's bytes does not match its dtype and shape
 * @throws {IoError} when reading a stored tensor or writing fails
 */
export async function writeSafetensors(
  sink: ByteSink,
  options: WriteSafetensorsOptions,
): Promise<{ sizeBytes: number }> {
  try {
    checkOptions(options, writeNames);
    const planned = plan(options.tensors);
    await sink.write(encodeHeader(planned, options.metadata), 0);
    for (const { tensor, sizeBytes } of planned) {
      options.signal?.throwIfAborted();
      if ('data' in tensor) {
        if (sizeBytes > 0) await sink.write(tensor.data);
      } else await copy(tensor, sink, options.signal);
    }
    const { sizeBytes } = sink;
    await sink.close();
    return { sizeBytes };
  } catch (error) {
    await sink.abort();
    throw error;
  }
}

async function copy(tensor: StoredTensor, sink: ByteSink, signal: AbortSignal | undefined): Promise<void> {
  const buffer = new Uint8Array(Math.min(copyChunkBytes, tensor.sizeBytes));
  for (let byteOffset = 0; byteOffset < tensor.sizeBytes; byteOffset += buffer.byteLength) {
    const piece = buffer.subarray(0, Math.min(buffer.byteLength, tensor.sizeBytes - byteOffset));
    await tensor.read(piece, signal === undefined ? { byteOffset } : { byteOffset, signal });
    await sink.write(piece);
  }
}

function plan(tensors: Iterable<TensorToWrite>): Planned[] {
  const encoder = new TextEncoder();
  const planned: Planned[] = [];
  const names = new Set<string>();
  for (const tensor of tensors) {
    const { name, dtype, shape } = tensor;
    checkText('tensor name', name);
    if (name === '__metadata__') {
      throw new ArgumentError({ argument: 'tensor name', expected: 'anything but the reserved key', actual: name });
    }
    if (names.has(name)) {
      throw new ArgumentError({ argument: 'tensor name', expected: 'distinct names', actual: `"${name}" twice` });
    }
    names.add(name);
    checkCount('tensors', names.size, MAX_TENSORS);
    const type = fileDTypeFor(dtype);
    if (type === undefined) {
      throw new DTypeError({
        op: `writeSafetensors(${name})`,
        expected: 'f32 | f16 | bf16 | f64 | i8 | i16 | i32 | i64',
        actual: dtype,
      });
    }
    const sizeBytes = tensorBytes(dtype, shape);
    const actual = 'data' in tensor ? tensor.data.byteLength : tensor.sizeBytes;
    if (shape.length > MAX_DIMS || actual !== sizeBytes) {
      const isTooDeep = shape.length > MAX_DIMS;
      throw new ShapeError({
        op: `writeSafetensors(${name})`,
        rule: isTooDeep ? 'dimensions' : `bytes of ${dtype} [${shape.join(', ')}]`,
        expected: isTooDeep ? `at most ${MAX_DIMS}` : String(sizeBytes),
        actual: String(isTooDeep ? shape.length : actual),
      });
    }
    planned.push({ tensor, type, nameBytes: encoder.encode(name), sizeBytes });
  }
  return planned.sort((a, b) => b.type.writeRank - a.type.writeRank || compareBytes(a.nameBytes, b.nameBytes));
}

function encodeHeader(planned: readonly Planned[], metadata: WriteSafetensorsOptions['metadata']): Uint8Array {
  const members: string[] = [];
  const pairs = metadata === undefined ? [] : metadata instanceof Map ? [...metadata] : Object.entries(metadata);
  checkCount('metadata', pairs.length, MAX_METADATA_ENTRIES);
  if (pairs.length > 0) {
    for (const [key, value] of pairs) {
      checkText('metadata key', key);
      checkText(`metadata.${key}`, value);
    }
    members.push(`"__metadata__":{${pairs.map(([k, v]) => `${JSON.stringify(k)}:${JSON.stringify(v)}`).join(',')}}`);
  }
  let begin = 0;
  for (const { tensor, type, sizeBytes } of planned) {
    const end = begin + sizeBytes;
    members.push(
      `${JSON.stringify(tensor.name)}:{"dtype":"${type.name}","shape":[${tensor.shape.join(',')}],"data_offsets":[${begin},${end}]}`,
    );
    begin = end;
  }
  const json = new TextEncoder().encode(`{${members.join(',')}}`);
  const length = Math.ceil(json.byteLength / headerAlignment) * headerAlignment;
  if (length > MAX_HEADER_BYTES || !Number.isSafeInteger(8 + length + begin)) {
    throw new ArgumentError({
      argument: 'tensors',
      expected: `a header of at most ${MAX_HEADER_BYTES} bytes and a file below 2^53`,
      actual: `${length} and ${begin}`,
    });
  }
  const bytes = new Uint8Array(8 + length).fill(0x20);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(length), true);
  bytes.set(json, 8);
  return bytes;
}

function checkText(argument: string, text: unknown): void {
  if (typeof text !== 'string' || !text.isWellFormed()) {
    throw new ArgumentError({
      argument,
      expected: 'a well-formed string',
      actual: typeof text === 'string' ? 'an unpaired surrogate' : typeof text,
    });
  }
}

/** Whatever the reader would reject is not written. */
function checkCount(argument: string, count: number, limit: number): void {
  if (count > limit) throw new ArgumentError({ argument, expected: `at most ${limit}`, actual: String(count) });
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}
