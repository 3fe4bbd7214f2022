import { setImmediate as turn } from 'node:timers/promises';
import { Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { expect, test } from 'vitest';
import { eventOf, openEventStream } from './event-stream.js';

const patient = {
  keepAliveMs: 60_000,
  keepAlive: ': still working\n\n',
  stallTimeoutMs: 60_000,
  onBlocked: (): void => {},
  lastEvent: (error: unknown): string => eventOf({ failed: (error as Error).message }),
};

async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  let text = '';
  for await (const part of stream) text += part.toString();
  return text;
}

test('emits the parts in order', async () => {
  const parts = Array.from({ length: 2000 }, (_, index) => eventOf({ index, text: 'ä€😀' }));
  const stream = await openEventStream(
    (async function* () {
      yield* parts;
    })(),
    patient,
  );
  expect(await textOf(stream)).toBe(parts.join(''));
});

test('is not opened by a generator that fails first', async () => {
  const failing = (async function* (): AsyncGenerator<string, void, void> {
    yield* [];
    throw new Error('no');
  })();
  await expect(openEventStream(failing, patient)).rejects.toThrow('no');
});

test('ends with an error event when its generator fails later', async () => {
  const stream = await openEventStream(
    (async function* () {
      yield 'a';
      throw new Error('no');
    })(),
    patient,
  );
  expect(await textOf(stream)).toBe(`a${eventOf({ failed: 'no' })}`);
});

test('ends with an error event also after keep-alive comments only', async () => {
  let fail = (_error: Error): void => {};
  const silent = (async function* (): AsyncGenerator<string, void, void> {
    yield* [];
    await new Promise((_resolve, reject) => {
      fail = reject;
    });
  })();
  const stream = await openEventStream(silent, { ...patient, keepAliveMs: 5 });
  stream.once('data', () => fail(new Error('late')));
  expect(await textOf(stream)).toMatch(/^(: [a-z ]+\n\n)+data: \{"failed":"late"\}\n\n$/);
});

test('produces no more than its reader consumes, reports the stall, and continues', async () => {
  let numParts = 0;
  let hasEnded = false;
  const part = 'x'.repeat(1000);
  const reports: boolean[] = [];
  const parts = (async function* () {
    try {
      for (;;) {
        numParts++;
        yield part;
      }
    } finally {
      hasEnded = true;
    }
  })();
  const stream = await openEventStream(parts, { ...patient, onBlocked: (isBlocked) => reports.push(isBlocked) });
  let free = (): void => {};
  let numWritten = 0;
  const reader = new Writable({
    highWaterMark: 1,
    write(_chunk, _encoding, callback) {
      numWritten++;
      free = callback;
    },
  });
  const piped = pipeline(stream, reader).catch(() => {});
  for (let turns = 0; turns < 50; turns++) await turn();
  // one part is being written, one waits in the reader, and the stream's buffer is full after 5 of 1000 bytes
  expect(numWritten).toBe(1);
  expect(numParts).toBeLessThanOrEqual(8);
  expect(reports).toEqual([true]);
  const before = numParts;
  for (let step = 0; step < 20; step++) {
    free();
    await turn();
  }
  expect(numParts).toBeGreaterThan(before);
  expect(numParts).toBeLessThanOrEqual(numWritten + 8);
  stream.destroy();
  await piped;
  expect(hasEnded).toBe(true);
});

test('disconnects a reader that consumes nothing', async () => {
  const parts = (async function* () {
    for (;;) yield 'x'.repeat(1000);
  })();
  const stream = await openEventStream(parts, { ...patient, stallTimeoutMs: 20 });
  const reader = new Writable({ highWaterMark: 1, write() {} });
  await expect(pipeline(stream, reader)).rejects.toThrow('does not read');
});

test('ends its generator when it is destroyed before the first read', async () => {
  let hasEnded = false;
  const parts = (async function* () {
    try {
      yield 'a';
    } finally {
      hasEnded = true;
    }
  })();
  const stream = await openEventStream(parts, patient);
  await new Promise((resolve) => stream.once('close', resolve).destroy());
  expect(hasEnded).toBe(true);
});
