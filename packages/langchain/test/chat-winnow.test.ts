/** Behavior that the standard suites do not cover. */
import { AIMessage, ChatMessage, HumanMessage } from '@langchain/core/messages';
import { StringOutputParser } from '@langchain/core/output_parsers';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import type { Model } from '@winnow/engine';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { expect, test } from 'vitest';
import { ChatWinnow, type ChatWinnowFields } from '../src/index.js';
import { short, useDemoModel } from './demo.js';

const model = useDemoModel();
const create = (fields: Partial<ChatWinnowFields> = {}): ChatWinnow =>
  new ChatWinnow({ model: model(), ...short, ...fields });

test('gives the answers of the engine', async () => {
  const expected = await model()
    .generate([{ role: 'user', content: 'Hello' }], short)
    .result();
  const answer = await create().invoke('Hello');
  expect(answer.text).toBe(expected.text);
  const metadata = answer.response_metadata['winnow'] as { finishReason: string };
  expect(metadata).toMatchObject({ finishReason: expected.finishReason, droppedTokens: 0 });
});

test('call options override constructor options', async () => {
  const usage = async (chat: ChatWinnow, options = {}): Promise<unknown> => {
    const { usage_metadata } = await chat.invoke('Hello', options);
    return (usage_metadata as unknown as { output_tokens: number }).output_tokens;
  };
  expect(await usage(create({ maxTokens: 3 }))).toBe(3);
  expect(await usage(create({ maxTokens: 3 }), { maxTokens: 2 })).toBe(2);
  expect(await usage(create().withConfig({ maxTokens: 4 }) as ChatWinnow)).toBe(4);
  const drawn = create({ temperature: 1, seed: 7, maxTokens: 20 });
  expect((await drawn.invoke('Hello')).text).toBe((await drawn.invoke('Hello')).text);
  expect((await drawn.invoke('Hello', { seed: 8 })).text).not.toBe((await drawn.invoke('Hello')).text);
  await expect(create({ temperature: -1 }).invoke('Hello')).rejects.toSatisfy(ArgumentError.isInstance);
});

test('speculative: a field of the model, or of a call', async () => {
  const kinds: unknown[] = [];
  const generate: Model['generate'] = (input, options) => {
    kinds.push(options?.speculative);
    return model().generate(input, options);
  };
  const chat = create({ model: { ...model(), generate }, speculative: 'auto' });
  await chat.invoke('Hello');
  await chat.invoke('Hello', { speculative: 'off' });
  expect(kinds).toEqual(['auto', 'off']);
});

test('works in a chain', async () => {
  const chain = ChatPromptTemplate.fromMessages([
    ['system', 'Answer in {language}.'],
    ['human', '{question}'],
  ])
    .pipe(create())
    .pipe(new StringOutputParser());
  const expected = await model()
    .generate(
      [
        { role: 'system', content: 'Answer in English.' },
        { role: 'user', content: 'Why?' },
      ],
      short,
    )
    .result();
  expect(await chain.invoke({ language: 'English', question: 'Why?' })).toBe(expected.text);
  let streamed = '';
  for await (const piece of await chain.stream({ language: 'English', question: 'Why?' })) streamed += piece;
  expect(streamed).toBe(expected.text);
});

test('calls beyond the number of sessions are queued', async () => {
  const inputs = Array.from({ length: 10 }, (_, i) => `Question ${i}`);
  const expected = await create().batch(inputs, { maxConcurrency: 1 });
  const actual = await create().batch(inputs);
  expect(actual.map(({ text }) => text)).toEqual(expected.map(({ text }) => text));
  const [first, ...others] = await Promise.allSettled(
    inputs.map((input) => create({ maxConcurrency: Infinity }).invoke(input)),
  );
  expect(first?.status).toBe('fulfilled');
  expect(others.some((outcome) => outcome.status === 'rejected' && CapacityError.isInstance(outcome.reason))).toBe(
    true,
  );
  expect(model().metrics().numSessions).toBe(0);
  for (const maxConcurrency of [0, 1.5, Number.NaN]) expect(() => create({ maxConcurrency })).toThrow(ArgumentError);
});

