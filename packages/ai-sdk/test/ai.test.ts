/**
 * The adapter through the real `ai` package on the demo model. Results are checked for their form, not for their sense.
 */
import { demoModelUrl } from '@winnow/demo-model';
import { loadEmbeddingModel, loadModel, type EmbeddingModel, type Model } from '@winnow/engine';
import {
  cosineSimilarity,
  createProviderRegistry,
  embed,
  embedMany,
  generateObject,
  generateText,
  isStepCount,
  Output,
  streamText,
  tool,
} from 'ai';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { z } from 'zod';
import { createWinnow, embeddingModel, languageModel } from '../src/index.js';

let model: Model;
let embedder: EmbeddingModel;
beforeAll(async () => {
  model = await loadModel(demoModelUrl, { context: 1024, threads: 2, maxSessions: 4 });
  embedder = await loadEmbeddingModel(demoModelUrl, { pooling: 'mean', threads: 2 });
});
afterAll(async () => {
  await model.dispose();
  await embedder.dispose();
});

const prompt = 'What did the captain see?';
const person = z.object({ name: z.string().max(10), age: z.int().min(1).max(99), mood: z.enum(['glad', 'sad']) });

/** The tests check that it is called. */
const weather = tool({
  description: 'Weather of a city',
  inputSchema: z.object({ city: z.enum(['Ulm', 'Bern']), days: z.int().min(1).max(9) }),
  execute: ({ city, days }) => Promise.resolve({ text: `${days} days of sun in ${city}` }),
});

test('generateText: text, usage, finish reason', async () => {
  const result = await generateText({ model: languageModel(model), prompt, maxOutputTokens: 12, temperature: 0 });
  const direct = await model.generate([{ role: 'user', content: prompt }], { maxTokens: 12, temperature: 0 }).result();
  expect(result.text).toBe(direct.text);
  expect(result.finishReason).toBe('length');
  expect(result.usage.inputTokens).toBe(direct.promptTokens);
  expect(result.usage.outputTokens).toBe(12);
  expect(result.usage.totalTokens).toBe(direct.promptTokens + 12);
  expect(result.warnings ?? []).toEqual([]);
  expect(result.response.modelId).toBe(model.name);
});

test('usage separates tokens of reasoning from those of the text', async () => {
  const template = model.chatTemplate as NonNullable<Model['chatTemplate']>;
  const chatTemplate: typeof template = {
    source: "{{ '<think>' }}{{ '</think>' }}", // the marks of a model that reasons
    render: (messages, options) => template.render(messages, options),
    renderSliced: (messages, options) => template.renderSliced(messages, options),
  };
  const grammar = 'root ::= "<think>The old man is here.</think>So it is."';
  const options = {
    ...{ model: languageModel({ ...model, chatTemplate }), prompt: 'Who?', temperature: 0 },
    providerOptions: { winnow: { grammar } },
  };
  const pieces: string[] = [];
  const question = [{ role: 'user', content: 'Who?' }];
  for await (const { text } of model.generate(question, { grammar, temperature: 0 })) pieces.push(text);
  const end = pieces.join('').indexOf('</think>');
  const numReasoning = pieces.filter((_, index) => pieces.slice(0, index).join('').length < end).length;
  const whole = await generateText(options);
  expect([whole.reasoningText, whole.text]).toEqual(['The old man is here.', 'So it is.']);
  expect(numReasoning).toBeGreaterThan(3);
  const { outputTokens = 0, outputTokenDetails } = whole.usage;
  expect(outputTokenDetails.reasoningTokens).toBe(numReasoning);
  expect(outputTokenDetails.textTokens).toBe(outputTokens - numReasoning);
  const stream = streamText(options);
  await stream.consumeStream();
  expect(await stream.usage).toEqual(whole.usage);
});

test('generateText: usage separates cached tokens of the prompt from computed ones', async () => {
  const options = { model: languageModel(model), prompt: `${prompt} `.repeat(20), maxOutputTokens: 2, temperature: 0 };
  await generateText(options);
  const { inputTokens, inputTokenDetails } = (await generateText(options)).usage;
  const { cacheReadTokens = 0, noCacheTokens } = inputTokenDetails;
  expect(cacheReadTokens).toBeGreaterThan(0);
  expect(noCacheTokens).toBe(Number(inputTokens) - cacheReadTokens);
});

