/** The server through the OpenAI client. */
import { fileURLToPath } from 'node:url';
import type { Model } from '@winnow/engine';
import { loadEmbeddingModel, type EmbeddingModel } from '@winnow/engine';
import { demoModelUrl } from '@winnow/demo-model';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { endless } from './fake-models.js';
import { demoId, loadDemoModel, postJson, slotsOf, startServer, until, type DemoServer } from './demo-server.js';

let model: Model;
let embedder: EmbeddingModel;
let demo: DemoServer;

beforeAll(async () => {
  model = await loadDemoModel();
  embedder = await loadEmbeddingModel(demoModelUrl, { threads: 1, pooling: 'mean' });
  demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'endless', model: endless(model) },
    ],
    embeddingModels: [{ id: 'tiny-embedder', model: embedder }],
  });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
  await embedder?.dispose();
});

const question = [{ role: 'user' as const, content: 'What is the code of Alice?' }];
const greedy = { model: demoId, temperature: 0, messages: question };

test('chat completions: the answer equals that of the engine, with its usage', async () => {
  const expected = await model.generate(question, { temperature: 0, maxTokens: 12 }).result();
  const answer = await demo.client.chat.completions.create({ ...greedy, max_completion_tokens: 12 });
  expect(answer).toMatchObject({ object: 'chat.completion', model: demoId });
  expect(answer.id).toMatch(/^chatcmpl-\w+$/);
  expect(answer.choices).toEqual([
    {
      index: 0,
      message: { role: 'assistant', content: expected.text, refusal: null },
      logprobs: null,
      finish_reason: expected.finishReason === 'length' ? 'length' : 'stop',
    },
  ]);
  expect(answer.usage).toMatchObject({
    prompt_tokens: expected.promptTokens,
    completion_tokens: expected.tokens.length,
    total_tokens: expected.promptTokens + expected.tokens.length,
  });
});

