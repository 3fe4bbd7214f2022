/** Opens one GGUF file of version 2 or 3: reads the header, checks it, and leaves the tensor data on disk. */
import type { ByteSource, StoredTensor, TensorStore } from '@winnow/bytes';
import { checkOptions, IoError, type OptionNames, ReleasedError } from '@winnow/tensor';
import { HeaderReader } from './header-reader.js';
import { defaultGgufLimits, type GgufLimits } from './limits.js';
import { GgufMetadata, metadataField, type GgufMetadataEntry } from './metadata.js';
import { parseMetadata } from './parse-metadata.js';
import { checkLayout, minTensorInfoBytes, parseTensorInfos, type TensorInfo } from './parse-tensors.js';

/** Options of `openGguf`. */
export interface OpenGgufOptions {
  /** Limits to override; the others keep their defaults. */
  readonly limits?: Partial<GgufLimits>;
  /** Aborts reading the header. */
  readonly signal?: AbortSignal;
}

export const openGgufNames: OptionNames<OpenGgufOptions> = {
  limits: {
    maxTensors: true,
    maxMetadataPairs: true,
    maxKeyBytes: true,
    maxTensorNameBytes: true,
    maxStringBytes: true,
    maxArrayLength: true,
    maxArrayNesting: true,
    maxNestedArrays: true,
    maxDims: true,
    maxHeaderBytes: true,
  },
  signal: true,
};

/** A tensor of a GGUF file. */
export interface GgufTensor extends StoredTensor {
  /** Offset of its data in its file. */
  readonly byteOffset: number;
  /** Index into `GgufFile.parts`. */
  readonly partIndex: number;
}

/** One of the files that make up a model. */
export interface GgufPart {
  readonly name: string;
  readonly sizeBytes: number;
  /** Where the tensor data starts. */
  readonly dataOffset: number;
  readonly numTensors: number;
}

/** An open GGUF model. Tensor data is read on demand; `close` closes the source. */
export interface GgufFile extends TensorStore {
  readonly version: number;
  readonly metadata: GgufMetadata;
  /** Tensors start at multiples of this many bytes after `dataOffset`. */
  readonly alignment: number;
  readonly tensors: ReadonlyMap<string, GgufTensor>;
  /** Where the tensor data starts (in a split model: in its first part). */
  readonly dataOffset: number;
  /** One entry for a single file, all parts of a split model. */
  readonly parts: readonly GgufPart[];
}

/** The alignment of a file that does not declare one. */
export const defaultGgufAlignment = 32;

// Name length, a byte of name, type, a byte of value.
const minMetadataPairBytes = 8 + 1 + 4 + 1;

/**
 * Opens a GGUF file. Reads its header in growing chunks, never the tensor data. The result owns `source`; when opening
 * fails, `source` stays open.
 * @throws {FormatError} with byte offset and field, when the file is not little-endian GGUF v2 or v3, violates the
 *   format or a limit, is truncated, or is one part of a split model (see `openSplitGguf`)
 * @throws {IoError} when reading fails
 */
export async function openGguf(source: ByteSource, options: OpenGgufOptions = {}): Promise<GgufFile> {
  checkOptions(options, openGgufNames);
  const file = await openPart(source, 0, options);
  const numParts = file.metadata.getInteger('split.count', 1);
  if (numParts > 1) {
    const no = file.metadata.getInteger('split.no', 0);
    throw file.metadata.error(
      'split.count',
      `expected a whole model, got part ${no + 1} of ${numParts}: open it with openSplitGguf`,
    );
  }
  return file;
}

