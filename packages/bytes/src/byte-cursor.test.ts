import fc from 'fast-check';
import { FormatError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import { ByteCursor, memorySource, type ByteSource } from './index.js';

const sample = new Uint8Array(64);
const view = new DataView(sample.buffer);
view.setUint8(0, 200);
view.setInt8(1, -3);
view.setUint16(2, 60_000, true);
view.setInt16(4, -1234, true);
view.setUint32(6, 4_000_000_000, true);
view.setInt32(10, -5, true);
view.setBigUint64(14, 2n ** 63n + 1n, true);
view.setBigInt64(22, -(2n ** 62n), true);
view.setFloat32(30, 1.5, true);
view.setFloat64(34, Math.PI, true);
view.setBigUint64(42, 2n ** 53n - 1n, true);
view.setBigUint64(50, 2n ** 53n, true);

/** Counts reads and bytes. */
function counted(source: ByteSource): ByteSource & { reads: [number, number][] } {
  const reads: [number, number][] = [];
  return {
    name: source.name,
    sizeBytes: source.sizeBytes,
    close: () => source.close(),
    reads,
    read(byteOffset, target, options) {
      reads.push([byteOffset, target.byteLength]);
      return source.read(byteOffset, target, options);
    },
  };
}

describe('ByteCursor', () => {
  it('reads every number type, little-endian', async () => {
    const cursor = new ByteCursor(memorySource(sample));
    await cursor.ensure(50, 'x');
    expect(cursor.uint8('x')).toBe(200);
    expect(cursor.int8('x')).toBe(-3);
    expect(cursor.uint16('x')).toBe(60_000);
    expect(cursor.int16('x')).toBe(-1234);
    expect(cursor.uint32('x')).toBe(4_000_000_000);
    expect(cursor.int32('x')).toBe(-5);
    expect(cursor.uint64('x')).toBe(2n ** 63n + 1n);
    expect(cursor.int64('x')).toBe(-(2n ** 62n));
    expect(cursor.float32('x')).toBe(1.5);
    expect(cursor.float64('x')).toBe(Math.PI);
    expect(cursor.size64('x')).toBe(Number.MAX_SAFE_INTEGER);
    expect(cursor.position).toBe(50);
    expect(() => cursor.size64('count')).toThrow(/at byte 50: count: expected at most 2\^53 - 1, got 9007199254740992/);
  });

  it('rejects sizes with the highest bit set instead of reading them as negative', async () => {
    const cursor = new ByteCursor(memorySource(new Uint8Array(8).fill(0xff)));
    await cursor.ensure(8, 'x');
    expect(() => cursor.size64('count')).toThrow(/expected at most 2\^53 - 1, got 18446744073709551615/);
  });

  it('rejects reads past the end, with offset and field, before it allocates', async () => {
    const cursor = new ByteCursor(memorySource(sample, 'file'), { byteOffset: 60 });
    await expect(cursor.ensure(2 ** 50, 'text')).rejects.toThrow(
      'file at byte 60: text: unexpected end, expected 1125899906842624 more bytes, got 4',
    );
    await cursor.ensure(4, 'x');
    expect(() => cursor.uint64('last')).toThrow(FormatError);
    expect(cursor.position).toBe(60);
    expect(() => cursor.skip(5, 'gap')).toThrow(FormatError);
    expect(cursor.uint32('x')).toBe(0);
    expect(() => cursor.uint8('end')).toThrow(/at byte 64: end/);
  });

  it('stays before endOffset', async () => {
    const source = counted(memorySource(sample));
    const cursor = new ByteCursor(source, { byteOffset: 8, endOffset: 24 });
    await cursor.ensure(1, 'x');
    expect(source.reads).toEqual([[8, 16]]);
    await expect(cursor.ensure(17, 'x')).rejects.toThrow(FormatError);
  });

  it('treats reading without ensure as a bug', () => {
    expect(() => new ByteCursor(memorySource(sample)).uint8('x')).toThrow(/internal error.*x was read before ensure/);
  });
});

describe('reads of the source', () => {
  it('doubles the read size up to the limit, and reads no byte twice', async () => {
    const source = counted(memorySource(new Uint8Array(1000)));
    const cursor = new ByteCursor(source, { firstChunkBytes: 16, maxChunkBytes: 64 });
    for (let index = 0; index < 300; index++) {
      await cursor.ensure(1, 'x');
      cursor.uint8('x');
    }
    expect(source.reads.slice(0, 5)).toEqual([
      [0, 16],
      [16, 32],
      [48, 64],
      [112, 64],
      [176, 64],
    ]);
  });

  it('gives the same bytes for any steps and chunk sizes', async () => {
    const content = Uint8Array.from({ length: 500 }, (_, index) => index & 255);
    const step = fc.record({ kind: fc.constantFrom('bytes', 'skip'), size: fc.nat(60) });
    await fc.assert(
      fc.asyncProperty(fc.array(step), fc.integer({ min: 1, max: 70 }), async (steps, firstChunkBytes) => {
        const cursor = new ByteCursor(memorySource(content), { firstChunkBytes, maxChunkBytes: 80 });
        const kept: [number, Uint8Array][] = [];
        for (const { kind, size } of steps) {
          if (size > cursor.remainingBytes) break;
          if (kind === 'skip') cursor.skip(size, 'x');
          else {
            await cursor.ensure(size, 'x');
            kept.push([cursor.position, cursor.bytes(size, 'x')]);
          }
        }
        for (const [position, bytes] of kept) {
          expect(bytes).toEqual(content.subarray(position, position + bytes.byteLength));
        }
      }),
    );
  });
});