test('chat completions: the parts of a stream add up to the answer', async () => {
  const whole = await demo.client.chat.completions.create({ ...greedy, max_tokens: 12 });
  const stream = await demo.client.chat.completions.create({
    ...greedy,
    max_tokens: 12,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  const reasons: unknown[] = [];
  let usage: unknown;
  const roles: unknown[] = [];
  for await (const chunk of stream) {
    expect(chunk.object).toBe('chat.completion.chunk');
    const [choice] = chunk.choices;
    if (choice === undefined) usage = chunk.usage;
    else {
      expect(chunk.usage).toBe(null);
      text += choice.delta.content ?? '';
      if (choice.delta.role !== undefined) roles.push(choice.delta.role);
      if (choice.finish_reason !== null) reasons.push(choice.finish_reason);
    }
  }
  expect(text).toBe(whole.choices[0]?.message.content);
  expect(roles).toEqual(['assistant']);
  expect(reasons).toEqual([whole.choices[0]?.finish_reason]);
  expect(usage).toMatchObject({ completion_tokens: whole.usage?.completion_tokens });
});

test('chat completions: a stream reports usage only on request', async () => {
  const stream = await demo.client.chat.completions.create({ ...greedy, max_tokens: 3, stream: true });
  for await (const chunk of stream) {
    expect(chunk.choices).toHaveLength(1);
    expect(chunk.usage).toBe(undefined);
  }
});

test('chat completions: equal seeds give equal answers, another seed gives another', async () => {
  const ask = async (seed: number): Promise<string | null | undefined> => {
    const body = { ...greedy, temperature: 1.5, top_p: 1, seed, max_tokens: 24 };
    return (await demo.client.chat.completions.create(body)).choices[0]?.message.content;
  };
  const first = await ask(1);
  expect(await ask(1)).toBe(first);
  expect(await ask(2)).not.toBe(first);
});

test('chat completions: logprobs: one entry per token, the chosen one first if it is the top token', async () => {
  const body = { ...greedy, max_tokens: 5, logprobs: true, top_logprobs: 3 };
  const answer = await demo.client.chat.completions.create(body);
  const content = answer.choices[0]?.logprobs?.content ?? [];
  expect(content).toHaveLength(answer.usage?.completion_tokens ?? 0);
  for (const { token, logprob, bytes, top_logprobs: top } of content) {
    expect(logprob).toBeLessThanOrEqual(0);
    expect(new TextDecoder().decode(Uint8Array.from(bytes ?? []))).toBe(token);
    expect(top).toHaveLength(3);
    expect(top[0]).toMatchObject({ token, logprob });
  }
  const streamed: unknown[] = [];
  for await (const chunk of await demo.client.chat.completions.create({ ...body, stream: true })) {
    streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  }
  expect(streamed).toEqual(content);
});

test('chat completions: logprobs end before a stop sequence', async () => {
  const body = { ...greedy, max_tokens: 24, logprobs: true };
  const whole = (await demo.client.chat.completions.create(body)).choices[0];
  const text = whole?.message.content ?? '';
  // starts and ends within tokens
  for (const [begin, end] of [
    [3, 6],
    [8, 15],
  ]) {
    const ask = { ...body, stop: text.slice(begin, end) };
    const answer = (await demo.client.chat.completions.create(ask)).choices[0];
    const tokens = (answer?.logprobs?.content ?? []).map(({ token }) => token);
    expect(answer?.message.content).toBe(text.slice(0, text.indexOf(ask.stop)));
    // the last token may contain the beginning of the stop sequence
    expect(tokens.join('').startsWith(answer?.message.content ?? '?')).toBe(true);
    expect(tokens.slice(0, -1).join('').length).toBeLessThan(answer?.message.content?.length ?? 0);
    expect(answer?.logprobs?.content).toEqual(whole?.logprobs?.content?.slice(0, tokens.length));
    const streamed: string[] = [];
    for await (const chunk of await demo.client.chat.completions.create({ ...ask, stream: true })) {
      streamed.push(...(chunk.choices[0]?.logprobs?.content ?? []).map(({ token }) => token));
    }
    expect(streamed).toEqual(tokens);
    // text that only starts like the stop sequence is part of the answer
    const missed = { ...ask, stop: `${ask.stop}~` };
    expect((await demo.client.chat.completions.create(missed)).choices[0]).toEqual(whole);
  }
});

test('chat completions: a stop sequence ends the answer and is not part of it', async () => {
  const whole = await demo.client.chat.completions.create({ ...greedy, max_tokens: 24 });
  const text = whole.choices[0]?.message.content ?? '';
  const stop = text.slice(3, 6);
  expect(stop).toHaveLength(3);
  for (const asked of [stop, [stop, 'never said']]) {
    const answer = await demo.client.chat.completions.create({ ...greedy, max_tokens: 24, stop: asked });
    expect(answer.choices[0]).toMatchObject({
      message: { content: text.slice(0, text.indexOf(stop)) },
      finish_reason: 'stop',
    });
  }
});

test('chat completions: content parts, developer messages and fields of earlier answers are accepted', async () => {
  const answer = await demo.client.chat.completions.create({
    model: demoId,
    max_tokens: 2,
    temperature: 0,
    n: 1,
    messages: [
      { role: 'developer', content: 'Be short.' },
      { role: 'user', content: [{ type: 'text', text: 'Hello' }] },
      { role: 'assistant', content: 'Hi', refusal: null },
      { role: 'user', content: 'And?' },
    ],
  });
  expect(answer.choices).toHaveLength(1);
});

test('chat completions: a shared prefix is computed once', async () => {
  const content = 'The old man looked at the sea and thought of the boats. '.repeat(8);
  const ask = { ...greedy, messages: [{ role: 'user' as const, content }], max_tokens: 2 };
  await demo.client.chat.completions.create(ask);
  const { usage } = await demo.client.chat.completions.create(ask);
  const cached = usage?.prompt_tokens_details?.cached_tokens ?? 0;
  // whole blocks, never the last token
  const { blockSize } = model.metrics().cache;
  expect(cached).toBe(Math.floor(((usage?.prompt_tokens ?? 0) - 1) / blockSize) * blockSize);
  expect(cached).toBeGreaterThan(0);
});

test('chat completions: an abort by the client stops the generation and frees its session', async () => {
  const stream = await demo.client.chat.completions.create({ ...greedy, model: 'endless', stream: true });
  for await (const _chunk of stream) break; // leaving the loop aborts the request
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
  expect(model.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });

  const controller = new AbortController();
  const whole = demo.client.chat.completions.create({ ...greedy, model: 'endless' }, { signal: controller.signal });
  await until(async () => (await slotsOf(demo.url)).some(({ generated_tokens: count }) => count > 0));
  controller.abort();
  await expect(whole).rejects.toBeInstanceOf(OpenAI.APIUserAbortError);
  await until(async () => (await slotsOf(demo.url)).every(({ state }) => state === 'idle'));
  expect(model.metrics()).toMatchObject({ numSessions: 0, cache: { numUsedBlocks: 0 } });
});

describe('completions', () => {
  const prompt = 'The old man looked at the sea and';

  test('a text is continued like by the engine', async () => {
    const expected = await model.generate(prompt, { temperature: 0, maxTokens: 16 }).result();
    const answer = await demo.client.completions.create({ model: demoId, prompt, temperature: 0 });
    expect(answer).toMatchObject({ object: 'text_completion', choices: [{ index: 0, text: expected.text }] });
    expect(answer.usage?.completion_tokens).toBe(expected.tokens.length);
  });

  test('token ids, and several prompts', async () => {
    const ids = Array.from(model.encodePrompt(prompt));
    const ask = { model: demoId, temperature: 0, max_tokens: 4 };
    const [text] = (await demo.client.completions.create({ ...ask, prompt })).choices;
    const byIds = await demo.client.completions.create({ ...ask, prompt: ids });
    expect(byIds.choices).toEqual([text]);
    const two = await demo.client.completions.create({ ...ask, prompt: ['Once upon a time', prompt] });
    expect(two.choices[1]).toEqual({ ...text, index: 1 });
    const parts = ['', ''];
    const stream = await demo.client.completions.create({ ...ask, prompt: ['Once upon a time', prompt], stream: true });
    for await (const { choices } of stream) for (const { index, text: part } of choices) parts[index] += part;
    expect(parts).toEqual(two.choices.map((choice) => choice.text));
  });

  test('logprobs with offsets into the text', async () => {
    const answer = await demo.client.completions.create({
      model: demoId,
      prompt,
      temperature: 0,
      max_tokens: 4,
      logprobs: 2,
    });
    const [choice] = answer.choices;
    const {
      tokens = [],
      text_offset: offsets = [],
      token_logprobs: logprobs = [],
      top_logprobs: top = [],
    } = choice?.logprobs ?? {};
    expect(tokens.join('')).toBe(choice?.text);
    expect(tokens.map((token, index) => choice?.text.startsWith(token, offsets[index]))).not.toContain(false);
    expect([logprobs.length, top.length]).toEqual([4, 4]);
    for (const entry of top) expect(Object.keys(entry)).toHaveLength(2);
  });
});

test('completions: logprobs end before a stop sequence', async () => {
  const prompt = 'The old man looked at the sea and';
  const ask = { model: demoId, prompt, temperature: 0, max_tokens: 12, logprobs: 1 };
  const text = (await demo.client.completions.create(ask)).choices[0]?.text ?? '';
  const stop = text.slice(9, 14);
  const [choice] = (await demo.client.completions.create({ ...ask, stop })).choices;
  expect(choice?.text).toBe(text.slice(0, 9));
  const tokens = choice?.logprobs?.tokens ?? [];
  expect(tokens.join('').startsWith(text.slice(0, 9))).toBe(true);
  expect(tokens.slice(0, -1).join('').length).toBeLessThan(9);
  const streamed: string[] = [];
  for await (const { choices } of await demo.client.completions.create({ ...ask, stop, stream: true })) {
    streamed.push(...(choices[0]?.logprobs?.tokens ?? []));
  }
  expect(streamed).toEqual(tokens);
});
describe('embeddings', () => {
  test('vectors of texts and ids, as floats and as base64', async () => {
    const texts = ['A man is dancing.', 'The sea.'];
    const expected = await embedder.embed(texts);
    for (const format of ['float', 'base64', undefined] as const) {
      const { data, usage } = await demo.client.embeddings.create({
        model: 'tiny-embedder',
        input: texts,
        ...(format === undefined ? {} : { encoding_format: format }),
      });
      const vectors = data.map(({ embedding }) =>
        typeof embedding === 'string'
          ? new Float32Array(Uint8Array.from(Buffer.from(embedding, 'base64')).buffer)
          : Float32Array.from(embedding),
      );
      expect(vectors).toEqual(expected);
      expect(usage.prompt_tokens).toBe(texts.reduce((sum, text) => sum + embedder.encodeText(text).length, 0));
    }
    const ids = Array.from(embedder.encodeText('The sea.'));
    const { data } = await demo.client.embeddings.create({ model: 'tiny-embedder', input: [ids] });
    expect(Float32Array.from(data[0]?.embedding ?? [])).toEqual(expected[1]);
  });

  test('long, empty or missing input is rejected by name', async () => {
    const embed = (input: string[] | string, dimensions?: number): Promise<unknown> =>
      demo.client.embeddings.create({
        model: 'tiny-embedder',
        input,
        ...(dimensions === undefined ? {} : { dimensions }),
      });
    const long = 'sea '.repeat(5000);
    await expect(embed(['fine', long])).rejects.toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
      param: 'input[1]',
    });
    await expect(embed('fine', 7)).rejects.toMatchObject({ status: 400, param: 'dimensions' });
    const sparse = { model: 'tiny-embedder', input: 'fine', outputs: ['sparse'] };
    const answer = await postJson(`${demo.url}/v1/embeddings`, sparse);
    expect([answer.status, await answer.text()]).toEqual([400, expect.stringContaining('sparse_linear.pt')]);
    const model = demoId;
    await expect(demo.client.embeddings.create({ model, input: 'x' })).rejects.toMatchObject({
      status: 400,
      code: 'unsupported_model',
    });
  });
});

