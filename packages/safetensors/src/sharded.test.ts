import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { DTypeError, FormatError, IoError } from '@winnow/tensor';
import { characterAt, lastCharacter } from '@winnow/test-utils';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openShardedSafetensors, writeSafetensors } from './index.js';

async function shard(tensors: Record<string, number>, metadata: Record<string, string> = {}): Promise<Uint8Array> {
  const sink = memorySink();
  await writeSafetensors(sink, {
    tensors: Object.entries(tensors).map(([name, value]) => ({
      name,
      dtype: 'i16' as const,
      shape: [2],
      data: new Uint8Array(4).fill(value),
    })),
    metadata,
  });
  return sink.toBytes();
}

const shards: Record<string, Uint8Array> = {
  'model-1.safetensors': await shard({ a: 1, b: 2 }, { format: 'pt', from: 'first' }),
  'model-2.safetensors': await shard({ c: 3 }, { format: 'np' }),
  'model-3.safetensors': await shard({ d: 4, a: 5 }),
};
const weightMap: Record<string, string> = {
  d: 'model-3.safetensors',
  a: 'model-1.safetensors',
  b: 'model-1.safetensors',
  c: 'model-2.safetensors',
};
const indexOf = (weights: unknown, totalSize: unknown = 16): string =>
  JSON.stringify({ metadata: { total_size: totalSize, total_parameters: 8 }, weight_map: weights });

/** Opens shards from memory and counts the open ones. */
function opener(files: Record<string, Uint8Array> = shards): {
  open: (name: string) => Promise<ByteSource>;
  numOpen: () => number;
  maxOpening: () => number;
} {
  let numOpen = 0;
  let opening = 0;
  let maxOpening = 0;
  return {
    numOpen: () => numOpen,
    maxOpening: () => maxOpening,
    async open(name) {
      const bytes = files[name];
      if (bytes === undefined) throw new IoError({ source: name, message: 'no such file' });
      const source = memorySource(bytes, name);
      numOpen++;
      maxOpening = Math.max(maxOpening, ++opening);
      let isOpen = true;
      return {
        name: source.name,
        sizeBytes: source.sizeBytes,
        async read(...args) {
          await new Promise((resolve) => setImmediate(resolve));
          await source.read(...args);
          if (args[0] === 8) opening--;
        },
        async close() {
          if (isOpen) numOpen--;
          isOpen = false;
          await source.close();
        },
      };
    },
  };
}

describe('openShardedSafetensors', () => {
  it('serves each tensor from the shard of the index', async () => {
    const { open, numOpen } = opener();
    const store = await openShardedSafetensors(indexOf(weightMap), open);
    expect([...store.tensors.keys()]).toEqual(['d', 'a', 'b', 'c']);
    for (const [name, value] of Object.entries({ a: 1, b: 2, c: 3, d: 4 })) {
      const target = new Uint8Array(4);
      await store.tensor(name).read(target);
      expect([...target]).toEqual([value, value, value, value]);
    }
    expect(store.unindexed).toEqual([{ name: 'a', shardName: 'model-3.safetensors' }]);
    expect(Object.fromEntries(store.metadata)).toEqual({ format: 'pt', from: 'first' });
    expect(store.shardNames).toEqual(['model-1.safetensors', 'model-2.safetensors', 'model-3.safetensors']);
    expect(numOpen()).toBe(3);
    await store.close();
    expect(numOpen()).toBe(0);
  });

  it('opens a bounded number concurrently', async () => {
    const many: Record<string, Uint8Array> = {};
    const weights: Record<string, string> = {};
    for (let i = 0; i < 20; i++) {
      many[`m-${i}`] = await shard({ [`t${i}`]: i });
      weights[`t${i}`] = `m-${i}`;
    }
    for (const maxParallel of [1, 3]) {
      const { open, maxOpening } = opener(many);
      await openShardedSafetensors(indexOf(weights, 80), open, { maxParallel });
      expect(maxOpening()).toBe(maxParallel);
    }
  });

  it('names the dtype of a listed tensor', async () => {
    const header = '{"x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}';
    const bytes = Buffer.concat([Buffer.alloc(8), Buffer.from(header), Buffer.alloc(2)]);
    bytes.writeBigUInt64LE(BigInt(header.length));
    const store = await openShardedSafetensors(indexOf({ x: 'm' }, 2), opener({ m: bytes }).open);
    expect(store.unsupported.get('x')).toMatchObject({ fileDType: 'F8_E4M3', shape: [2], sizeBytes: 2 });
    expect(() => store.tensor('x')).toThrow(DTypeError);
  });
});

