/** Parses `model.safetensors.index.json`: which shard holds which tensor. */
import { FormatError } from '@winnow/tensor';
import { JsonCursor, shown } from './json-cursor.js';
import { MAX_INDEX_BYTES, MAX_SHARDS, MAX_TENSORS } from './limits.js';

/** A checked index. */
export interface ShardIndex {
  /** Tensor name to shard file name, in the order of the file. */
  readonly weightMap: ReadonlyMap<string, string>;
  /** Shard file names, sorted. */
  readonly shardNames: readonly string[];
  /** `metadata.total_size`: bytes of all tensors, if the index declares it. */
  readonly totalSize: number | undefined;
  /** Byte offset of the entry of a tensor in the text. */
  entryOffset(tensorName: string): number;
  /** Byte offset of `total_size` in the text. */
  readonly totalSizeOffset: number;
}

/**
 * Parses the text of an index. Shard names must be plain file names: an index cannot point outside of its folder.
 * @throws {FormatError} with byte offset and field
 */
export function parseShardIndex(indexJson: string, source = 'model.safetensors.index.json'): ShardIndex {
  if (indexJson.length > MAX_INDEX_BYTES) {
    throw new FormatError({
      source,
      byteOffset: 0,
      field: 'index',
      message: `expected at most ${MAX_INDEX_BYTES} bytes, found ${indexJson.length} characters`,
    });
  }
  const cursor = new JsonCursor(new TextEncoder().encode(indexJson), source, 0);
  const weightMap = new Map<string, string>();
  const offsets = new Map<string, number>();
  const shardNames = new Set<string>();
  let hasWeightMap = false;
  let totalSize: number | undefined;
  let totalSizeOffset = 0;
  cursor.readObject('index', (key) => {
    if (key === 'weight_map') {
      hasWeightMap = true;
      cursor.readObject('weight_map', (name, nameOffset) => {
        const field = `weight_map.${name}`;
        if (weightMap.size === MAX_TENSORS) cursor.fail('weight_map', `more than ${MAX_TENSORS} tensors`, nameOffset);
        cursor.peek();
        const shardOffset = cursor.byteOffset;
        const shardName = cursor.readString(field);
        checkShardName(cursor, field, shardName, shardOffset);
        shardNames.add(shardName);
        if (shardNames.size > MAX_SHARDS) cursor.fail(field, `more than ${MAX_SHARDS} shards`, shardOffset);
        weightMap.set(name, shardName);
        offsets.set(name, nameOffset);
      });
    } else if (key === 'metadata' && !cursor.tryNull()) {
      cursor.readObject('metadata', (name) => {
        if (name !== 'total_size' || cursor.tryNull()) {
          if (name !== 'total_size') cursor.skipValue(`metadata.${name}`);
          return;
        }
        cursor.peek();
        totalSizeOffset = cursor.byteOffset;
        totalSize = cursor.readNumber('metadata.total_size'); // some writers store 1.3e10 or a trailing .0
        if (!Number.isSafeInteger(totalSize) || totalSize < 0) {
          cursor.fail('metadata.total_size', `expected a number of bytes, found ${totalSize}`, totalSizeOffset);
        }
      });
    } else if (key !== 'metadata') cursor.skipValue(key);
  });
  cursor.expectEnd('index');
  if (!hasWeightMap) cursor.fail('weight_map', 'missing', 0);
  return {
    weightMap,
    shardNames: [...shardNames].sort(),
    totalSize,
    totalSizeOffset,
    entryOffset: (name) => offsets.get(name) ?? 0,
  };
}

function checkShardName(cursor: JsonCursor, field: string, name: string, byteOffset: number): void {
  if (name === '' || name === '.' || name.includes('..') || /[/\\:\0]/.test(name)) {
    cursor.fail(field, `expected a plain file name in the folder of the index, found "${shown(name)}"`, byteOffset);
  }
}
