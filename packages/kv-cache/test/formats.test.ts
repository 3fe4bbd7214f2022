/** The bytes of page and session files, by hash: other versions have to read them. */
import { createHash } from 'node:crypto';
import { memorySink } from '@winnow/bytes';
import { expect, it } from 'vitest';
import { bytesSection, memoryPageFile, openPageFrames, writeSession } from '../src/index.js';

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const ramp = (count: number): Uint8Array => Uint8Array.from({ length: count }, (_, i) => (i * 7) % 251);

it('a page file', async () => {
  const file = memoryPageFile();
  const frames = await openPageFrames(file, { pageBytes: 600, blockSize: 4 });
  await frames.write(3, ramp(600), [8, 9, -1, 11]);
  await frames.write(2 ** 33 + 1, ramp(600).reverse(), [0, 1, 2, 3]);
  await frames.write(3, ramp(600).fill(5), [8, 9, 10, 11]);
  const bytes = new Uint8Array(file.sizeBytes);
  await file.read(0, bytes);
  expect(bytes).toHaveLength(3 * 1024);
  expect(sha256(bytes)).toBe('8318e1e9b0ebe2275e5cb1f32533545ef2166ace083827d28b997b5cf0b61d12');
});

it('a session file', async () => {
  const sink = memorySink();
  const contents = {
    modelHash: 'sha256:0123',
    options: { kvDType: 'q8_0', blockSize: 64, rotate: true, policy: null },
    metadata: { title: 'Täglich', seeds: [1, 2, 3] },
    sections: [
      bytesSection('tokens', Int32Array.of(5, 6, 7)),
      bytesSection('empty', ramp(0)),
      bytesSection('kv', ramp(1000)),
    ],
  };
  const numBytes = await writeSession(sink, contents, { chunkBytes: 128 });
  expect(sink.toBytes()).toHaveLength(numBytes);
  expect(sha256(sink.toBytes())).toBe('f3b3645bb178cb3f61b6f039f9c1e83d9d35f8ef5d2026a9cd9bd1d367ef72d8');
});
