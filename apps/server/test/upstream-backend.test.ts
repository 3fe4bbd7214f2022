/** `createOpenAiBackend` and `createFailoverBackend` with this server as the peer and the engine as the other one. */
import type { Model } from '@winnow/engine';
import {
  createFailoverBackend,
  createInferenceBackend,
  createOpenAiBackend,
  UpstreamError,
  type InferenceBackend,
  type TextBackend,
} from '@winnow/inference-backend';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { demoId, loadDemoModel, slotsOf, startServer, until, type DemoServer } from './demo-server.js';
import { breakNetwork, type BrokenNetwork } from './router/broken-network.js';

const greedy = { maxTokens: 12, temperature: 0 };
const apiKey = 'secret';

let model: Model;
let demo: DemoServer;
let network: BrokenNetwork;
let embedded: InferenceBackend;
let peer: TextBackend;

beforeAll(async () => {
  model = await loadDemoModel();
  demo = await startServer({ models: [{ id: demoId, model }] });
  network = await breakNetwork(demo.url);
  embedded = createInferenceBackend(model);
  peer = createOpenAiBackend({ baseUrl: `${network.url}/v1`, model: demoId });
});

afterAll(async () => {
  await network?.close();
  await demo?.close();
  await model?.dispose();
});

beforeEach(() => {
  network.cutAfterBytes = Infinity;
});

test('a peer answers as the engine does, for texts and token ids, with stop sequences and seeds', async () => {
  for (const options of [greedy, { maxTokens: 12, seed: 7, topK: 20, topP: 0.9 }, { ...greedy, stop: [' the'] }]) {
    for (const prompt of ['The sea was', model.encodePrompt('The sea was')]) {
      const { text, numPromptTokens } = await embedded.generate(prompt, options);
      expect(await peer.generate(prompt, options)).toMatchObject({ text, numPromptTokens });
    }
  }
});

test('a connection that breaks before the first event moves to the engine; later, the stream fails', async () => {
  const expected = (await embedded.generate('The sea was', greedy)).text;
  const errors: unknown[] = [];
  const both = createFailoverBackend({
    backends: [peer, embedded],
    onFailover: ({ error }) => errors.push(error),
  });
  network.cutAfterBytes = -1;
  expect((await both.generate('The sea was', greedy)).text).toBe(expected);
  expect(errors.map((error) => UpstreamError.isInstance(error))).toEqual([true]);

  network.cutAfterBytes = 700;
  let text = '';
  const reading = (async () => {
    for await (const piece of both.generateStream('The sea was', greedy)) text += piece.text;
  })();
  await expect(reading).rejects.toBeInstanceOf(UpstreamError);
  expect(text.length).toBeGreaterThan(0);
  expect(expected.startsWith(text) && text !== expected).toBe(true);
  expect(errors.length).toBe(1);
});

test('leaving a stream frees the slot of the peer', async () => {
  for await (const _piece of peer.generateStream('The sea was', { maxTokens: 4000, temperature: 0 })) break;
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
});

test('a wrong key, an unknown model and a prompt beyond the context', async () => {
  const locked = await startServer({ models: [{ id: demoId, model }], apiKeys: [apiKey] });
  const baseUrl = `${locked.url}/v1`;
  const ask = (key: string, name = demoId, prompt = 'Once'): Promise<unknown> =>
    createOpenAiBackend({ baseUrl, model: name, apiKey: key }).generate(prompt, { maxTokens: 1 });
  try {
    await expect(ask(apiKey)).resolves.toMatchObject({ finishReason: 'length' });
    const refused = { name: 'UpstreamError', isRequestAtFault: false };
    await expect(ask('other')).rejects.toMatchObject({ ...refused, status: 401, serverCode: 'invalid_api_key' });
    await expect(ask(apiKey, 'other')).rejects.toMatchObject({ ...refused, status: 404 });
    const tooLong = ask(apiKey, demoId, 'sea '.repeat(5000));
    await expect(tooLong).rejects.toMatchObject({ ...refused, status: 400, serverCode: 'context_length_exceeded' });
  } finally {
    await locked.close();
  }
});