/** Opens one file: a whole model or one part. */
export async function openPart(source: ByteSource, partIndex: number, options: OpenGgufOptions): Promise<GgufFile> {
  const limits = { ...defaultGgufLimits, ...options.limits };
  const reader = new HeaderReader(source, limits, options.signal);
  const version = await parseVersion(reader);
  const numTensors = await reader.count('numTensors', minTensorInfoBytes, 'maxTensors');
  const numPairs = await reader.count('numMetadataPairs', minMetadataPairBytes, 'maxMetadataPairs');
  const entries = await parseMetadata(reader, numPairs);
  const alignment = alignmentOf(reader, entries);
  const infos = await parseTensorInfos(reader, numTensors);
  const headerEnd = reader.cursor.position;
  const dataOffset = headerEnd + ((alignment - (headerEnd % alignment)) % alignment);
  checkLayout(reader, infos, alignment, dataOffset, source.sizeBytes);

  const data = new TensorData(source);
  const tensors = new Map<string, GgufTensor>();
  for (const info of infos) {
    tensors.set(info.name, createTensor(data, info, dataOffset + info.relativeOffset, partIndex));
  }
  return {
    name: source.name,
    version,
    metadata: new GgufMetadata(source.name, entries),
    alignment,
    tensors,
    dataOffset,
    parts: [{ name: source.name, sizeBytes: source.sizeBytes, dataOffset, numTensors }],
    close: () => data.close(),
  };
}

/** The tensor data of an open file. */
class TensorData {
  readonly #source: ByteSource;
  #isOpen = true;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /** Reads a range of a tensor's bytes. @throws {IoError | ReleasedError} */
  async read(
    { name, sizeBytes }: TensorInfo,
    tensorOffset: number,
    target: Uint8Array,
    { byteOffset = 0, ...options }: { readonly byteOffset?: number; readonly signal?: AbortSignal },
  ): Promise<void> {
    if (!this.#isOpen) throw new ReleasedError(this.#source.name);
    const end = byteOffset + target.byteLength;
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0 || end > sizeBytes) {
      throw new IoError({
        source: `${this.#source.name}: ${name}`,
        message: `range outside of the tensor, expected [start, end) within [0, ${sizeBytes}), got [${byteOffset}, ${end})`,
      });
    }
    await this.#source.read(tensorOffset + byteOffset, target, options);
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    await this.#source.close();
  }
}

async function parseVersion(reader: HeaderReader): Promise<number> {
  await reader.ensure(4, 'magic');
  const magic = reader.cursor.bytes(4, 'magic');
  const text = String.fromCharCode(...magic);
  if (text !== 'GGUF') {
    const found = [...magic].map((byte) => byte.toString(16).padStart(2, '0')).join(' ');
    const old = ['lmgg', 'fmgg', 'tjgg', 'algg'].includes(text) ? '  (a GGML file that predates GGUF)' : '';
    throw reader.error('magic', `expected GGUF (47 47 55 46), got ${found}${old}`, 0);
  }
  const version = await reader.uint32('version');
  if (version === 2 || version === 3) return version;
  if (version !== 0 && (version & 0xffff) === 0) {
    throw reader.error('version', 'expected a little-endian file, got a big-endian one: convert it first', 4);
  }
  throw reader.error('version', `expected 2 or 3, got ${version}`, 4);
}

function alignmentOf(reader: HeaderReader, entries: ReadonlyMap<string, GgufMetadataEntry>): number {
  const key = 'general.alignment';
  const entry = entries.get(key);
  if (entry === undefined) return defaultGgufAlignment;
  const { type, value } = entry.value;
  if (type !== 'uint32') throw reader.error(metadataField(key), `expected uint32, got ${type}`, entry.byteOffset);
  // a power of two has no bit in common with its predecessor
  if (value === 0 || (value & (value - 1)) !== 0) {
    throw reader.error(metadataField(key), `expected a power of two, got ${value}`, entry.byteOffset);
  }
  return value;
}

function createTensor(data: TensorData, info: TensorInfo, byteOffset: number, partIndex: number): GgufTensor {
  const { name, dtype, shape, sizeBytes } = info;
  return {
    name,
    dtype,
    shape,
    sizeBytes,
    byteOffset,
    partIndex,
    read: (target, options = {}) => data.read(info, byteOffset, target, options),
  };
}
