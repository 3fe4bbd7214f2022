import { Writable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { OutputClosedError } from '../errors/errors.js';
import { Output } from './output.js';

describe('Output', () => {
  test('waits while its reader is slow', async () => {
    const taken: string[] = [];
    let release: (() => void) | undefined;
    const slow = new Writable({
      highWaterMark: 4,
      write: (chunk: Buffer, _encoding, callback) => {
        taken.push(chunk.toString());
        release = callback;
      },
    });
    const out = new Output(slow);
    let isDone = false;
    const writing = out.write('12345').then(() => {
      isDone = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(taken).toEqual(['12345']);
    expect(isDone).toBe(false);
    release?.();
    await writing;
    expect(isDone).toBe(true);
  });

  test('ends quietly when its reader has closed it', async () => {
    const gone = new Writable({
      write: (_chunk, _encoding, callback) => callback(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' })),
    });
    const out = new Output(gone);
    await out.write('a').catch(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    await expect(out.write('b')).rejects.toThrow(OutputClosedError);
    await expect(out.flush()).rejects.toThrow(OutputClosedError);
  });

  test('a reader that closes while it waits is detected, too', async () => {
    const leaving = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, callback) => {
        setImmediate(() => callback(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' })));
      },
    });
    await expect(new Output(leaving).write('abc')).rejects.toThrow(OutputClosedError);
  });

  test('other failures are reported', async () => {
    const full = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, callback) => callback(Object.assign(new Error('disk full'), { code: 'ENOSPC' })),
    });
    await expect(new Output(full).write('abc')).rejects.toThrow('disk full');
  });
});
