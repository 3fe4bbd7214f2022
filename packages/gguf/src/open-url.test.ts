/** Models by HTTP range requests from a local server. */
import { readFileSync } from 'node:fs';
import { FormatError, IoError, ReleasedError } from '@winnow/tensor';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { serveBytes, type TestServer } from '@winnow/test-utils';
import { filler, ggufBytes } from '../test/support.js';
import { openGgufUrl } from './index.js';

const llama = new Uint8Array(readFileSync(new URL('__fixtures__/llama.gguf', import.meta.url)));
const largeBytes = 8_000_000;
let server: TestServer;

beforeAll(async () => {
  const files: Record<string, Uint8Array> = { '/llama.gguf': llama, '/broken.gguf': llama.subarray(0, 100_000) };
  files['/large.gguf'] = await ggufBytes({
    metadata: { a: 'x' },
    tensors: [
      { name: 'skipped', dtype: 'f32', shape: [largeBytes / 4], data: new Uint8Array(largeBytes) },
      { name: 'read', dtype: 'f32', shape: [4], data: filler(16, 9) },
    ],
  });
  for (let index = 0; index < 2; index++) {
    files[`/s-0000${index + 1}-of-00002.gguf`] = await ggufBytes({
      metadata: {
        'split.no': { type: 'uint16', value: index },
        'split.count': { type: 'uint16', value: 2 },
        'split.tensors.count': { type: 'int32', value: 2 },
      },
      tensors: [{ name: `t${index}`, dtype: 'f32', shape: [4], data: filler(16, index) }],
    });
  }
  server = await serveBytes(files);
});
afterAll(() => server.close());

describe('openGgufUrl', () => {
  it('fetches only the header and the tensors that are read', async () => {
    const file = await openGgufUrl(`${server.url}/large.gguf`);
    // one byte for the size, one chunk of header
    expect(server.sentBytes).toBe(1 + 64 * 1024);
    expect(server.requests).toHaveLength(2);
    const before = server.sentBytes;
    const data = new Uint8Array(16);
    await file.tensors.get('read')!.read(data);
    expect(data).toEqual(filler(16, 9));
    expect(server.sentBytes - before).toBe(16);
    await file.close();
    await expect(file.tensors.get('read')!.read(data)).rejects.toThrow(ReleasedError);
  });

  it('reads a real model like from memory', async () => {
    const before = server.sentBytes;
    const file = await openGgufUrl(`${server.url}/llama.gguf`);
    expect(server.sentBytes - before).toBeLessThanOrEqual(1 + file.dataOffset + 64 * 1024);
    for (const tensor of file.tensors.values()) {
      const data = new Uint8Array(tensor.sizeBytes);
      await tensor.read(data);
      expect(data).toEqual(llama.subarray(tensor.byteOffset, tensor.byteOffset + tensor.sizeBytes));
    }
    await file.close();
  });

  it('opens the parts of a split model, with the query and the headers', async () => {
    server.requests.length = 0;
    const file = await openGgufUrl(new URL(`${server.url}/s-00002-of-00002.gguf?download=true`), {
      headers: { Authorization: 'Bearer x' },
    });
    expect([...file.tensors.keys()]).toEqual(['t0', 't1']);
    expect(server.requests.map((line) => line.split(' ')[1])).toEqual([
      ...Array<string>(2).fill('/s-00001-of-00002.gguf?download=true'),
      ...Array<string>(2).fill('/s-00002-of-00002.gguf?download=true'),
    ]);
    await file.close();
  });

  it('detects a truncated file before it fetches data', async () => {
    const before = server.sentBytes;
    await expect(openGgufUrl(`${server.url}/broken.gguf`)).rejects.toThrow(FormatError);
    expect(server.sentBytes - before).toBeLessThanOrEqual(1 + 64 * 1024);
  });

  it('reports a missing file', async () => {
    await expect(openGgufUrl(`${server.url}/missing.gguf`)).rejects.toThrow(IoError);
  });
});
