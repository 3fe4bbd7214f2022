/** Opens a checkpoint that is split over several safetensors files, as one tensor store. */
import type { ByteSource, StoredTensor, TensorStore } from '@winnow/bytes';
import { checkOptions, FormatError, type OptionNames } from '@winnow/tensor';
import { shown } from './json-cursor.js';
import { withMxfp4 } from './mxfp4.js';
import { openPart, type SafetensorsFile } from './safetensors-file.js';
import { parseShardIndex, type ShardIndex } from './shard-index.js';
import { findTensor, type UnsupportedTensor } from './stored-slice.js';

/** Options of `openShardedSafetensors`. */
export interface OpenShardedSafetensorsOptions {
  /** Name of the index in error messages. Default `model.safetensors.index.json`. */
  readonly name?: string;
  /** Maximum number of shards opened at the same time. Default 4. */
  readonly maxParallel?: number;
  /** `false` opens an index whose `metadata.total_size` is not the sum of its tensors. Default `true`. */
  readonly checkTotalSize?: boolean;
  readonly signal?: AbortSignal;
}

const openShardedNames: OptionNames<OpenShardedSafetensorsOptions> = {
  name: true,
  maxParallel: true,
  checkTotalSize: true,
  signal: true,
};

/** A tensor that a shard contains although the index does not list it there. */
export interface UnindexedTensor {
  readonly name: string;
  readonly shardName: string;
}

/** An open sharded checkpoint. */
export interface ShardedSafetensors extends TensorStore {
  /** The tensors of the index that can be read, in the order of the index. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Tensors of the index whose dtype Winnow does not support. */
  readonly unsupported: ReadonlyMap<string, UnsupportedTensor>;
  /**
   * Tensors found in shards where the index does not list them. They are not part of the checkpoint and cannot be read.
   */
  readonly unindexed: readonly UnindexedTensor[];
  readonly shardNames: readonly string[];
  /** The `__metadata__` of all shards; for a duplicate key the first shard (by name) wins. */
  readonly metadata: ReadonlyMap<string, string>;
  /** As in `SafetensorsFile`. @throws {DTypeError} @throws {ArgumentError} */
  tensor(name: string): StoredTensor;
  /** Closes all shards. */
  close(): Promise<void>;
}

/**
 * Opens the shards that `indexJson` (the text of `model.safetensors.index.json`) names, a few at a time, and checks
 * that each tensor is in the shard that the index names. Only headers are read. On any failure, all shards opened so
 * far are closed.
 * @param openShard opens a shard by its file name, which is a plain name without separators
 * @throws {FormatError} for a malformed index or shard, a tensor missing from its shard, or a wrong `total_size`
 * @throws {IoError} when a shard cannot be opened or read
 */
export async function openShardedSafetensors(
  indexJson: string,
  openShard: (fileName: string) => Promise<ByteSource>,
  options: OpenShardedSafetensorsOptions = {},
): Promise<ShardedSafetensors> {
  checkOptions(options, openShardedNames);
  const name = options.name ?? 'model.safetensors.index.json';
  const index = parseShardIndex(indexJson, name);
  const shards = await openAll(index.shardNames, openShard, options);
  const close = async (): Promise<void> => {
    await Promise.all([...shards.values()].map((shard) => shard.close()));
  };
  try {
    const collected = collect(name, index, shards);
    if (options.checkTotalSize !== false) checkTotalSize(name, index, collected);
    const metadata = new Map<string, string>();
    for (const shardName of index.shardNames) {
      for (const [key, value] of shards.get(shardName)?.metadata ?? []) {
        if (!metadata.has(key)) metadata.set(key, value);
      }
    }
    const store: ShardedSafetensors = {
      name,
      ...collected,
      ...withMxfp4(collected),
      shardNames: index.shardNames,
      metadata,
      tensor: (tensorName) => findTensor(store, tensorName),
      close,
    };
    return store;
  } catch (error) {
    await close();
    throw error;
  }
}

async function openAll(
  shardNames: readonly string[],
  openShard: (fileName: string) => Promise<ByteSource>,
  options: OpenShardedSafetensorsOptions,
): Promise<Map<string, SafetensorsFile>> {
  const shards = new Map<string, SafetensorsFile>();
  const openOptions = options.signal === undefined ? {} : { signal: options.signal };
  let next = 0;
  let failure: { error: unknown } | undefined;
  const worker = async (): Promise<void> => {
    while (next < shardNames.length && failure === undefined) {
      const shardName = shardNames[next++] as string;
      try {
        options.signal?.throwIfAborted();
        shards.set(shardName, await openPart(await openShard(shardName), openOptions, true));
      } catch (error) {
        failure ??= { error };
      }
    }
  };
  const numWorkers = Math.max(1, Math.min(options.maxParallel ?? 4, shardNames.length));
  await Promise.all(Array.from({ length: numWorkers }, worker));
  if (failure !== undefined) {
    await Promise.all([...shards.values()].map((shard) => shard.close()));
    throw failure.error;
  }
  return shards;
}

interface Collected {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly unsupported: ReadonlyMap<string, UnsupportedTensor>;
  readonly unindexed: readonly UnindexedTensor[];
}

function collect(source: string, index: ShardIndex, shards: ReadonlyMap<string, SafetensorsFile>): Collected {
  const tensors = new Map<string, StoredTensor>();
  const unsupported = new Map<string, UnsupportedTensor>();
  for (const [name, shardName] of index.weightMap) {
    const shard = shards.get(shardName);
    const tensor = shard?.tensors.get(name);
    const listed = shard?.unsupported.get(name);
    if (tensor !== undefined) tensors.set(name, tensor);
    else if (listed !== undefined) unsupported.set(name, listed);
    else {
      throw new FormatError({
        source,
        byteOffset: index.entryOffset(name),
        field: `weight_map.${shown(name)}`,
        message: `the shard "${shown(shardName)}" has no such tensor`,
      });
    }
  }
  const unindexed: UnindexedTensor[] = [];
  for (const [shardName, shard] of shards) {
    for (const name of [...shard.tensors.keys(), ...shard.unsupported.keys()]) {
      if (index.weightMap.get(name) !== shardName) unindexed.push({ name, shardName });
    }
  }
  return { tensors, unsupported, unindexed };
}

function checkTotalSize(source: string, index: ShardIndex, { tensors, unsupported }: Collected): void {
  if (index.totalSize === undefined) return;
  let sizeBytes = 0;
  for (const tensor of tensors.values()) sizeBytes += tensor.sizeBytes;
  for (const tensor of unsupported.values()) sizeBytes += tensor.sizeBytes;
  if (sizeBytes === index.totalSize) return;
  throw new FormatError({
    source,
    byteOffset: index.totalSizeOffset,
    field: 'metadata.total_size',
    message:
      `expected ${sizeBytes} bytes, the sum of its tensors, found ${index.totalSize} ` +
      '(checkTotalSize: false opens the checkpoint anyway)',
  });
}