test('generateText: seed, stop sequences, system message and settings are passed on', async () => {
  const options = { model: languageModel(model), prompt, seed: 7, maxOutputTokens: 20, temperature: 1 };
  const [first, second] = [await generateText(options), await generateText(options)];
  expect(second.text).toBe(first.text);
  const stop = first.text.slice(8, 10);
  const stopped = await generateText({ ...options, stopSequences: [stop] });
  expect([stopped.text, stopped.finishReason]).toEqual([first.text.slice(0, first.text.indexOf(stop)), 'stop']);
  const messages = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: prompt },
  ];
  const direct = await model.generate(messages, { seed: 7, maxTokens: 20, temperature: 1 }).result();
  expect((await generateText({ ...options, instructions: 'Be brief.' })).text).toBe(direct.text);
});

test('generateText: without a chat template the model continues the text', async () => {
  const story = 'The captain looked at the sea and';
  const completion = languageModel(model, { chat: false });
  const { text } = await generateText({ model: completion, prompt: story, maxOutputTokens: 8, temperature: 0 });
  expect(text).toBe((await model.generate(story, { maxTokens: 8, temperature: 0 }).result()).text);
});

test('generateText: provider options', async () => {
  const grammar = 'root ::= "yes" | "no"';
  const { text, warnings } = await generateText({
    model: languageModel(model),
    prompt,
    providerOptions: { winnow: { grammar } },
  });
  expect(['yes', 'no']).toContain(text);
  expect(warnings).toEqual([]);
});

test('speculative: a setting of the model, or of a call', async () => {
  const kinds: unknown[] = [];
  const generate: Model['generate'] = (input, options) => {
    kinds.push(options?.speculative);
    return model.generate(input, options);
  };
  const drafts = languageModel({ ...model, generate }, { speculative: 'auto' });
  await generateText({ model: drafts, prompt, maxOutputTokens: 2 });
  await generateText({
    model: drafts,
    prompt,
    maxOutputTokens: 2,
    providerOptions: { winnow: { speculative: 'off' } },
  });
  expect(kinds).toEqual(['auto', 'off']);
});

test('unknown options are errors that name the nearest one', async () => {
  const misspelled = { winnow: { penaltyWindw: 3 } };
  await expect(
    generateText({ model: languageModel(model), prompt, providerOptions: misspelled, maxRetries: 0 }),
  ).rejects.toThrow('unknown option "penaltyWindw"; did you mean "penaltyWindow"?');
  await expect(
    embed({
      model: embeddingModel(embedder),
      value: 'a',
      providerOptions: { winnow: { dimension: 8 } },
      maxRetries: 0,
    }),
  ).rejects.toThrow('unknown option "dimension"; did you mean "dimensions"?');
  const settings = { chatt: false, promptname: 'query', model: {} };
  expect(() => languageModel(model, settings as object)).toThrow('did you mean "chat"?');
  expect(() => embeddingModel(embedder, settings as object)).toThrow('unknown option "chatt"');
  expect(() => createWinnow({ settings: { modelId: 'x' } as object })).toThrow('unknown option "settings.modelId"');
});

test('generateText: unsupported features are rejected', async () => {
  const image = { type: 'file', mediaType: 'image/png', data: new Uint8Array([1]) } as const;
  await expect(
    generateText({ model: languageModel(model), messages: [{ role: 'user', content: [image] }], maxRetries: 0 }),
  ).rejects.toThrow('expected no images, since this model takes none');
  const long = 'sea '.repeat(3000);
  await expect(generateText({ model: languageModel(model), prompt: long, maxRetries: 0 })).rejects.toMatchObject({
    code: 'capacity',
  });
});

test('generateText: an abort rejects with the reason, and the model remains usable', async () => {
  const controller = new AbortController();
  const promise = generateText({
    model: languageModel(model),
    prompt,
    abortSignal: controller.signal,
    maxRetries: 0,
  });
  controller.abort(new Error('enough'));
  await expect(promise).rejects.toThrow('enough');
  expect(model.metrics().numSessions).toBe(0);
  await generateText({ model: languageModel(model), prompt, maxOutputTokens: 2 });
});

