/** Every broken file is rejected with a FormatError or read as a consistent model. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { memorySource } from '@winnow/bytes';
import { fileSource } from '@winnow/bytes/node';
import { FormatError, tensorBytes } from '@winnow/tensor';
import { beforeAll, describe, expect, it } from 'vitest';
import { fuzzCases, fuzzFolder, fuzzIndex } from '../test/make-fuzz.js';
import { counted, ggufBytes, padded, sampleModel } from '../test/support.js';
import { defaultGgufLimits, openGguf, type GgufFile, type GgufLimits } from './index.js';

/** Opens `bytes`; `undefined` when they are rejected with a FormatError. */
async function tryOpen(bytes: Uint8Array): Promise<GgufFile | undefined> {
  const source = counted(memorySource(bytes));
  try {
    const file = await openGguf(source);
    expect(source.readBytes).toBeLessThanOrEqual(bytes.byteLength);
    return file;
  } catch (error) {
    expect(source.readBytes).toBeLessThanOrEqual(bytes.byteLength);
    expect(source.numCloses).toBe(0);
    if (!(error instanceof FormatError)) throw error;
    expect(error.byteOffset).toBeTypeOf('number');
    expect(error.byteOffset).toBeLessThanOrEqual(bytes.byteLength);
    expect(error.field).not.toBe('');
    return undefined;
  }
}

/** Checks everything that callers rely on, without the reader's own code. */
async function expectSound(file: GgufFile, bytes: Uint8Array): Promise<void> {
  const ranges: [number, number][] = [];
  for (const tensor of file.tensors.values()) {
    expect(tensor.sizeBytes).toBe(tensorBytes(tensor.dtype, tensor.shape));
    expect((tensor.byteOffset - file.dataOffset) % file.alignment).toBe(0);
    expect(tensor.byteOffset).toBeGreaterThanOrEqual(file.dataOffset);
    expect(tensor.byteOffset + tensor.sizeBytes).toBeLessThanOrEqual(bytes.byteLength);
    const data = new Uint8Array(tensor.sizeBytes);
    await tensor.read(data);
    expect(data).toEqual(bytes.subarray(tensor.byteOffset, tensor.byteOffset + tensor.sizeBytes));
    if (tensor.sizeBytes > 0) ranges.push([tensor.byteOffset, tensor.byteOffset + tensor.sizeBytes]);
  }
  ranges.sort(([a], [b]) => a - b);
  for (let index = 1; index < ranges.length; index++) {
    expect(ranges[index]![0]).toBeGreaterThanOrEqual(ranges[index - 1]![1]);
  }
  expect([...file.metadata]).toHaveLength(file.metadata.size);
}

let bytes: Uint8Array;
let dataOffset: number;
let dataEnd: number;
beforeAll(async () => {
  bytes = await ggufBytes(sampleModel());
  const file = await openGguf(memorySource(bytes));
  ({ dataOffset } = file);
  dataEnd = Math.max(...[...file.tensors.values()].map((tensor) => tensor.byteOffset + tensor.sizeBytes));
});

describe('the saved corpus', () => {
  it('matches the output of the script', () => {
    expect(readFileSync(join(fuzzFolder, 'index.json'), 'utf8')).toBe(fuzzIndex);
    expect(readdirSync(fuzzFolder).sort()).toEqual([...fuzzCases.map(({ file }) => file), 'index.json'].sort());
    for (const { file, bytes: made } of fuzzCases) {
      expect(new Uint8Array(readFileSync(join(fuzzFolder, file))), file).toEqual(made);
    }
  });

  it.each(fuzzCases)('$file is rejected for $field at byte $byteOffset', async ({ file, field, byteOffset }) => {
    const source = await fileSource(join(fuzzFolder, file));
    const error: unknown = await openGguf(source).catch((thrown: unknown) => thrown);
    await source.close();
    expect(error).toBeInstanceOf(FormatError);
    const found = error as FormatError;
    expect({ field: found.field, byteOffset: found.byteOffset, source: found.source }).toEqual({
      field,
      byteOffset,
      source: source.name,
    });
  });
});

describe('truncated files', () => {
  it('are rejected at open, wherever they end', async () => {
    expect(dataEnd).toBe(bytes.byteLength);
    for (let size = 0; size < bytes.byteLength; size++) {
      expect(await tryOpen(bytes.subarray(0, size)), `${size} bytes`).toBeUndefined();
    }
    expect(await tryOpen(bytes)).toBeDefined();
  });
});

