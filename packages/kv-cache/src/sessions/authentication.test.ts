/** Session files with a MAC: what the key holder wrote is read, anything else is rejected before it is used. */
import { createHash, createHmac } from 'node:crypto';
import { memorySink, memorySource, type ByteSource } from '@winnow/bytes';
import { ArgumentError, createRng, FormatError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { bytesSection, openSession, writeSession, type SessionContents } from '../index.js';

const rng = createRng(78);
const key = Uint8Array.from({ length: 32 }, () => rng.nextInt(256));
const other = Uint8Array.from(key, (byte) => byte ^ 1);
const small = bytesSection('tokens', Int32Array.of(5, 6, 7));
const large = Uint8Array.from({ length: 2_500_000 }, (_, index) => (index * 2_654_435_761) >>> 24);

async function write(sections: SessionContents['sections'], secret?: Uint8Array): Promise<Uint8Array> {
  const sink = memorySink();
  const contents = { modelHash: 'hash', options: { blockSize: 64 }, sections };
  const options = { chunkBytes: 128 * 1024, ...(secret === undefined ? {} : { key: secret }) };
  expect(await writeSession(sink, contents, options)).toBe(sink.sizeBytes);
  return sink.toBytes().slice();
}

test('the key holder reads what was written; files are those of version 1 with one more section', async () => {
  const bytes = await write([small, bytesSection('keys', large)], key);
  const session = await openSession(memorySource(bytes), { key });
  expect(session.mac).toMatch(/^[0-9a-f]{64}$/);
  expect(Buffer.compare(await session.readAll('keys'), large)).toBe(0);
  await session.verify();
  const plain = await openSession(memorySource(bytes));
  expect(plain.mac).toBeUndefined();
  expect(plain.sections.map(({ name }) => name)).toEqual(['tokens', 'keys', 'mac']);
  expect(Buffer.compare(await plain.readAll('keys'), large)).toBe(0);
});

test('the MAC is HMAC-SHA-256 over a label, the length and the digests of pieces of 1 MiB', async () => {
  const bytes = await write([small, bytesSection('keys', large)], key);
  const covered = bytes.subarray(0, -40);
  const mac = createHmac('sha256', key).update('winnow session\0\0');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(covered.length));
  mac.update(length);
  for (let begin = 0; begin < covered.length; begin += 2 ** 20) {
    mac.update(
      createHash('sha256')
        .update(covered.subarray(begin, begin + 2 ** 20))
        .digest(),
    );
  }
  const expected = mac.digest('hex');
  expect(Buffer.from(bytes.subarray(-40, -8)).toString('hex')).toBe(expected);
  expect((await openSession(memorySource(bytes), { key })).mac).toBe(expected);
});

test('a file of another key, or without a MAC, is rejected with what was expected and found', async () => {
  const open = (bytes: Uint8Array): Promise<unknown> => openSession(memorySource(bytes, 'a.session'), { key });
  await expect(open(await write([small], other))).rejects.toThrow(
    /^a.session at byte \d+: mac: expected a MAC by the given key, got one by another key, or of other contents$/,
  );
  const error: unknown = await open(await write([small])).catch((caught: unknown) => caught);
  expect(FormatError.isInstance(error) && error.message).toMatch(/got none: the session was saved without a key$/);
  await expect(open(new Uint8Array(200))).rejects.toThrow('this is not a session file');
});

test('a forged file with valid checksums is rejected, as is a flipped bit in any byte', async () => {
  const honest = await write([small], key);
  const forged = await write([
    bytesSection('tokens', Int32Array.of(5, 6, 8)),
    bytesSection('mac', honest.slice(-40, -8)),
  ]);
  expect(forged.length).toBe(honest.length);
  await (await openSession(memorySource(forged))).verify();
  await expect(openSession(memorySource(forged), { key })).rejects.toThrow('or of other contents');
  for (let index = 0; index < honest.length - 8; index++) {
    honest[index] ^= 1 << (index % 8);
    await expect(openSession(memorySource(honest), { key })).rejects.toThrow(FormatError);
    honest[index] ^= 1 << (index % 8);
  }
});

test('bytes that change after the verification are never returned', async () => {
  const bytes = await write([small, bytesSection('keys', large)], key);
  const replacement = await write([
    small,
    bytesSection(
      'keys',
      large.map((byte) => byte ^ 1),
    ),
  ]);
  const session = await openSession(memorySource(bytes), { key });
  bytes.set(replacement.subarray(200), 200);
  await expect(session.verify()).rejects.toThrow('the file was changed while it was read');
});

test('reading needs one piece of memory, and nothing is read before the file is verified', async () => {
  const bytes = await write([small, bytesSection('keys', large)], key);
  const reads: number[] = [];
  const memory = memorySource(bytes);
  const source: ByteSource = {
    ...{ name: 'counted', sizeBytes: memory.sizeBytes, close: () => memory.close() },
    read: (byteOffset, target, options) => {
      reads.push(target.byteLength);
      return memory.read(byteOffset, target, options);
    },
  };
  await openSession(source, { key });
  expect(Math.max(...reads)).toBe(2 ** 20);
  expect(reads.reduce((sum, count) => sum + count, 0)).toBeLessThan(bytes.length + 2 ** 20 + 200);
});

test('keys are bytes, at least 16 of them', async () => {
  const bytes = await write([small], key);
  for (const wrong of [key.subarray(0, 15), 'a secret of many characters' as unknown as Uint8Array]) {
    await expect(openSession(memorySource(bytes), { key: wrong })).rejects.toThrow(ArgumentError);
    await expect(write([small], wrong)).rejects.toThrow('expected a Uint8Array of at least 16 bytes');
  }
});