describe('indexes', () => {
  it.each([
    ['a tensor that its shard lacks', indexOf({ ...weightMap, c: 'model-1.safetensors' }), 'weight_map.c'],
    ['a wrong total size', indexOf(weightMap, 20), 'metadata.total_size'],
    ['a negative total size', indexOf(weightMap, -1), 'metadata.total_size'],
    ['a total size in words', indexOf(weightMap, '16'), 'metadata.total_size'],
    ['a parent folder', indexOf({ a: '../model-1.safetensors' }), 'weight_map.a'],
    ['the folder above', indexOf({ a: '..' }), 'weight_map.a'],
    ['a folder', indexOf({ a: 'x/model-1.safetensors' }), 'weight_map.a'],
    ['a backslash', indexOf({ a: '..\\model' }), 'weight_map.a'],
    ['a drive', indexOf({ a: 'C:model' }), 'weight_map.a'],
    ['a NUL', indexOf({ a: 'x\0' }), 'weight_map.a'],
    ['no name', indexOf({ a: '' }), 'weight_map.a'],
    ['a number as shard', indexOf({ a: 1 }), 'weight_map.a'],
    ['a list as map', indexOf([]), 'weight_map'],
    ['no map', '{"metadata":{}}', 'weight_map'],
    ['a tensor twice', '{"weight_map":{"a":"model-1.safetensors","a":"model-3.safetensors"}}', 'weight_map'],
    ['two maps', '{"weight_map":{},"weight_map":{}}', 'index'],
    ['no JSON', 'weights', 'index'],
    ['nothing', '', 'index'],
    ['more after the end', `${indexOf(weightMap)}x`, 'index'],
  ])('with %s are rejected', async (_, indexJson, field) => {
    const { open, numOpen } = opener();
    await expect(openShardedSafetensors(indexJson, open, { name: 'the.index' })).rejects.toMatchObject({
      name: 'FormatError',
      source: 'the.index',
      field,
      byteOffset: expect.any(Number),
    });
    expect(numOpen()).toBe(0);
  });

  it('may have a float as total size or none, or a wrong one on request', async () => {
    const { open } = opener();
    await openShardedSafetensors(indexOf(weightMap).replace('16', '1.6e1'), open);
    await openShardedSafetensors(indexOf(weightMap, null), open);
    await openShardedSafetensors(JSON.stringify({ metadata: null, weight_map: weightMap }), open);
    await openShardedSafetensors(indexOf(weightMap, 999), open, { checkTotalSize: false });
  });
});

describe('failures', () => {
  it('close all shards: one is missing or broken, or the signal aborts', async () => {
    const { open, numOpen } = opener();
    await expect(openShardedSafetensors(indexOf({ ...weightMap, z: 'model-9' }), open)).rejects.toThrow(IoError);
    const cut = opener({
      ...shards,
      'model-2.safetensors': (shards['model-2.safetensors'] as Uint8Array).subarray(0, -1),
    });
    await expect(openShardedSafetensors(indexOf(weightMap), cut.open)).rejects.toMatchObject({
      name: 'FormatError',
      source: 'model-2.safetensors',
    });
    await expect(openShardedSafetensors(indexOf(weightMap), open, { signal: AbortSignal.abort() })).rejects.toThrow(
      /abort/i,
    );
    expect([numOpen(), cut.numOpen()]).toEqual([0, 0]);
  });

  it('are typed errors for an index with random changes', async () => {
    const base = indexOf(weightMap);
    await fc.assert(
      fc.asyncProperty(
        fc.nat(base.length),
        fc.nat(8),
        fc.string({ unit: fc.nat(lastCharacter).map(characterAt), maxLength: 4 }),
        async (at, cut, text) => {
          const { open, numOpen } = opener();
          try {
            const store = await openShardedSafetensors(base.slice(0, at) + text + base.slice(at + cut), open);
            await store.close();
          } catch (error) {
            // another shard name is a file that is not there
            if (!(error instanceof FormatError) && !(error instanceof IoError)) throw error;
          }
          expect(numOpen()).toBe(0);
        },
      ),
      { numRuns: 500, seed: 5 },
    );
  });
});
