import { PromptTemplate } from '@langchain/core/prompts';
import type { EmbeddingModel } from '@winnow/engine';
import { CapacityError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { ChatWinnow, Winnow, WinnowEmbeddings, type WinnowLLMFields } from '../src/index.js';
import { short, useDemoModel } from './demo.js';

const text = 'The old man looked at the sea and';

describe('fields', () => {
  const model = useDemoModel();
  const create = (fields: Partial<WinnowLLMFields> = {}): Winnow => new Winnow({ model: model(), ...short, ...fields });

  test('rejects unknown fields, and accepts those of LangChain', () => {
    expect(() => create({ maxToken: 3 } as object)).toThrow('unknown option "maxToken"; did you mean "maxTokens"?');
    expect(create({ tags: ['a'], verbose: false, maxRetries: 0, cache: false })).toBeInstanceOf(Winnow);
    const chat = { model: model(), disableStreaming: true };
    expect(new ChatWinnow(chat)).toBeInstanceOf(ChatWinnow);
    expect(() => new ChatWinnow({ ...chat, topk: 3 } as typeof chat)).toThrow('did you mean "topK"?');
    const embeddings = { model: {} as EmbeddingModel, queryprompt: 'q: ' };
    expect(() => new WinnowEmbeddings(embeddings)).toThrow('did you mean "queryPrompt"?');
  });

  test('a timeout aborts a call', async () => {
    const slow = create({ timeout: 1, maxTokens: 900, stop: [] });
    await expect(slow.invoke(text)).rejects.toThrow('timeout');
    const chat = new ChatWinnow({ model: model(), timeout: 1, maxTokens: 900 });
    await expect(chat.invoke(text)).rejects.toThrow('timeout');
  });
});

describe('Winnow', () => {
  const model = useDemoModel();
  const create = (fields: Partial<WinnowLLMFields> = {}): Winnow => new Winnow({ model: model(), ...short, ...fields });

  test('continues text like the engine', async () => {
    const expected = await model().generate(text, short).result();
    expect(await create().invoke(text)).toBe(expected.text);
    const pieces: string[] = [];
    for await (const piece of await create().stream(text)) pieces.push(piece);
    expect(pieces.join('')).toBe(expected.text);
    expect(pieces.length).toBeGreaterThan(2);
  });

  test('reports usage and finish reason', async () => {
    const { generations, llmOutput } = await create().generate([text, 'Once'], { maxTokens: 3 });
    const numPrompt = model().encodePrompt(text).length + model().encodePrompt('Once').length;
    expect(llmOutput).toEqual({
      tokenUsage: { promptTokens: numPrompt, completionTokens: 6, totalTokens: numPrompt + 6 },
    });
    expect(generations).toHaveLength(2);
    for (const [generation] of generations) {
      expect(generation?.generationInfo).toMatchObject({ model: model().name, finish_reason: 'length' });
    }
  });

  test('stop sequences, aborts and queueing', async () => {
    const whole = await create().invoke(text);
    const stop = whole.slice(3, 6);
    expect(await create().invoke(text, { stop: [stop] })).toBe(whole.slice(0, whole.indexOf(stop)));
    await expect(create().invoke(text, { signal: AbortSignal.abort() })).rejects.toThrow();
    expect(new Set(await create().batch(Array.from({ length: 10 }, () => text)))).toEqual(new Set([whole]));
    await expect(create().invoke('word '.repeat(1200))).rejects.toSatisfy(CapacityError.isInstance);
    for await (const piece of await create({ maxTokens: 400 }).stream(text)) if (piece !== '') break;
    expect(model().metrics().numSessions).toBe(0);
  });

  test('callbacks receive tokens', async () => {
    const heard: string[] = [];
    const callbacks = [{ handleLLMNewToken: (token: string) => void heard.push(token) }];
    const whole = await create({ streaming: true }).invoke(text, { callbacks });
    expect(heard.join('')).toBe(whole);
    heard.length = 0;
    for await (const piece of await create().stream(text, { callbacks })) void piece;
    expect(heard.join('')).toBe(whole);
  });

  test('works in a chain, with a cache', async () => {
    const chain = PromptTemplate.fromTemplate('The old man looked at {what} and').pipe(create({ cache: true }));
    const first = await chain.invoke({ what: 'the sea' });
    const numSteps = model().metrics().steps.numSteps;
    expect(await chain.invoke({ what: 'the sea' })).toBe(first);
    expect(model().metrics().steps.numSteps).toBe(numSteps);
  });

  test('counts tokens with its own tokenizer', async () => {
    expect(await create().getNumTokens(text)).toBe(model().tokenizer.encode(text, { addSpecialTokens: false }).length);
  });
});
