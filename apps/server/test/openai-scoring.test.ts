/** Several choices, logit bias, and scored prompts, with the request shapes of lm-evaluation-harness. */
import type { Model } from '@winnow/engine';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Completion } from '../src/schemas/completions.js';
import { scripted } from './fake-models.js';
import { demoId, loadDemoModel, postJson, startServer, type DemoServer } from './demo-server.js';

let model: Model;
let demo: DemoServer;

beforeAll(async () => {
  model = await loadDemoModel();
  const { logprobs: _none, ...unscored } = model;
  const ends = scripted(model, async function* ({ ignoreEos }) {
    if (ignoreEos === true) yield ''; // the end token
  });
  demo = await startServer({
    models: [
      { id: demoId, model },
      { id: 'unscored', model: unscored },
      { id: 'ends', model: ends },
    ],
  });
});

afterAll(async () => {
  await demo?.close();
  await model?.dispose();
});

const text = 'The old man looked at the sea and';
const chat = { model: demoId, messages: [{ role: 'user' as const, content: 'What is the code of Alice?' }] };

async function complete(body: object): Promise<Completion> {
  const response = await postJson(`${demo.url}/v1/completions`, { model: demoId, ...body });
  expect(response.status).toBe(200);
  return (await response.json()) as Completion;
}

test('n answers differ by seed, count their prompt once, and are those of single requests', async () => {
  const ask = { ...chat, temperature: 2, top_p: 1, top_k: 0, min_p: 0, seed: 7, max_tokens: 8 };
  const { choices, usage } = await demo.client.chat.completions.create({ ...ask, n: 3 });
  const single = await Promise.all(
    [0, 1, 2].map((index) => demo.client.chat.completions.create({ ...ask, seed: 7 + index })),
  );
  expect(choices).toEqual(single.map((answer, index) => ({ ...answer.choices[0], index })));
  expect(new Set(choices.map(({ message }) => message.content)).size).toBeGreaterThan(1);
  expect(usage?.prompt_tokens).toBe(single[0]?.usage?.prompt_tokens);
  expect(usage?.completion_tokens).toBe(single.reduce((sum, one) => sum + (one.usage?.completion_tokens ?? 0), 0));
  const streamed = ['', '', ''];
  const reasons: unknown[] = [];
  const stream = await demo.client.chat.completions.create({ ...ask, n: 3, stream: true });
  for await (const { choices: parts } of stream) {
    for (const { index, delta, finish_reason: reason } of parts) {
      streamed[index] += delta.content ?? '';
      if (reason !== null) reasons.push([index, reason]);
    }
  }
  expect(streamed).toEqual(choices.map(({ message }) => message.content));
  expect(reasons).toEqual(choices.map((choice) => [choice.index, choice.finish_reason]));
});