test('lexical weights and multi-vectors', async () => {
  const golden = new URL('../../../packages/engine/test/fixtures/arch/xlm-roberta/hf', import.meta.url);
  await using model = await loadEmbeddingModel(fileURLToPath(golden), { pooling: 'cls', threads: 1 });
  const [expected] = await model.embedTexts(['boats'], { outputs: ['sparse', 'multiVector'] });
  const m3 = await startServer({ models: [], embeddingModels: [{ id: 'm3', model }] });
  const answer = await postJson(`${m3.url}/v1/embeddings`, { input: 'boats', outputs: ['sparse', 'multi_vector'] });
  const { data } = (await answer.json()) as {
    data: { sparse: { indices: number[]; values: number[] }; multi_vector: number[][] }[];
  };
  await m3.close();
  expect(Int32Array.from(data[0]?.sparse.indices ?? [])).toEqual(expected?.sparse?.indices);
  expect(Float32Array.from(data[0]?.sparse.values ?? [])).toEqual(expected?.sparse?.values);
  expect(data[0]?.multi_vector.map((vector) => Float32Array.from(vector))).toEqual(expected?.multiVector);
});

test('queries and documents of a ColBERT model', async () => {
  const golden = new URL('../../../packages/engine/test/fixtures/arch/colbert/hf', import.meta.url);
  await using model = await loadEmbeddingModel(fileURLToPath(golden), { threads: 1 });
  const colbert = await startServer({ models: [], embeddingModels: [{ id: 'colbert', model }] });
  const embed = (more: object): Promise<Response> =>
    postJson(`${colbert.url}/v1/embeddings`, { input: 'boats', outputs: ['multi_vector'], ...more });
  for (const promptName of ['query', 'document']) {
    const [expected] = await model.embedTexts(['boats'], { outputs: ['multiVector'], promptName });
    const { data } = (await (await embed({ prompt_name: promptName })).json()) as {
      data: { embedding: number[]; multi_vector: number[][] }[];
    };
    expect(data[0]?.embedding).toEqual([]);
    expect(data[0]?.multi_vector.map((vector) => Float32Array.from(vector))).toEqual(expected?.multiVector);
  }
  const none = await (await embed({ outputs: [] })).text();
  expect(none).toContain('expected multi_vector, since');
  const unknown = await embed({ prompt_name: 'passage' });
  expect([unknown.status, await unknown.text()]).toEqual([400, expect.stringContaining('"prompt_name"')]);
  await colbert.close();
});