describe('streamText', () => {
  test('the pieces add up to the text; usage and finish reason come at the end', async () => {
    const stream = streamText({ model: languageModel(model), prompt, maxOutputTokens: 12, temperature: 0 });
    const pieces: string[] = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    const direct = await model
      .generate([{ role: 'user', content: prompt }], { maxTokens: 12, temperature: 0 })
      .result();
    expect(pieces.length).toBeGreaterThan(3);
    expect(pieces.join('')).toBe(direct.text);
    expect(await stream.finishReason).toBe('length');
    expect((await stream.usage).outputTokens).toBe(12);
  });

  test('aborting ends the stream and frees the session', async () => {
    const controller = new AbortController();
    const stream = streamText({ model: languageModel(model), prompt, abortSignal: controller.signal });
    const types: string[] = [];
    for await (const part of stream.fullStream) {
      types.push(part.type);
      if (part.type === 'text-delta') controller.abort();
    }
    expect(types).toContain('abort');
    await vi.waitFor(() => expect(model.metrics().numSessions).toBe(0)); // after the current step
  });

  test('leaving a stream early frees the session', async () => {
    const { stream } = await languageModel(model).doStream({
      prompt: [{ role: 'user', content: [{ type: 'text', text: prompt }] }],
    });
    for await (const part of stream as unknown as AsyncIterable<{ type: string }>)
      if (part.type === 'text-delta') break;
    expect(model.metrics().numSessions).toBe(0);
  });

  test('failures are reported in the stream', async () => {
    const errors: unknown[] = [];
    const stream = streamText({
      model: languageModel(model),
      prompt: 'sea '.repeat(3000),
      onError: ({ error }) => void errors.push(error),
    });
    await stream.consumeStream();
    expect(errors[0]).toMatchObject({ code: 'capacity' });
    expect(model.metrics().numSessions).toBe(0);
  });
});

describe('objects', () => {
  test('generateObject', async () => {
    const { object, usage } = await generateObject({ model: languageModel(model), schema: person, prompt, seed: 1 });
    expect(person.safeParse(object).success).toBe(true);
    expect(usage.outputTokens).toBeGreaterThan(5);
  });

  test('arrays and choices', async () => {
    const element = z.object({ mood: z.enum(['glad', 'sad']) });
    const array = await generateObject({
      model: languageModel(model),
      output: 'array',
      schema: element,
      prompt,
      seed: 3,
      maxOutputTokens: 700,
    });
    expect(z.array(element).safeParse(array.object).success).toBe(true);
    const choice = await generateObject({ model: languageModel(model), output: 'enum', enum: ['sea', 'land'], prompt });
    expect(['sea', 'land']).toContain(choice.object);
  });

  test('Output.object in a text and in a stream', async () => {
    const output = Output.object({ schema: person });
    const { output: object } = await generateText({ model: languageModel(model), prompt, output, seed: 2 });
    expect(person.safeParse(object).success).toBe(true);
    const stream = streamText({ model: languageModel(model), prompt, output, seed: 2 });
    let last: unknown;
    for await (const partial of stream.partialOutputStream) last = partial;
    expect(last).toEqual(object);
  });

  test('schemas that cannot be enforced are rejected with their place', async () => {
    const schema = z.object({ items: z.array(z.string()).meta({ uniqueItems: true }) });
    await expect(generateObject({ model: languageModel(model), schema, prompt, maxRetries: 0 })).rejects.toMatchObject({
      code: 'format',
      field: '#/properties/items/uniqueItems',
    });
  });
});

describe('tools', () => {
  test('a required tool is called, its result is returned, and the model answers', async () => {
    const result = await generateText({
      model: languageModel(model, { parallelToolCalls: false }),
      prompt,
      tools: { weather },
      prepareStep: ({ stepNumber }) => ({
        toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'weather' } : 'none',
      }),
      stopWhen: isStepCount(2),
      include: { requestBody: true },
      maxOutputTokens: 150,
      seed: 1,
    });
    const [first, second] = result.steps;
    expect(first?.finishReason).toBe('tool-calls');
    expect(first?.toolCalls).toHaveLength(1);
    const { city, days } = z.object({ city: z.string(), days: z.number() }).parse(first?.toolCalls[0]?.input);
    expect(first?.toolResults[0]?.output).toEqual({ text: `${days} days of sun in ${city}` });
    const body = z.object({ prompt: z.array(z.number()) }).parse(second?.request.body);
    const seen = model.tokenizer.decode(body.prompt);
    expect(seen).toContain(`${days} days of sun in ${city}`);
    expect(second?.toolCalls).toEqual([]);
  });

  test('tool calls in a stream', async () => {
    const stream = streamText({
      model: languageModel(model, { parallelToolCalls: false }),
      prompt,
      tools: { weather },
      toolChoice: 'required',
      seed: 4,
      maxOutputTokens: 100,
    });
    const types: string[] = [];
    for await (const { type } of stream.fullStream) types.push(type);
    expect(types).toEqual(
      expect.arrayContaining(['tool-input-start', 'tool-input-delta', 'tool-input-end', 'tool-call', 'tool-result']),
    );
    const [call] = await stream.toolCalls;
    expect(call?.input).toMatchObject({ city: expect.stringMatching(/^(Ulm|Bern)$/) as string });
    expect(await stream.finishReason).toBe('tool-calls');
  });

  test('text remains text when tools are available', async () => {
    const { text, toolCalls } = await generateText({
      model: languageModel(model),
      prompt,
      tools: { weather },
      maxOutputTokens: 10,
      seed: 5,
    });
    expect(toolCalls).toEqual([]);
    expect(text).not.toBe('');
  });
});

