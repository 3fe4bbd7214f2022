/** Opens the lower tiers of a model's weights: the model's file, and a file of transposed matrices. */
import type { ByteSource, StoredTensor } from '@winnow/bytes';
import type { PageFile } from '@winnow/kv-cache';
import type { BufferHandle } from '@winnow/ops';
import {
  createNeuronCache,
  type NeuronCache,
  type NeuronCacheOptions,
  type NeuronPiece,
} from '@winnow/sparse-inference';
import { numElements } from '@winnow/tensor';
import type { BusyTime } from '../metrics/busy-time.js';
import type { ColdFiles } from '../memory/cold-files.js';
import { slotNames, type TieredMatrix } from './program.js';
import type { FeedForwardParts } from './parts.js';
import type { WeightTierPlan } from './plan.js';

/** Bytes of a transposed matrix that are written at a time. */
const chunkBytes = 32 * 1024 * 1024;

/** The cache of a model's weights in tiers, and the file of transposed matrices. */
export class OpenedWeightTiers {
  readonly #options: () => NeuronCacheOptions;
  readonly #copy: TransposedCopy | undefined;
  #cache: NeuronCache;

  private constructor(options: () => NeuronCacheOptions, cache: NeuronCache, copy: TransposedCopy | undefined) {
    this.#options = options;
    this.#cache = cache;
    this.#copy = copy;
  }

  /**
   * @param files where transposed matrices go; without it they are transposed again at each read
   * @throws {IoError} when a file cannot be read or written
   */
  static async open(
    parts: FeedForwardParts,
    plan: WeightTierPlan,
    files: ColdFiles | undefined,
    reads: BusyTime,
  ): Promise<OpenedWeightTiers> {
    const { signal } = parts.options;
    const copy = await copyTransposed(parts, plan, files);
    const options = (): NeuronCacheOptions => cacheOptions(parts, plan, reads, copy);
    try {
      const cache = await createNeuronCache({ ...options(), ...(signal === undefined ? {} : { signal }) });
      return new OpenedWeightTiers(options, cache, copy);
    } catch (error) {
      await copy?.file.close();
      throw error;
    }
  }

  /** The cache of the present device. */
  get cache(): NeuronCache {
    return this.#cache;
  }

  /** Fills the slots of a new device with their initial contents. @throws {IoError} */
  async refill(): Promise<void> {
    await this.#cache.close();
    this.#cache = await createNeuronCache(this.#options());
  }

  /** Closes what was opened here; the model's file stays open. */
  async close(): Promise<void> {
    try {
      await this.#cache.close();
    } finally {
      await this.#copy?.file.close();
    }
  }
}

/** A file of transposed matrices and their offsets. */
interface TransposedCopy {
  readonly file: PageFile;
  readonly offsets: ReadonlyMap<string, number>;
}

function storedOf({ weights }: FeedForwardParts, { weightName }: TieredMatrix): StoredTensor {
  const weight = weights.get(weightName);
  if (weight === undefined) throw new Error(`Winnow internal error: no weight ${weightName}`);
  return weight.stored;
}

async function copyTransposed(
  parts: FeedForwardParts,
  plan: WeightTierPlan,
  files: ColdFiles | undefined,
): Promise<TransposedCopy | undefined> {
  const transposed = plan.layers.flatMap(({ matrices }) =>
    plan.kind === 'neuron' ? matrices.filter(({ matrix }) => matrix === 'down') : [],
  );
  if (files === undefined || transposed.length === 0) return undefined;
  const file = await files.create('winnow-neurons');
  const offsets = new Map<string, number>();
  try {
    let at = 0;
    for (const matrix of transposed) {
      offsets.set(matrix.weightName, at);
      at += await copyTo(file, at, storedOf(parts, matrix), parts.options.signal);
    }
    return { file, offsets };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** The options of a cache of the present device. */
function cacheOptions(
  parts: FeedForwardParts,
  plan: WeightTierPlan,
  reads: BusyTime,
  copy: TransposedCopy | undefined,
): NeuronCacheOptions {
  const { backend, buffers } = parts;
  const copied = copy && reads.watch(pageFileSource(copy.file));
  const pieceOf = (matrix: TieredMatrix): NeuronPiece => {
    const byteOffset = copy?.offsets.get(matrix.weightName);
    return {
      name: matrix.matrix,
      dtype: matrix.dtype,
      valuesPerItem: numElements(matrix.itemShape),
      ...(byteOffset === undefined || copied === undefined
        ? { source: reads.watch(storedSource(storedOf(parts, matrix))), byteOffset: 0 }
        : { source: copied, byteOffset }),
    };
  };
  return {
    layers: plan.layers.map(({ numItems, matrices, slots, hot, warmSlots, warm, frequencies }) => ({
      numItems,
      pieces: matrices.map(pieceOf),
      ...{ slots, hot, warmSlots, warm },
      ...(frequencies === undefined ? {} : { frequencies }),
    })),
    slotMemory(index, piece) {
      const layer = plan.layers[index] as WeightTierPlan['layers'][number];
      const { matrix } = layer.matrices[piece] as TieredMatrix;
      const handle = buffers.get(slotNames.matrix(layer.layer, matrix)) as BufferHandle;
      return {
        view: () => backend.view(handle),
        write: (byteOffset, bytes) => backend.write(handle, byteOffset, bytes),
      };
    },
    warmEncoding: plan.warmEncoding,
    coldEncoding: plan.coldEncoding,
    itemName: plan.kind,
    reads: plan.reads,
  };
}

/** Streams a tensor to a file. Returns its size in bytes. */
async function copyTo(
  file: PageFile,
  byteOffset: number,
  stored: StoredTensor,
  signal: AbortSignal | undefined,
): Promise<number> {
  const chunk = new Uint8Array(Math.min(chunkBytes, stored.sizeBytes));
  for (let begin = 0; begin < stored.sizeBytes; begin += chunk.length) {
    signal?.throwIfAborted();
    const piece = chunk.subarray(0, Math.min(chunk.length, stored.sizeBytes - begin));
    await stored.read(piece, { byteOffset: begin, ...(signal === undefined ? {} : { signal }) });
    await file.write(byteOffset + begin, piece);
  }
  return stored.sizeBytes;
}

function pageFileSource(file: PageFile): ByteSource {
  return {
    name: file.name,
    sizeBytes: file.sizeBytes,
    async read(byteOffset, target, { signal } = {}) {
      signal?.throwIfAborted();
      await file.read(byteOffset, target);
    },
    close: async () => undefined,
  };
}

function storedSource(stored: StoredTensor): ByteSource {
  return {
    name: stored.name,
    sizeBytes: stored.sizeBytes,
    read: (byteOffset, target, options = {}) => stored.read(target, { ...options, byteOffset }),
    close: async () => undefined,
  };
}
