/** Loading: locations, options, and broken files. */
import { createServer, type Server } from 'node:http';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { createReferenceBackend } from '@winnow/ops';
import { ArgumentError, CapacityError, FormatError, IoError, WinnowError } from '@winnow/tensor';
import { testCoverage } from '@winnow/test-utils';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inspectModel, loadModel, openTokenizer, type ModelLocation } from '../../src/index.js';
import { archPath } from '../support/golden-files.js';

const path = archPath('llama', 'model.gguf') as string;
const prompt = [1, 2, 3, 4, 5];
let bytes: Uint8Array<ArrayBuffer>;
let folder: string;
beforeAll(async () => {
  bytes = new Uint8Array(await readFile(path));
  folder = await mkdtemp(join(tmpdir(), 'winnow-engine-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function greedy(location: ModelLocation): Promise<readonly number[]> {
  await using model = await loadModel(location);
  return (await model.generate(prompt, { temperature: 0, maxTokens: 5, ignoreEos: true }).result()).tokens;
}

describe('locations', () => {
  let server: Server;
  let base: string;
  beforeAll(async () => {
    server = createServer(
      (request, response) => void serve(request.url ?? '', request.headers.range, request.method)(response),
    );
    const serve =
      (url: string, range: string | undefined, method: string | undefined) =>
      async (response: import('node:http').ServerResponse): Promise<void> => {
        const file = url === '/model.gguf' ? path : join(archPath('llama', 'hf') as string, url.replace('/hf/', ''));
        const size = await stat(file).then(
          (found) => found.size,
          () => -1,
        );
        if (size < 0) return void response.writeHead(404).end();
        if (method === 'HEAD') return void response.writeHead(200, { 'content-length': size }).end();
        const [, first, last] = /bytes=(\d+)-(\d*)/.exec(range ?? '') ?? [];
        const begin = Number(first ?? 0);
        const end = last === undefined || last === '' ? size : Math.min(size, Number(last) + 1);
        const body = (await readFile(file)).subarray(begin, end);
        const headers = { 'content-range': `bytes ${begin}-${end - 1}/${size}`, 'content-length': body.length };
        response.writeHead(range === undefined ? 200 : 206, headers).end(body);
      };
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  afterAll(() => new Promise((resolve) => server.close(resolve)));

  test('path, file URL, http URL, Blob, open source: all the same model', async () => {
    const expected = await greedy(path);
    expect(await greedy(pathToFileURL(path))).toEqual(expected);
    expect(await greedy(pathToFileURL(path).href)).toEqual(expected);
    expect(await greedy(`${base}/model.gguf`)).toEqual(expected);
    expect(await greedy(new Blob([bytes]))).toEqual(expected);
    expect(await greedy(memorySource(bytes))).toEqual(expected);
  });

  test('folders by path and by URL', async () => {
    const expected = await greedy(archPath('llama', 'hf') as string);
    expect(await greedy(`${base}/hf/`)).toEqual(expected);
  });

  test('errors of a missing file, URL or empty folder name what is missing', async () => {
    await expect(loadModel(join(folder, 'none.gguf'))).rejects.toThrow(/none\.gguf: no such file or folder/);
    await expect(loadModel(`${base}/none.gguf`)).rejects.toThrow(IoError);
    await expect(loadModel(folder)).rejects.toThrow(/config\.json: missing: expected the folder of a model$/);
  });

  test('a model without a tokenizer runs on token ids and rejects text', async () => {
    await using model = await loadModel(archPath('llama', 'hf') as string);
    expect((await model.generate([1, 2], { maxTokens: 2, ignoreEos: true }).result()).tokens).toHaveLength(2);
    await expect(model.generate('text').result()).rejects.toThrow(/tokenizer\.json: missing/);
  });
});

describe('options', () => {
  test('the memory plan is exact for weights and rejects a model before reading it', async () => {
    const info = await inspectModel(path);
    const weights = info.tensors.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    expect(info.plan.weightsBytes).toBe(weights + 4 * ((info.config.rope?.rotaryDim ?? 0) / 2));
    expect(info.plan.totalBytes).toBe(info.plan.weightsBytes + info.plan.kvBytes + info.plan.activationBytes);
    const progress: number[] = [];
    const load = loadModel(path, {
      memory: info.plan.totalBytes - 1,
      onProgress: ({ loadedBytes }) => progress.push(loadedBytes),
    });
    await expect(load).rejects.toThrow(CapacityError);
    expect(progress).toEqual([]);
  });

  test('loading reports every byte', async () => {
    const progress: { loadedBytes: number; totalBytes: number }[] = [];
    const model = await loadModel(path, { onProgress: (at) => progress.push(at) });
    await model.dispose();
    expect(progress.at(-1)?.loadedBytes).toBe(progress.at(-1)?.totalBytes);
  });

  test('caches of other dtypes run, and the log-probabilities stay close', async () => {
    // f16 keeps 11 bits, q8_0 keeps 8: relative errors of 2^-11 and 2^-8 per row, through two layers
    for (const [dtype, bound] of [
      ['f16', 0.02],
      ['bf16', 0.15],
      [{ keys: 'f32', values: 'bf16' }, 0.15],
    ] as const) {
      await using exact = await loadModel(path);
      await using model = await loadModel(path, { kvCache: { dtype } });
      const [expected] = await exact.logprobs(prompt);
      const [actual] = await model.logprobs(prompt);
      const worst = Math.max(
        ...(actual as Float32Array).map((value, id) => Math.abs(value - (expected?.[id] as number))),
      );
      expect(worst).toBeGreaterThan(0);
      expect(worst).toBeLessThan(bound);
      expect(model.plan.kvBytesPerToken).toBeLessThan(exact.plan.kvBytesPerToken);
    }
  });
});

describe('aborts and backends passed by the caller', () => {
  test.each([
    [{ context: 0 }, 'context: expected a positive integer, got 0'],
    [{ batchSize: 1.5 }, 'batchSize: expected a positive integer, got 1.5'],
    [{ maxSessions: -1 }, 'maxSessions: expected a positive integer, got -1'],
    [
      { kvCache: { dtype: 'q8_0' as const }, trace: { attention: true } },
      'kvCache.dtype: expected f32 | f16 | bf16 with trace.attention, got q8_0, which stores heads of 16 as 32',
    ],
    [
      { kvCache: { dtype: 'q6_K' as const } },
      'kvCache.dtype: expected f32 | f16 | bf16 | q8_0 | q4_0 | q4_1 | q5_0 | q5_1, got q6_K',
    ],
  ])('rejects %o', async (options, message) => {
    await expect(loadModel(path, options)).rejects.toThrow(message);
    await expect(loadModel(path, options)).rejects.toThrow(ArgumentError);
  });

  test('an aborted load throws the reason and disposes the backend', async () => {
    const backend = createReferenceBackend();
    const controller = new AbortController();
    const load = loadModel(path, {
      backend,
      signal: controller.signal,
      onProgress: () => controller.abort(new Error('stop loading')),
    });
    await expect(load).rejects.toThrow('stop loading');
    await backend.dispose();
  });

  test('a backend passed by the caller outlives the model', async () => {
    const backend = createReferenceBackend();
    const first = await loadModel(path, { backend });
    await first.dispose();
    const second = await loadModel(path, { backend });
    expect((await second.generate(prompt, { maxTokens: 1, ignoreEos: true }).result()).tokens).toHaveLength(1);
    await second.dispose();
    await backend.dispose();
  });
});

test('the tokenizer opens without weights', async () => {
  const { tokenizer, chatTemplate } = await openTokenizer(demoModelUrl);
  expect(tokenizer.decode(tokenizer.encode('The old man'))).toBe('The old man');
  expect(chatTemplate?.render([{ role: 'user', content: 'Hi' }])).toBe(
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
  );
});

describe('broken files', () => {
  test('the error of an unknown architecture lists the known ones', async () => {
    const text = new TextDecoder('latin1').decode(bytes);
    const at = text.indexOf('llama', text.indexOf('general.architecture'));
    const other = bytes.slice();
    other.set(new TextEncoder().encode('xlama'), at);
    await expect(loadModel(new Blob([other]))).rejects.toThrow(
      /architecture "xlama" is not supported: .*; expected one of llama/,
    );
  });

  test('files truncated anywhere are rejected with an error that names the file', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(bytes.length - 1), async (length) => {
        const file = join(folder, 'cut.gguf');
        await writeFile(file, bytes.subarray(0, length));
        const error = await loadModel(file).then(
          () => undefined,
          (reason: unknown) => reason,
        );
        expect(error).toBeInstanceOf(FormatError);
        expect((error as FormatError).source).toContain('cut.gguf');
      }),
      { numRuns: 40 },
    );
  });

  test('flipped bits in the header: a typed error, or a model that loads', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(8 * 12_000), async (bit) => {
        const other = bytes.slice();
        other[bit >> 3]! ^= 1 << (bit & 7);
        try {
          await (await loadModel(new Blob([other]), { context: 32 })).dispose();
        } catch (error) {
          expect(WinnowError.isInstance(error), String(error)).toBe(true);
        }
      }),
      { numRuns: testCoverage === 'full' ? 150 : 60 },
    );
  });
});