describe('changed files', () => {
  it('with random bits flipped are rejected or consistent', async () => {
    let numRefused = 0;
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.nat(dataOffset - 1), fc.nat(7)), { minLength: 1, maxLength: 4 }),
        async (flips) => {
          const changed = bytes.slice();
          for (const [offset, bit] of flips) changed[offset]! ^= 1 << bit;
          const file = await tryOpen(changed);
          if (file === undefined) numRefused++;
          else await expectSound(file, changed);
        },
      ),
      { numRuns: 3000 },
    );
    expect(numRefused).toBeGreaterThan(1000);
  });

  it('with one bit of the header flipped are rejected or consistent, for every bit', async () => {
    for (let bit = 0; bit < dataOffset * 8; bit++) {
      const changed = bytes.slice();
      changed[bit >> 3]! ^= 1 << (bit & 7);
      const file = await tryOpen(changed);
      if (file !== undefined) await expectSound(file, changed);
    }
  });
});

describe('changed numbers and lengths', () => {
  it('a huge number anywhere in the header is rejected or consistent', async () => {
    const values = [2n ** 64n - 1n, 2n ** 63n, 2n ** 53n, 2n ** 53n - 1n, 2n ** 40n, 2n ** 32n - 1n, 1n << 20n];
    values.push(BigInt(bytes.byteLength), BigInt(bytes.byteLength + 1), 0n);
    for (let offset = 0; offset + 8 <= dataOffset; offset++) {
      for (const value of values) {
        const changed = bytes.slice();
        new DataView(changed.buffer).setBigUint64(offset, value, true);
        const file = await tryOpen(changed);
        if (file !== undefined) await expectSound(file, changed);
      }
    }
  });

  it('inserted and removed bytes are rejected or consistent', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.nat(dataOffset),
        fc.nat(20),
        fc.uint8Array({ maxLength: 20 }),
        async (offset, numTaken, put) => {
          const rest = bytes.subarray(Math.min(offset + numTaken, bytes.byteLength));
          const changed = Uint8Array.of(...bytes.subarray(0, offset), ...put, ...rest);
          const file = await tryOpen(changed);
          if (file !== undefined) await expectSound(file, changed);
        },
      ),
      { numRuns: 1000 },
    );
  });

  it('random bytes after the magic are rejected or consistent', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fc.nat(3), fc.nat(3), async (tail, numTensors, numPairs) => {
        const head = await ggufBytes();
        const changed = Uint8Array.of(...head.subarray(0, 24), ...tail);
        changed[8] = numTensors;
        changed[16] = numPairs;
        const file = await tryOpen(changed);
        if (file !== undefined) await expectSound(file, changed);
      }),
      { numRuns: 1000 },
    );
  });
});

describe('limits', () => {
  /** A file so large that every claimed size fits. */
  const refusal = async (head: Uint8Array, limits: Partial<GgufLimits> = {}): Promise<[FormatError, number]> => {
    const source = counted(padded(head, 2 ** 50));
    const error: unknown = await openGguf(source, { limits }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(FormatError);
    return [error as FormatError, source.readBytes];
  };

  it.each<[keyof GgufLimits, number, number]>([
    ['maxTensors', 8, 2 ** 40],
    ['maxMetadataPairs', 16, 2 ** 40],
    ['maxKeyBytes', 24, 2 ** 40],
  ])('%s applies even if the file is large enough for the claim', async (limit, offset, value) => {
    const head = await ggufBytes(sampleModel());
    new DataView(head.buffer).setBigUint64(offset, BigInt(value), true);
    const [error, readBytes] = await refusal(head);
    expect(error.message).toContain(`(${limit}), got ${value}`);
    expect(readBytes).toBeLessThanOrEqual(64 * 1024);
  });

  it.each<[keyof GgufLimits, number]>([
    ['maxTensors', 2],
    ['maxMetadataPairs', 11],
    ['maxKeyBytes', 19],
    ['maxTensorNameBytes', 5],
    ['maxStringBytes', 4],
    ['maxArrayLength', 3],
    ['maxArrayNesting', 1],
    ['maxNestedArrays', 1],
    ['maxDims', 1],
    ['maxHeaderBytes', 500],
  ])('%s can be set: the sample model just exceeds %d', async (limit, value) => {
    const [error] = await refusal(bytes, { [limit]: value });
    expect(error.message).toContain(limit);
    const enough = { [limit]: limit === 'maxHeaderBytes' ? dataOffset : value + 1 };
    const file = await openGguf(memorySource(bytes), { limits: enough });
    expect(file.tensors.size).toBe(3);
  });

  it('bound the header that an endless file makes the reader read', async () => {
    // one array of empty strings of the maximum length: endless zeros
    const metadata = { a: { type: 'array', elementType: 'string', value: [] } } as const;
    const head = await ggufBytes({ metadata });
    new DataView(head.buffer).setBigUint64(24 + 9 + 4 + 4, BigInt(defaultGgufLimits.maxArrayLength), true);
    const [error, readBytes] = await refusal(head, { maxHeaderBytes: 1024 * 1024 });
    expect(error.message).toContain('maxHeaderBytes');
    expect(readBytes).toBeLessThanOrEqual(1024 * 1024);
  });
});
