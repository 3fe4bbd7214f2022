/** A model in one safetensors file, which carries the texts of its folder in the header. */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { createWasmBackend } from '@winnow/backend-wasm';
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import type { Backend } from '@winnow/ops';
import { FormatError } from '@winnow/tensor';
import { repoRoot, serveBytes, type TestServer } from '@winnow/test-utils';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { inspectModel, loadModel, openTokenizer, type ModelLocation } from '../../src/index.js';

const folder = new URL('.', demoModelUrl);
let bytes: Uint8Array<ArrayBuffer>;
let backend: Backend;
let server: TestServer;
beforeAll(async () => {
  bytes = new Uint8Array(await readFile(demoModelUrl));
  backend = await createWasmBackend({ numThreads: 1 });
  server = await serveBytes({ '/assets/model-4f2a.safetensors': bytes });
});
afterAll(async () => {
  await backend.dispose();
  await server.close();
});

const locations: Readonly<Record<string, () => ModelLocation>> = {
  'a path': () => fileURLToPath(demoModelUrl),
  'a file: URL': () => demoModelUrl,
  'an http: URL with a query': () => `${server.url}/assets/model-4f2a.safetensors?v=1`,
  'a Blob': () => new Blob([bytes]),
  'an open source': () => memorySource(bytes, 'anything'),
};

test.each(Object.entries(locations))('%s is the model of the folder', async (_name, location) => {
  const options = { backend, maxSessions: 1, context: 64 };
  await using ofFolder = await loadModel(folder, options);
  await using model = await loadModel(location(), options);
  const sampling = { maxTokens: 4, temperature: 0 };
  const { tokens } = await ofFolder.generate('The old man', sampling).result();
  expect((await model.generate('The old man', sampling).result()).tokens).toEqual(tokens);
  // both have the same identity, so that their sessions are interchangeable
  const messages = [{ role: 'user', content: 'Hi' }] as const;
  const session = await ofFolder.createSession();
  await session.generate(messages, { maxTokens: 2 }).result();
  const sink = memorySink();
  await session.save(sink);
  const restored = await model.restoreSession(memorySource(sink.toBytes(), 'session'));
  expect(restored.tokens).toEqual(session.tokens);
});

test('its tokenizer and its settings', async () => {
  const { tokenizer, chatTemplate } = await openTokenizer(demoModelUrl);
  const expected = await openTokenizer(folder);
  expect(tokenizer.encode('Once upon a time')).toEqual(expected.tokenizer.encode('Once upon a time'));
  expect(chatTemplate?.source).toBe(expected.chatTemplate?.source);
  const { name: _file, ...info } = await inspectModel(demoModelUrl);
  const { name: _folder, ...infoOfFolder } = await inspectModel(folder);
  expect(info).toEqual(infoOfFolder);
});

test('weights without a header that describes a model', async () => {
  const weights = `${repoRoot}/packages/engine/test/fixtures/arch/llama/hf/model.safetensors`;
  await expect(loadModel(weights)).rejects.toThrow(FormatError);
  await expect(loadModel(weights)).rejects.toThrow(
    /model\.safetensors: config\.json: missing in the header: expected the folder of the model/,
  );
});