test('a call that is cut off by the token limit is invalid, and the reason is length', async () => {
  const asked = { prompt, tools: { weather }, toolChoice: 'required', seed: 4 } as const;
  const uncut = { model: languageModel(model, { parallelToolCalls: false }), ...asked };
  const { usage } = await generateText({ ...uncut, maxOutputTokens: 100 });
  const cut = { ...uncut, maxOutputTokens: Math.floor((usage.outputTokens ?? 0) * 0.8) };
  const whole = await generateText(cut);
  expect(whole.finishReason).toBe('length');
  expect(whole.toolCalls).toMatchObject([{ toolName: 'weather', invalid: true }]);
  const stream = streamText(cut);
  expect(await stream.toolCalls).toMatchObject([{ toolName: 'weather', invalid: true }]);
  expect(await stream.finishReason).toBe('length');
});

describe('embeddings', () => {
  const values = ['The storm broke over the harbour.', 'Beat two eggs.', 'The storm broke over the old harbour.'];

  test('embed and embedMany give the vectors of the engine', async () => {
    const { embeddings, usage } = await embedMany({ model: embeddingModel(embedder), values });
    const direct = await embedder.embed(values);
    expect(embeddings).toEqual(direct.map((vector) => Array.from(vector)));
    expect(usage.tokens).toBe(values.reduce((sum, value) => sum + embedder.encodeText(value).length, 0));
    const [storm, eggs, old] = embeddings as [number[], number[], number[]];
    expect(cosineSimilarity(storm, old)).toBeGreaterThan(cosineSimilarity(storm, eggs));
    expect((await embed({ model: embeddingModel(embedder), value: values[0] as string })).embedding).toEqual(storm);
  });

  test('an abort rejects embed', async () => {
    const abortSignal = AbortSignal.abort(new Error('enough'));
    await expect(embedMany({ model: embeddingModel(embedder), values, abortSignal, maxRetries: 0 })).rejects.toThrow(
      'enough',
    );
  });
});

describe('providers', () => {
  test('models by name, also in a registry', async () => {
    const winnow = createWinnow({ languageModels: { demo: model }, embeddingModels: { vectors: embedder } });
    const registry = createProviderRegistry({ winnow });
    for (const named of [winnow('demo'), registry.languageModel('winnow:demo')]) {
      const { text, response } = await generateText({ model: named, prompt, maxOutputTokens: 3 });
      expect(text).not.toBe('');
      expect(response.modelId).toBe('demo');
    }
    const { embedding } = await embed({ model: registry.embeddingModel('winnow:vectors'), value: 'sea' });
    expect(embedding).toHaveLength(embedder.dimensions);
    expect(() => winnow('other')).toThrow('other');
    expect(() => winnow.imageModel('demo')).toThrow('demo');
  });

  test('concurrent calls get the results of running alone', async () => {
    const texts = ['Why?', 'When?', 'Who?'];
    const ask = (text: string) =>
      generateText({ model: languageModel(model), prompt: text, maxOutputTokens: 8, temperature: 0 });
    const alone = [];
    for (const text of texts) alone.push((await ask(text)).text);
    expect((await Promise.all(texts.map(ask))).map(({ text }) => text)).toEqual(alone);
  });
});

test('a stream starts its text part once, and ends it before it finishes', async () => {
  const { stream } = await languageModel(model).doStream({
    prompt: [{ role: 'user', content: [{ type: 'text', text: prompt }] }],
    maxOutputTokens: 6,
    temperature: 0,
  });
  const parts: { readonly type: string; readonly id?: string }[] = [];
  for await (const part of stream as unknown as AsyncIterable<{ type: string; id?: string }>) parts.push(part);
  const ofText = parts.filter(({ type }) => type.startsWith('text-'));
  const deltas = ofText.slice(1, -1);
  expect(ofText.map(({ type }) => type)).toEqual(['text-start', ...deltas.map(() => 'text-delta'), 'text-end']);
  expect(deltas.length).toBeGreaterThan(0);
  expect(new Set(ofText.map(({ id }) => id)).size).toBe(1);
  expect(parts.at(-1)?.type).toBe('finish');
});