test('completions number the choices of all prompts', async () => {
  const ask = { prompt: ['Once upon a time', text], n: 2, temperature: 0, max_tokens: 2 };
  const { choices } = await complete(ask);
  expect(choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  expect(choices[2]?.text).toBe(choices[3]?.text); // greedy
  expect(choices[2]?.text).toBe((await complete({ ...ask, prompt: text, n: 1 })).choices[0]?.text);
});

test('logit_bias excludes and forces tokens; logprobs stay those of the model', async () => {
  const ask = { prompt: text, temperature: 0, max_tokens: 1, logprobs: 2 };
  const [free] = (await complete(ask)).choices;
  const row = (await model.logprobs(model.encodePrompt(text)))[0] as Float32Array;
  const best = row.indexOf(Math.max(...row));
  const [other] = (await complete({ ...ask, logit_bias: { [best]: -100 } })).choices;
  const ranked = Array.from(row).toSorted((a, b) => b - a);
  expect(other?.text).not.toBe(free?.text);
  expect(other?.logprobs?.token_logprobs[0]).toBeCloseTo(ranked[1] as number, 5);
  const worst = row.indexOf(Math.min(...row));
  const forced = await model.generate(text, {
    temperature: 0,
    maxTokens: 1,
    ignoreEos: true,
    logitBias: { [worst]: 100 },
  });
  expect((await forced.result()).tokens).toEqual([worst]);
});

/** `LocalCompletionsAPI._create_payload` of lm-evaluation-harness for loglikelihood requests. */
const harness = { temperature: 0, max_tokens: 1, logprobs: 1, seed: 1234, echo: true };

test('echo with logprobs scores every token of the prompt, as lm-evaluation-harness reads them', async () => {
  const tokens = Array.from(model.encodePrompt(text));
  const rows = await model.logprobs(tokens, { positions: tokens.map((_, position) => position) });
  const { choices } = await complete({ ...harness, prompt: [tokens, tokens.slice(0, 4)] });
  expect(choices.map(({ index }) => index)).toEqual([0, 1]);
  const { token_logprobs: logprobs = [], top_logprobs: top = [], text_offset: offsets } = choices[0]?.logprobs ?? {};
  expect(logprobs).toHaveLength(tokens.length + 1); // one generated token, which the harness drops
  expect([logprobs[0], top[0]]).toEqual([null, null]);
  for (const [index, id] of tokens.entries()) {
    if (index === 0) continue;
    const row = rows[index - 1] as Float32Array;
    expect(logprobs[index]).toBe(row[id]);
    // the harness compares the token with the best one
    expect(Math.max(...Object.values(top[index] ?? {}))).toBe(Math.max(...row));
  }
  expect(choices[0]?.text.startsWith(text)).toBe(true);
  expect(choices[1]?.logprobs?.token_logprobs).toHaveLength(5);
  const names = choices[0]?.logprobs?.tokens ?? [];
  expect(names.map((name, index) => choices[0]?.text.startsWith(name, offsets?.[index]))).not.toContain(false);
});

test('a scored prompt is followed by one token even where the answer would end', async () => {
  const tokens = Array.from(model.encodePrompt(text));
  const [choice] = (await complete({ ...harness, model: 'ends', prompt: tokens })).choices;
  expect(choice?.logprobs?.token_logprobs).toHaveLength(tokens.length + 1);
});

test('echo without an answer, without scores, and as a stream', async () => {
  const scored = await complete({ ...harness, prompt: text, max_tokens: 0 });
  expect(scored.choices[0]?.text).toBe(text);
  expect(scored.choices[0]?.logprobs?.tokens).toHaveLength(model.encodePrompt(text).length);
  const body = { prompt: text, temperature: 0, max_tokens: 3 };
  const plain = (await complete(body)).choices[0]?.text;
  expect((await complete({ ...body, echo: true })).choices[0]).toMatchObject({
    text: `${text}${plain}`,
    logprobs: null,
  });
  const whole = (await complete({ ...body, echo: true, logprobs: 1 })).choices[0];
  const stream = await demo.client.completions.create({
    ...body,
    model: demoId,
    echo: true,
    logprobs: 1,
    stream: true,
  });
  let said = '';
  const scores: unknown[] = [];
  for await (const { choices } of stream) {
    said += choices[0]?.text ?? '';
    scores.push(...(choices[0]?.logprobs?.token_logprobs ?? []));
  }
  expect(said).toBe(whole?.text);
  expect(scores).toEqual(whole?.logprobs?.token_logprobs);
});

test.each([
  ['no tokens without an echo', { prompt: text, max_tokens: 0 }, 'max_tokens'],
  ['a prompt that is too long', { ...harness, prompt: Array.from({ length: 5000 }, () => 5) }, 'prompt'],
  ['a model without scores', { ...harness, model: 'unscored', prompt: text }, 'echo'],
])('cannot be scored: %s', async (_name, body, param) => {
  const response = await postJson(`${demo.url}/v1/completions`, { model: demoId, ...body });
  expect(await response.json()).toMatchObject({ error: { type: 'invalid_request_error', param } });
  expect(response.status).toBe(400);
});