test('an aborted call leaves the queue', async () => {
  const chat = create({ maxConcurrency: 1 });
  const controller = new AbortController();
  const first = chat.invoke('Hello');
  const second = chat.invoke('Hello', { signal: controller.signal });
  const third = chat.invoke('Hello');
  controller.abort(new Error('enough'));
  await expect(second).rejects.toThrow();
  expect((await third).text).toBe((await first).text);
});

test('a stream that is left early frees its session', async () => {
  const chat = create({ maxConcurrency: 1, maxTokens: 400 });
  for await (const chunk of await chat.stream('Hello')) if (chunk.text !== '') break;
  expect((await chat.invoke('Hello', { maxTokens: 2 })).text).not.toBe('');
  expect(model().metrics().numSessions).toBe(0);
});

test('callbacks receive tokens, ends and errors', async () => {
  const heard: string[] = [];
  const callbacks = [
    {
      handleChatModelStart: () => void heard.push('start'),
      handleLLMNewToken: (token: string) => void heard.push(token),
      handleLLMEnd: ({ llmOutput = {} }: { llmOutput?: Record<string, unknown> }) => {
        heard.push(`end ${(llmOutput['tokenUsage'] as { completionTokens: number }).completionTokens}`);
      },
      handleLLMError: (error: Error) => void heard.push(error.name),
    },
  ];
  const { text } = await create({ streaming: true }).invoke('Hello', { callbacks });
  expect(heard).toEqual(['start', ...heard.slice(1, -1), 'end 8']);
  expect(heard.slice(1, -1).join('')).toBe(text);
  expect(heard.length).toBeGreaterThan(3);
  heard.length = 0;
  await create().invoke('Hello', { callbacks });
  expect(heard).toEqual(['start', 'end 8']);
  heard.length = 0;
  await expect(create().invoke('word '.repeat(1200), { callbacks })).rejects.toSatisfy(CapacityError.isInstance);
  expect(heard).toEqual(['start', 'CapacityError']);
});

test('roles and contents of messages', async () => {
  const prompts: unknown[] = [];
  const spy = {
    ...model(),
    generate: (...[prompt]: Parameters<ReturnType<typeof model>['generate']>) => {
      prompts.push(prompt);
      return model().generate('a', { maxTokens: 1 });
    },
  };
  const chat = new ChatWinnow({ model: spy });
  await chat.invoke([
    new ChatMessage('b', 'critic'),
    new AIMessage({
      content: [
        { type: 'reasoning', reasoning: 'hm' },
        { type: 'text', text: 'c' },
      ],
    }),
    new HumanMessage({
      content: [
        { type: 'text', text: 'd' },
        { type: 'text', text: 'e' },
      ],
    }),
  ]);
  const expected = model().encodePrompt([
    { role: 'critic', content: 'b' },
    { role: 'assistant', content: 'c' },
    { role: 'user', content: 'de' },
  ]);
  expect(prompts).toEqual([expected]);
});

test('counts tokens with its own tokenizer and no network', async () => {
  const content = 'The storm broke.';
  const expected = model().tokenizer.encode(content, { addSpecialTokens: false }).length;
  expect(await create().getNumTokens(content)).toBe(expected);
  expect(await create().getNumTokens([{ type: 'text', text: content }, { type: 'image_url' }])).toBe(expected);
});

test('cache keys contain the settings, not the model', () => {
  const key = (fields: Partial<ChatWinnowFields>, options = {}): string =>
    create(fields)._getSerializedCacheKeyParametersForCall(options);
  expect(key({})).toBe(key({}));
  expect(new Set([key({}), key({ temperature: 1 }), key({ stop: ['a'] }), key({}, { maxTokens: 3 })]).size).toBe(4);
  expect(key({}).length).toBeLessThan(500);
  expect(JSON.stringify(create())).toContain('not_implemented');
});