test('models can be listed and retrieved', async () => {
  const models = [];
  for await (const entry of demo.client.models.list()) models.push(entry);
  expect(models.map(({ id, object }) => ({ id, object }))).toEqual([
    { id: demoId, object: 'model' },
    { id: 'endless', object: 'model' },
    { id: 'tiny-embedder', object: 'model' },
  ]);
  expect(await demo.client.models.retrieve(demoId)).toMatchObject({
    id: demoId,
    context_length: model.contextSize,
    capabilities: ['chat', 'completion'],
  });
  await expect(demo.client.models.retrieve('other')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
});

test('metrics are in Prometheus format and count requests', async () => {
  const response = await fetch(`${demo.url}/metrics`);
  expect(response.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
  const lines = (await response.text()).trimEnd().split('\n');
  const sample = /^[a-z_:]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[\d.e+-]+$/;
  for (const line of lines) expect(line).toMatch(line.startsWith('#') ? /^# (HELP|TYPE) [a-z_:]+ \S/ : sample);
  const value = (start: string): number =>
    Number(
      lines
        .find((line) => line.startsWith(start))
        ?.split(' ')
        .at(-1) ?? Number.NaN,
    );
  expect(value('winnow_generated_tokens_total{model="winnow-tiny"}')).toBeGreaterThan(0);
  expect(value('winnow_http_requests_total{route="/v1/chat/completions",status="200"}')).toBeGreaterThan(0);
  expect(value('winnow_requests_canceled_total{model="endless"}')).toBe(2);
  expect(value('winnow_http_requests_total{route="/v1/chat/completions",status="499"}')).toBe(2);
  expect(value('winnow_sessions')).toBe(0);
});
