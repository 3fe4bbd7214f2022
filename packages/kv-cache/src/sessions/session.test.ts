import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { memorySink, memorySource, type ByteSink } from '@winnow/bytes';
import { fileSink, fileSource } from '@winnow/bytes/node';
import { ArgumentError, createRng, FormatError, IoError } from '@winnow/tensor';
import { describe, expect, it } from 'vitest';
import {
  bytesSection,
  checkSession,
  openSession,
  writeSession,
  type JsonValue,
  type SessionContents,
} from '../index.js';
import { checksumOf } from './layout.js';

const rng = createRng(77);
const randomBytes = (count: number): Uint8Array => Uint8Array.from({ length: count }, () => rng.nextInt(256));
const large = randomBytes(1000);
const contents: SessionContents = {
  modelHash: 'sha256:0123',
  options: { kvDType: 'q8_0', blockSize: 64, ropeScale: 0.5, rotate: true, policy: null },
  metadata: { sampler: { seed: 7, state: [1, 2, 3, 4] }, title: 'Täglich' },
  sections: [
    bytesSection('tokens', Int32Array.of(5, 6, 7)),
    bytesSection('empty', new Uint8Array(0)),
    bytesSection('kv.0.keys', large),
    bytesSection('exact', large.subarray(0, 256)),
  ],
};

async function write(chunkBytes = 128, written = contents): Promise<Uint8Array> {
  const sink = memorySink();
  const numBytes = await writeSession(sink, written, { chunkBytes });
  expect(numBytes).toBe(sink.sizeBytes);
  return sink.toBytes().slice();
}

describe('sessions', () => {
  it.each([64, 100, 128, 1000, 4096])('are read as they were written, in chunks of %d', async (chunkBytes) => {
    const session = await openSession(memorySource(await write(chunkBytes)));
    expect(session.modelHash).toBe(contents.modelHash);
    expect(session.options).toEqual(contents.options);
    expect(session.metadata).toEqual(contents.metadata);
    expect(session.sections.map(({ name }) => name)).toEqual(['tokens', 'empty', 'kv.0.keys', 'exact']);
    const tokens = await session.readAll('tokens');
    expect([...new Int32Array(tokens.buffer)]).toEqual([5, 6, 7]);
    expect(await session.readAll('empty')).toEqual(new Uint8Array(0));
    const pieces = [0, 1, 127, 128, 129, 500, 999, 1000].map(async (begin) => {
      const target = new Uint8Array(Math.min(300, 1000 - begin));
      await session.read('kv.0.keys', begin, target);
      expect(target).toEqual(large.slice(begin, begin + target.length));
    });
    await Promise.all(pieces);
    await session.verify();
  });

  it('reject missing sections and ranges', async () => {
    const session = await openSession(memorySource(await write()));
    await expect(session.readAll('kv.1.keys')).rejects.toThrow(ArgumentError);
    await expect(session.read('tokens', 8, new Uint8Array(5))).rejects.toThrow('a range within [0, 12)');
  });

  it('name the first mismatch with the model', async () => {
    const session = await openSession(memorySource(await write()));
    checkSession(session, contents);
    expect(() => checkSession(session, { ...contents, modelHash: 'sha256:9' }, 'a.session')).toThrow(
      'a.session: modelHash: expected "sha256:9", got "sha256:0123"',
    );
    expect(() => checkSession(session, { ...contents, options: { ...contents.options, kvDType: 'f16' } })).toThrow(
      'options.kvDType: expected "f16", got "q8_0"',
    );
    expect(() => checkSession(session, { ...contents, options: {} })).toThrow(FormatError);
  });

  it('reject invalid contents', async () => {
    const refused: [Partial<SessionContents>, number?][] = [
      [{ sections: [bytesSection('a', large), bytesSection('a', large)] }],
      [{ sections: [bytesSection('', large)] }],
      [{ sections: [{ name: 'a', sizeBytes: 1.5, read: () => undefined }] }],
      [{ options: { scale: NaN } }],
      [{}, 10],
    ];
    for (const [change, chunkBytes] of refused) {
      const sink = memorySink();
      await expect(writeSession(sink, { ...contents, ...change }, { chunkBytes: chunkBytes ?? 128 })).rejects.toThrow(
        ArgumentError,
      );
      expect(() => sink.toBytes()).toThrow(); // aborted
    }
  });
});

