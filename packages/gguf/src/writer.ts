/** Writes GGUF files, tensor by tensor. */
import type { ByteSink } from '@winnow/bytes';
import {
  ArgumentError,
  checkOptions,
  type DType,
  type OptionNames,
  type Shape,
  ShapeError,
  tensorBytes,
} from '@winnow/tensor';
import { ByteWriter, checkTensorName, writeMetadataPair, writeTensorInfo } from './encode-header.js';
import { defaultGgufAlignment } from './gguf-file.js';
import { defaultGgufLimits } from './limits.js';
import type { GgufTypedValue } from './value-types.js';

/** A metadata value to write: typed, or a plain string, boolean or list of strings. */
export type GgufValueInput = GgufTypedValue | string | boolean | readonly string[];

/** A tensor to write. */
export interface GgufTensorInput {
  /** 1 to 63 bytes of UTF-8. */
  readonly name: string;
  readonly dtype: DType;
  /** Outermost dimension first, at most four. */
  readonly shape: Shape;
  /**
   * The raw little-endian bytes, `tensorBytes(dtype, shape)` in all: as one array, from a function called when they are
   * needed, or in pieces.
   */
  readonly data: Uint8Array | (() => Promise<Uint8Array>) | AsyncIterable<Uint8Array>;
}

/** The contents of the file to write. */
export interface WriteGgufOptions {
  /** Stored in this order: pairs (a `Map`, a `GgufMetadata`) or an object. */
  readonly metadata: Iterable<readonly [string, GgufValueInput]> | Readonly<Record<string, GgufValueInput>>;
  readonly tensors: Iterable<GgufTensorInput>;
  /** A power of two. Default: `general.alignment` of the metadata, else 32. */
  readonly alignment?: number;
  /** Default 3. */
  readonly version?: 2 | 3;
  /** Checked before each piece of data is written. */
  readonly signal?: AbortSignal;
}

const writeGgufNames: OptionNames<WriteGgufOptions> = {
  metadata: true,
  tensors: true,
  alignment: true,
  version: true,
  signal: true,
};

/**
 * Writes a GGUF file to `sink` and closes it; on any failure the sink is aborted. Only the header and one piece of
 * tensor data are in memory at a time. Everything except the data itself is validated before the first byte is written.
 * @returns the size of the file and where its tensor data starts
 * @throws {ArgumentError | ShapeError} for names, values, shapes or data that GGUF cannot represent
 * @throws {IoError} when writing fails
 */
export async function writeGguf(
  sink: ByteSink,
  options: WriteGgufOptions,
): Promise<{ sizeBytes: number; dataOffset: number }> {
  try {
    checkOptions(options, writeGgufNames);
    const tensors = [...options.tensors];
    const { header, alignment } = encodeHeader(options, tensors);
    await sink.write(header);
    let end = header.byteLength;
    for (const tensor of tensors) {
      const start = alignUp(end, alignment);
      if (start > end) await sink.write(new Uint8Array(start - end));
      const sizeBytes = tensorBytes(tensor.dtype, tensor.shape);
      await writeData(sink, tensor, sizeBytes, options.signal);
      end = start + sizeBytes;
    }
    await sink.close();
    return { sizeBytes: end, dataOffset: header.byteLength };
  } catch (error) {
    await sink.abort();
    throw error;
  }
}

function alignUp(offset: number, alignment: number): number {
  return offset + ((alignment - (offset % alignment)) % alignment);
}

