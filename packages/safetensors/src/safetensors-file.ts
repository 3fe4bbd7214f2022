/** Opens one safetensors file. */
import { readBytes, type ByteSource, type StoredTensor, type TensorStore } from '@winnow/bytes';
import { checkOptions, FormatError, type OptionNames } from '@winnow/tensor';
import { parseHeader, type Header } from './header.js';
import { MAX_HEADER_BYTES } from './limits.js';
import { withMxfp4 } from './mxfp4.js';
import { findTensor, StoredSlice, type UnsupportedTensor } from './stored-slice.js';

/** Options of `openSafetensors`. */
export interface OpenSafetensorsOptions {
  readonly signal?: AbortSignal;
}

const openSafetensorsNames: OptionNames<OpenSafetensorsOptions> = { signal: true };

/** An open file. */
export interface SafetensorsFile extends TensorStore {
  /** The tensors that can be read, in the order of the data, then MXFP4 tensors, which files store as `_blocks` and `_scales`. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Tensors of a dtype that Winnow does not support (BOOL, U8, 8-bit floats, ...), in the order of the data. */
  readonly unsupported: ReadonlyMap<string, UnsupportedTensor>;
  /** The `__metadata__` of the header, empty when there is none. */
  readonly metadata: ReadonlyMap<string, string>;
  /**
   * The tensor with this name.
   * @throws {DTypeError} naming the dtype, when the tensor is in `unsupported`
   * @throws {ArgumentError} when the file has no such tensor
   */
  tensor(name: string): StoredTensor;
  /** Closes the source. */
  close(): Promise<void>;
}

/**
 * Reads and checks the header of `source`; tensor data is only read by `StoredTensor.read`. The file takes ownership of
 * the source: `close` closes it, and so does a failure to open.
 *
 * The checks are those of the format's specification: a header of at most 100 MB inside the file, valid JSON without
 * duplicate keys, known dtypes, and tensors that cover the data section exactly, each with the size of its shape.
 * @throws {FormatError} with byte offset and field, when the file is malformed, truncated or claims a wrong size
 * @throws {IoError} when reading fails
 */
export async function openSafetensors(
  source: ByteSource,
  options: OpenSafetensorsOptions = {},
): Promise<SafetensorsFile> {
  return openPart(source, options, false);
}

/** The same. @param isPart of a sharded checkpoint, whose tensors of blocks and scales may be in different files */
export async function openPart(
  source: ByteSource,
  options: OpenSafetensorsOptions,
  isPart: boolean,
): Promise<SafetensorsFile> {
  try {
    checkOptions(options, openSafetensorsNames);
    const { entries, metadata } = await readHeader(source, options);
    const tensors = new Map<string, StoredTensor>();
    const unsupported = new Map<string, UnsupportedTensor>();
    for (const { name, type, shape, begin, end } of entries) {
      if (type.dtype === undefined) {
        const bytes = new StoredSlice(source, { name, dtype: 'i8', shape, begin, end });
        const readable = type.name === 'U8' ? { bytes } : {};
        unsupported.set(name, { name, fileDType: type.name, shape, sizeBytes: end - begin, ...readable });
      } else tensors.set(name, new StoredSlice(source, { name, dtype: type.dtype, shape, begin, end }));
    }
    const file: SafetensorsFile = {
      name: source.name,
      ...(isPart ? { tensors, unsupported } : withMxfp4({ tensors, unsupported })),
      metadata,
      tensor: (name) => findTensor(file, name),
      close: () => source.close(),
    };
    return file;
  } catch (error) {
    await source.close();
    throw error;
  }
}

async function readHeader(source: ByteSource, options: OpenSafetensorsOptions): Promise<Header> {
  const { name, sizeBytes } = source;
  const fail = (byteOffset: number, message: string): never => {
    throw new FormatError({ source: name, byteOffset, field: 'header length', message });
  };
  if (sizeBytes < 8) fail(0, `expected 8 bytes, the file has ${sizeBytes}`);
  const lengthBytes = await readBytes(source, 0, 8, options);
  const length = new DataView(lengthBytes.buffer).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) fail(0, `expected at most ${MAX_HEADER_BYTES}, found ${length}`);
  const headerBytes = Number(length);
  if (headerBytes > sizeBytes - 8) {
    fail(
      0,
      `expected at most the ${sizeBytes - 8} bytes that follow, found ${headerBytes} (truncated or not safetensors)`,
    );
  }
  return parseHeader(await readBytes(source, 8, headerBytes, options), name, sizeBytes);
}