it('sessions: reject metadata without JSON, and metadata that is nested too deeply', async () => {
  const nested = (levels: number): JsonValue => JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`) as JsonValue;
  const saved = await openSession(memorySource(await write(128, { ...contents, metadata: nested(500) })));
  expect(saved.metadata).toEqual(nested(500));
  for (const metadata of [nested(512), nested(200_000), 1n as unknown as JsonValue]) {
    await expect(write(128, { ...contents, metadata })).rejects.toThrow(ArgumentError);
  }
  // a file of another writer
  const header = new TextEncoder().encode(`{"metadata":${'['.repeat(20_000)}${']'.repeat(20_000)}}`.padEnd(40_016));
  const bytes = new Uint8Array(32 + header.length);
  bytes.set((await write()).subarray(0, 12));
  bytes.set(header, 32);
  new Uint32Array(bytes.buffer, 12).set([header.length, ...checksumOf(header, 0), bytes.length, 0]);
  await expect(openSession(memorySource(bytes))).rejects.toThrow('expected at most 512 levels of brackets, got 20001');
});

describe('damaged files', () => {
  it('every truncation is rejected', async () => {
    const bytes = await write();
    for (let length = 0; length < bytes.length; length++) {
      await expect(openSession(memorySource(bytes.subarray(0, length)))).rejects.toThrow(FormatError);
    }
    const longer = new Uint8Array(bytes.length + 1);
    longer.set(bytes);
    await expect(openSession(memorySource(longer))).rejects.toThrow(FormatError);
  });

  it('a flipped bit in any byte is rejected', async () => {
    const bytes = await write();
    for (let index = 0; index < bytes.length; index++) {
      bytes[index] ^= 1 << (index % 8);
      const error = await openSession(memorySource(bytes))
        .then((session) => session.verify())
        .catch((caught: unknown) => caught);
      expect(FormatError.isInstance(error)).toBe(true);
      // a wrong header size is detected by its checksum, at byte 16
      expect((error as FormatError).byteOffset).toBeLessThanOrEqual(Math.max(index, 16));
      bytes[index] ^= 1 << (index % 8);
    }
  });

  it('swapped chunks are rejected', async () => {
    const bytes = await write();
    const first = bytes.length - 2 * 136; // the two chunks of the last section
    const swapped = bytes.slice();
    swapped.set(bytes.subarray(first, first + 136), first + 136);
    swapped.set(bytes.subarray(first + 136), first);
    const session = await openSession(memorySource(swapped));
    await expect(session.readAll('exact')).rejects.toThrow('section "exact": bytes 0 to 128 are damaged');
    expect(await session.readAll('tokens')).toHaveLength(12);
  });
});

describe('forged files', () => {
  it('headers with a valid checksum and invalid contents are rejected', async () => {
    const changes: Record<string, unknown>[] = [
      { chunkBytes: 1 },
      { chunkBytes: 2 ** 40 },
      { sections: [{ name: 'a', sizeBytes: 2 ** 52 }] },
      { sections: [{ name: 'a', sizeBytes: -1 }] },
      { sections: 'all' },
      { sections: [null] },
      { modelHash: 3 },
      { options: [] },
      { options: { a: {} } },
    ];
    for (const change of changes) {
      const honest = JSON.stringify({ modelHash: '', options: {}, metadata: null, chunkBytes: 128, sections: [] });
      const forged = JSON.stringify({ ...(JSON.parse(honest) as object), ...change });
      const original = JSON.stringify;
      let bytes: Uint8Array;
      try {
        JSON.stringify = (() => forged) as typeof JSON.stringify;
        bytes = await write(128, { modelHash: '', options: {}, sections: [] });
      } finally {
        JSON.stringify = original;
      }
      await expect(openSession(memorySource(bytes))).rejects.toThrow(FormatError);
    }
  });

  it('random bytes are rejected', async () => {
    for (let i = 0; i < 200; i++) {
      const bytes = randomBytes(rng.nextInt(300));
      if (i % 2 === 0) bytes.set((await write()).subarray(0, Math.min(24, bytes.length)));
      await expect(openSession(memorySource(bytes))).rejects.toThrow(FormatError);
    }
  });
});

describe('files', () => {
  it('replace the old session only once the new one is complete', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'winnow-session-'));
    const path = join(folder, 'chat.session');
    await writeSession(await fileSink(path), contents);
    const before = await readFile(path);
    const failing: SessionContents = {
      ...contents,
      sections: [
        bytesSection('tokens', large),
        {
          name: 'kv',
          sizeBytes: 5000,
          read() {
            throw new IoError({ source: 'device', message: 'lost' });
          },
        },
      ],
    };
    await expect(writeSession(await fileSink(path), failing)).rejects.toThrow('device: lost');
    expect(await readFile(path)).toEqual(before);
    const signal = AbortSignal.abort(new Error('enough'));
    await expect(writeSession(await fileSink(path), contents, { signal })).rejects.toThrow('enough');
    expect(await readdir(folder)).toEqual(['chat.session']);
    const source = await fileSource(path);
    await (await openSession(source)).verify();
    await source.close();
    await writeFile(path, 'something else');
    const other = await fileSource(path);
    await expect(openSession(other)).rejects.toThrow(`${path} at byte 0: preamble: unexpected end`);
    await other.close();
    await rm(folder, { recursive: true });
  });

  it('are written with one chunk in memory, whatever their size', async () => {
    let largestWrite = 0;
    const sink: ByteSink = {
      name: 'counted',
      sizeBytes: 0,
      close: async () => undefined,
      abort: async () => undefined,
      async write(bytes) {
        largestWrite = Math.max(largestWrite, bytes.byteLength);
      },
    };
    let numReads = 0;
    const section = {
      name: 'kv',
      sizeBytes: 64 * 1024 * 1024,
      read(_: number, target: Uint8Array) {
        numReads++;
        target[0] = 1;
      },
    };
    await writeSession(sink, { modelHash: '', options: {}, sections: [section] });
    expect(numReads).toBe(64);
    expect(largestWrite).toBe(1024 * 1024 + 8);
  });
});