/** The header including its padding. */
function encodeHeader(
  options: WriteGgufOptions,
  tensors: readonly GgufTensorInput[],
): { header: Uint8Array; alignment: number } {
  const pairs = new Map<string, GgufTypedValue>();
  const { metadata } = options;
  const given = Symbol.iterator in metadata ? metadata : Object.entries(metadata);
  for (const [key, value] of given as Iterable<readonly [string, GgufValueInput]>) {
    if (pairs.has(key)) throw new ArgumentError({ argument: 'metadata', expected: 'each key once', actual: key });
    pairs.set(key, typedValue(value));
  }
  const alignment = chooseAlignment(options.alignment, pairs);

  const version = options.version ?? 3;
  if (version !== 2 && version !== 3) {
    throw new ArgumentError({ argument: 'version', expected: '2 or 3', actual: String(version) });
  }
  const writer = new ByteWriter();
  writer.bytes(new TextEncoder().encode('GGUF'));
  writer.uint32(version);
  writer.uint64(tensors.length);
  writer.uint64(pairs.size);
  for (const [key, value] of pairs) writeMetadataPair(writer, key, value);

  const names = new Set<string>();
  let relativeOffset = 0;
  for (const { name, dtype, shape } of tensors) {
    checkTensorName(name);
    if (names.has(name)) throw new ArgumentError({ argument: 'tensors', expected: 'each name once', actual: name });
    names.add(name);
    if (shape.length > defaultGgufLimits.maxDims) {
      throw new ShapeError({
        op: 'writeGguf',
        rule: `dimensions of ${name}`,
        expected: `at most ${defaultGgufLimits.maxDims}`,
        actual: String(shape.length),
      });
    }
    const sizeBytes = tensorBytes(dtype, shape);
    writeTensorInfo(writer, { name, dtype, shape, relativeOffset });
    relativeOffset = alignUp(relativeOffset + sizeBytes, alignment);
  }
  writer.padTo(alignment);
  return { header: writer.toBytes(), alignment };
}

/** Adds the alignment to the metadata where it is not the default. */
function chooseAlignment(asked: number | undefined, pairs: Map<string, GgufTypedValue>): number {
  const key = 'general.alignment';
  const stored = pairs.get(key);
  if (stored !== undefined && stored.type !== 'uint32') {
    throw new ArgumentError({ argument: key, expected: 'type uint32', actual: `type ${stored.type}` });
  }
  const alignment = asked ?? stored?.value ?? defaultGgufAlignment;
  if (!Number.isInteger(alignment) || alignment < 1 || alignment > 2 ** 31 || !Number.isInteger(Math.log2(alignment))) {
    throw new ArgumentError({ argument: 'alignment', expected: 'a power of two', actual: String(alignment) });
  }
  if (stored !== undefined && stored.value !== alignment) {
    const actual = `alignment ${alignment} and ${key} ${stored.value}`;
    throw new ArgumentError({ argument: 'alignment', expected: `the same as ${key}`, actual });
  }
  if (stored === undefined && alignment !== defaultGgufAlignment) pairs.set(key, { type: 'uint32', value: alignment });
  return alignment;
}

function typedValue(value: GgufValueInput): GgufTypedValue {
  if (typeof value === 'string') return { type: 'string', value };
  if (typeof value === 'boolean') return { type: 'bool', value };
  return isTexts(value) ? { type: 'array', elementType: 'string', value } : value;
}

function isTexts(value: GgufTypedValue | readonly string[]): value is readonly string[] {
  return Array.isArray(value);
}

async function writeData(
  sink: ByteSink,
  { name, data }: GgufTensorInput,
  sizeBytes: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  let written = 0;
  for await (const piece of piecesOf(data)) {
    signal?.throwIfAborted();
    written += piece.byteLength;
    if (written > sizeBytes) break;
    await sink.write(piece);
  }
  if (written !== sizeBytes) {
    const actual = written > sizeBytes ? `${written} or more` : String(written);
    throw new ArgumentError({ argument: `data of ${name}`, expected: `${sizeBytes} bytes`, actual });
  }
}

async function* piecesOf(data: GgufTensorInput['data']): AsyncIterable<Uint8Array> {
  if (data instanceof Uint8Array) yield data;
  else if (typeof data === 'function') yield await data();
  else yield* data;
}
