/**
 * Pages of a prompt that are restored from a folder, an S3 server and an HTTP server on this machine, compared with computing them.
 * Needs the built packages. node apps/cli/scripts/measure/pages.ts [TOKENS] [THREADS] [MODEL]
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createS3BlobStore } from '@winnow/blobs-s3';
import { demoModelUrl } from '@winnow/demo-model';
import { loadModel, openPromptStore, type PromptStore } from '@winnow/engine';
import type { BlobStore } from '@winnow/jobs';
import { createFolderBlobStore, createHttpBlobStore } from '@winnow/jobs/node';
import { createBlobPromptStore } from '@winnow/server';
import { startS3Server } from '@winnow/test-utils';

const [tokens = '2048', threads = String(availableParallelism()), location = demoModelUrl] = process.argv.slice(2);
const numTokens = Number(tokens);
const numPages = Math.floor(numTokens / 64);
const folder = mkdtempSync(join(tmpdir(), 'winnow-pages-'));
/** Tokens that any vocabulary has; the last one is computed. */
const prompt = Array.from({ length: numTokens + 1 }, (_, index) => 50 + ((index * 31) % 200));

interface Measured {
  readonly promptMs: number;
  readonly numPages: number;
  readonly pageBytes: number;
  readonly text: string;
}

/** How long the model that answers takes to compute a page. */
let computeMs = 0;

/** Answers the prompt once, after another prompt of the same length has shown how long computing takes. */
async function answer(promptCache: PromptStore | undefined, isMeasured: boolean): Promise<Measured> {
  const cache = promptCache === undefined ? {} : { promptCache };
  const options = { context: 2 * prompt.length + 128, threads: Number(threads), maxSessions: 1, ...cache };
  await using model = await loadModel(location, options);
  const generate = { maxTokens: 1, temperature: 0, ignoreEos: true };
  if (isMeasured) {
    computeMs = 0; // the store is asked for the first page
    const { timings } = await model.generate(prompt.toReversed(), generate).result();
    computeMs = timings.promptMs / numPages;
  }
  const startMs = performance.now();
  const { cachedTokens, text } = await model.generate(prompt, generate).result();
  const promptMs = performance.now() - startMs;
  const { blockSize, blockBytes } = model.metrics().cache;
  return { promptMs, numPages: cachedTokens / blockSize, pageBytes: blockBytes, text };
}

/** The files of a store of blobs, by GET and PUT. */
async function serveBlobs(blobs: BlobStore): Promise<{ readonly url: string; close(): void }> {
  const server = createServer(async (request, response) => {
    const key = (request.url ?? '/').slice(1);
    if (request.method === 'PUT') {
      await blobs.write(key, request);
      return void response.writeHead(201).end();
    }
    const info = await blobs.stat(key);
    if (info === undefined) return void response.writeHead(404).end();
    const { sizeBytes } = info;
    const range = { 'content-range': `bytes 0-${sizeBytes - 1}/${sizeBytes}`, 'content-length': sizeBytes };
    response.writeHead(206, range);
    for await (const part of blobs.read(key)) response.write(part.slice());
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close: () => server.close() };
}

/** A store that delays each page by a multiple of the time that the model takes to compute one. */
function delayed(store: PromptStore, factor: number): PromptStore {
  return {
    ...{ has: () => true, write: async () => {}, remove: async () => {}, statistics: () => store.statistics() },
    async read(key) {
      await sleep(factor * computeMs);
      return store.read(key);
    },
  };
}

const say = (text: string): boolean => process.stdout.write(`${text}\n`);
const s3 = await startS3Server();
const ofBlobs = createFolderBlobStore(join(folder, 'blobs'));
const http = await serveBlobs(ofBlobs);
try {
  const computed = await answer(undefined, false);
  const pageMs = (computed.promptMs / numPages).toFixed(2);
  say(`computed: ${numPages} pages in ${computed.promptMs.toFixed(0)} ms, ${pageMs} ms a page`);
  const credentials = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' };
  const inS3 = createS3BlobStore(`s3://${s3.bucket}/pages`, { endpoint: s3.url, credentials });
  const opened = () => openPromptStore(join(folder, 'pages'), { maxBytes: 1e11 });
  const stores: [name: string, write: () => Promise<PromptStore>, read: () => Promise<PromptStore>][] = [
    ['--cache-dir', opened, opened],
    ['a folder of blobs', async () => createBlobPromptStore(ofBlobs), async () => createBlobPromptStore(ofBlobs)],
    ['S3', async () => createBlobPromptStore(inS3), async () => createBlobPromptStore(inS3)],
    // the same files as above
    [
      'HTTP',
      async () => createBlobPromptStore(ofBlobs),
      async () => createBlobPromptStore(createHttpBlobStore(http.url)),
    ],
  ];
  for (const [name, write, read] of stores) {
    await answer(await write(), false);
    const { promptMs, numPages: numRead, pageBytes, text } = await answer(await read(), true);
    if (text !== computed.text) throw new Error(`${name}: expected the answer ${computed.text}, got ${text}`);
    const rate = (numRead * pageBytes) / promptMs / 1000;
    const share = ` ${(computed.promptMs / promptMs).toFixed(1)} times as fast as computing`;
    say(
      `${name}: ${numRead} of ${numPages} pages restored in ${promptMs.toFixed(0)} ms, ${rate.toFixed(0)} MB/s,${share}`,
    );
  }
  for (const factor of [0.5, 2, 8]) {
    const { promptMs, numPages: numRead } = await answer(delayed(await opened(), factor), true);
    const place = `each page ${factor} times as late as computed`;
    say(`${place}: ${numRead} of ${numPages} pages restored, ${promptMs.toFixed(0)} ms`);
  }
} finally {
  http.close();
  await s3.close();
  rmSync(folder, { recursive: true, force: true });
}
