/**
 * Finds the first tensor with a value that is not finite, after a result turned out not to be finite. Nothing is read
 * before that.
 */
import { maxPieceBytes, type Weight } from '@winnow/models';
import type { Backend, BufferHandle, Program } from '@winnow/ops';
import { decoder, dtypeInfo, NonFiniteError, WinnowError, type DType } from '@winnow/tensor';

export interface NonFiniteSearchParts {
  readonly backend: Backend;
  readonly weights: ReadonlyMap<string, Weight>;
  readonly buffers: ReadonlyMap<string, BufferHandle>;
  readonly programs: readonly Program[];
  readonly isFileOpen: () => boolean;
}

/** What was found. */
interface Finding {
  readonly tensor?: string;
  readonly reason?: string;
}

/** Plain numbers, which every backend keeps as such in memory. */
const plainTypes: readonly DType[] = ['f32', 'f16', 'bf16'];

export class NonFiniteSearch {
  readonly #parts: NonFiniteSearchParts;
  /** Read once: the weights do not change. */
  #inWeights: Promise<Finding> | undefined;

  constructor(parts: NonFiniteSearchParts) {
    this.#parts = parts;
  }

  /**
   * Throws the error; a `NonFiniteError` with the name of the tensor.
   * @param blocks of the cache that the result was computed from; default: all
   */
  async fail(error: unknown, blocks?: readonly number[]): Promise<never> {
    if (!NonFiniteError.isInstance(error) || error.tensor !== undefined) throw error;
    const { result, value } = error;
    this.#inWeights ??= this.#searchWeights();
    const inWeights = await this.#inWeights;
    const found = inWeights.tensor === undefined ? await this.#searchCache(blocks, inWeights) : inWeights;
    throw new NonFiniteError({ result, value, ...found }, { cause: error });
  }

  async #searchWeights(): Promise<Finding> {
    const { weights } = this.#parts;
    let numUnread = 0;
    try {
      // transposed matrices hold what others do
      for (const [name, weight] of weights) {
        if (/\.(rows|columns)$/.test(name)) continue;
        const value = await this.#inWeight(weight);
        if (value === undefined) numUnread++;
        else if (!Number.isFinite(value)) return { tensor: `${weight.stored.name} (${value})` };
      }
    } catch (error) {
      if (!WinnowError.isInstance(error)) throw error;
      return { reason: `the weights could not be read again: ${error.message}` };
    }
    if (numUnread > 0) return { reason: `${numUnread} quantized weights could not be read again: the file is closed` };
    return { reason: 'all weights are finite, so an activation exceeds the range of its dtype' };
  }

  /** The first value that is not finite of a weight, or 0; undefined if it cannot be read again. */
  async #inWeight({ name, dtype, stored }: Weight): Promise<number | undefined> {
    const { backend, buffers, isFileOpen } = this.#parts;
    if (isFileOpen()) {
      return firstNonFinite(stored.dtype, stored.sizeBytes, (byteOffset, bytes) => stored.read(bytes, { byteOffset }));
    }
    const buffer = buffers.get(name);
    if (buffer === undefined || !plainTypes.includes(dtype)) return undefined;
    return firstNonFinite(dtype, buffer.sizeBytes, (byteOffset, bytes) => backend.read(buffer, byteOffset, bytes));
  }

  /** Searches keys and values, layer by layer. */
  async #searchCache(blocks: readonly number[] | undefined, otherwise: Finding): Promise<Finding> {
    const { backend, buffers, programs } = this.#parts;
    for (const { name, dtype, sizeBytes, numBlocks } of cachedTensors(programs)) {
      const blockBytes = sizeBytes / numBlocks;
      const buffer = buffers.get(name) as BufferHandle;
      for (const block of blocks ?? Array.from({ length: numBlocks }, (_, index) => index)) {
        const read: ReadBytes = (byteOffset, bytes) => backend.read(buffer, block * blockBytes + byteOffset, bytes);
        const value = await firstNonFinite(dtype, blockBytes, read);
        if (!Number.isFinite(value)) return { ...otherwise, tensor: `${name} of the KV cache (${value})` };
      }
    }
    return otherwise;
  }
}

/** Copies bytes from an offset on. */
type ReadBytes = (byteOffset: number, target: Uint8Array) => Promise<void>;

/** The first value that is not finite among `sizeBytes` bytes of whole blocks, or 0. */
async function firstNonFinite(dtype: DType, sizeBytes: number, read: ReadBytes): Promise<number> {
  const scan = scanner(dtype);
  const pieceBytes = maxPieceBytes - (maxPieceBytes % dtypeInfo(dtype).blockBytes);
  const piece = new Uint8Array(Math.min(sizeBytes, pieceBytes));
  for (let begin = 0; begin < sizeBytes; begin += piece.byteLength) {
    const bytes = piece.subarray(0, Math.min(piece.byteLength, sizeBytes - begin));
    await read(begin, bytes);
    const value = scan(bytes);
    if (!Number.isFinite(value)) return value;
  }
  return 0;
}

/** A function that returns the first value of whole blocks that is not finite, or 0. */
function scanner(dtype: DType): (bytes: Uint8Array) => number {
  const decode = decoder(dtype);
  const { blockSize, blockBytes } = dtypeInfo(dtype);
  const values = new Float32Array(blockSize * 1024);
  return (bytes) => {
    const numBlocks = Math.floor(bytes.byteLength / blockBytes);
    for (let block = 0; block < numBlocks; block += 1024) {
      const count = Math.min(1024, numBlocks - block) * blockSize;
      decode(bytes, block * blockBytes, values, 0, count);
      for (let i = 0; i < count; i++) if (!Number.isFinite(values[i])) return values[i] as number;
    }
    return 0;
  };
}

interface CachedTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly sizeBytes: number;
  readonly numBlocks: number;
}

/** Keys and values of each layer, `[numBlocks, ...]`, in the order of the layers. */
function cachedTensors(programs: readonly Program[]): readonly CachedTensor[] {
  const found = new Map<string, CachedTensor>();
  for (const { buffers, records, symbols } of programs) {
    for (const tensor of records.flatMap(({ inputs }) => Object.values(inputs))) {
      const { name, usage, sizeBytes } = buffers[tensor.buffer] as Program['buffers'][number];
      if (usage !== 'kv' || !/\.(keys|values)$/.test(name) || tensor.shape.length !== 4 || found.has(name)) continue;
      const [rows] = tensor.shape as readonly [number | string, ...unknown[]];
      const numBlocks = typeof rows === 'number' ? rows : (symbols.get(rows) as number);
      found.set(name, { name, dtype: tensor.dtype, sizeBytes, numBlocks });
    }
  }
  return [...found.values()];
}
