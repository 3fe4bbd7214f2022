/** Reasoning: its place in prompts and answers, its limit, and what templates see of it later. */
import { memorySink, memorySource } from '@winnow/bytes';
import { demoModelUrl } from '@winnow/demo-model';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createChatTemplate } from '../../src/chat/template.js';
import { hasReasoning, loadModel, prepareChat, type ChatMessage, type ChatPart, type Model } from '../../src/index.js';

let model: Model;
beforeAll(async () => {
  model = await loadModel(demoModelUrl, { context: 512, threads: 1 });
});
afterAll(() => model.dispose());

const turns =
  '{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>';
const thinking =
  `${turns}{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}` +
  `<think>\n{% endif %}{% endif %}`;

const withTemplate = (source: string): Pick<Model, 'chatTemplate' | 'tokenizer' | 'config'> => ({
  chatTemplate: createChatTemplate('test', source, {}),
  tokenizer: model.tokenizer,
  config: model.config,
});

const messages: readonly ChatMessage[] = [{ role: 'user', content: 'Once upon a time' }];

test('a prompt that opens the reasoning, and one that has closed it', async () => {
  const on = (await prepareChat(withTemplate(thinking), { messages })).createReader();
  expect([...on.push('Hm.\n</think>\n\nYes.'), ...on.end()]).toEqual([
    { type: 'reasoning', text: 'Hm.' },
    { type: 'text', text: 'Yes.' },
  ]);
  const off = (await prepareChat(withTemplate(thinking), { messages, enableThinking: false })).createReader();
  expect([...off.push('Yes.'), ...off.end()]).toEqual([{ type: 'text', text: 'Yes.' }]);
});

test('variables of effort, and wishes that a template cannot fulfill', async () => {
  const effort = `${turns}{{ reasoning_effort | default('-') }}{% endif %}`;
  const promptOf = async (source: string, request: object): Promise<string> => {
    const { prompt } = await prepareChat(withTemplate(source), { messages, ...request });
    return model.tokenizer.decode(prompt);
  };
  expect(await promptOf(effort, { reasoningEffort: 'low' })).toMatch(/<assistant>low$/);
  expect(await promptOf(thinking, { reasoningEffort: 'none' })).toContain('</think>');
  expect(await promptOf(thinking, { reasoningEffort: 'high' })).not.toContain('</think>');
  expect(await promptOf(`${turns}{% endif %}`, { reasoningEffort: 'none' })).toMatch(/<assistant>$/);
  for (const wish of [{ reasoningEffort: 'high' }, { enableThinking: true }, { maxReasoningTokens: 9 }]) {
    const refusal = { code: 'argument', argument: Object.keys(wish)[0] };
    await expect(promptOf(`${turns}{% endif %}`, wish)).rejects.toMatchObject(refusal);
  }
  expect([thinking, `${turns}{% endif %}`].map((source) => hasReasoning(withTemplate(source)))).toEqual([true, false]);
});

test('a limit ends the reasoning by force; a schema holds for the answer after it', async () => {
  const request = { messages, maxReasoningTokens: 5, jsonSchema: { const: 'ok' } };
  const turn = await prepareChat(withTemplate(thinking), request);
  const reader = turn.createReader();
  const { text, tokens } = await model.generate(turn.prompt, { ...turn.options, seed: 1, maxTokens: 60 }).result();
  const parts: ChatPart[] = [...reader.push(text), ...reader.end()];
  const [reasoning, answer] = [
    parts.find(({ type }) => type === 'reasoning'),
    parts.findLast(({ type }) => type === 'text'),
  ];
  expect(answer).toEqual({ type: 'text', text: '"ok"' });
  expect(text.split('</think>')).toHaveLength(2);
  const first = model.tokenizer.decode(Int32Array.from(tokens.slice(0, 5)));
  expect(first.trim()).toBe((reasoning as { text: string }).text);
});

test.each([
  ['alone', {}],
  ['with a grammar', { grammar: 'root ::= [a-zA-Z ,.]* "!!" [a-z]+' }],
])('a limit goes on in a generation that is resumed from a saved session: %s', async (_name, constraint) => {
  const limited = { ...constraint, spanLimit: { end: '!!', maxTokens: 6 }, seed: 3, temperature: 1 };
  const { text, tokens } = await model.generate('Once', { ...limited, maxTokens: 12 }).result();
  expect(text.indexOf('!!')).toBeGreaterThan(0);
  const session = model.createSession();
  await session.generate('Once', { ...limited, maxTokens: 4 }).result();
  const saved = memorySink();
  await session.save(saved);
  session.dispose();
  using restored = await model.restoreSession(memorySource(saved.toBytes().slice()));
  const rest = await restored.resume({ maxTokens: 8 }).result();
  expect(rest.tokens).toEqual(tokens.slice(4));
});

test('invalid limits are refused', async () => {
  const generate = (spanLimit: object): Promise<unknown> =>
    model.generate('Once', { spanLimit: spanLimit as { end: string; maxTokens: number } }).result();
  for (const limit of [
    { end: '', maxTokens: 1 },
    { end: 'x', maxTokens: -1 },
    { end: 'x', maxTokens: 1, close: '' },
  ]) {
    await expect(generate(limit)).rejects.toMatchObject({
      name: expect.stringMatching(/Argument|UnknownOption/) as string,
    });
  }
});

describe('reasoning of earlier turns, as templates look for it', () => {
  const history: readonly ChatMessage[] = [
    ...messages,
    { role: 'assistant', content: 'Yes.', reasoning: 'Hm.' },
    { role: 'user', content: 'Why?' },
  ];
  test.each([
    ['reasoning_content', '{% for message in messages %}[{{ message.reasoning_content }}]{% endfor %}', '[][Hm.][]'],
    ['thinking', "{% for message in messages %}[{{ message.get('thinking', '') }}]{% endfor %}", '[][Hm.][]'],
    [
      'parts',
      '{% for message in messages %}{% if message.content is string %}-{% else %}{% for part in message.content %}{% ' +
        "if part.type == 'thinking' %}({{ part.thinking }}){% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}",
      '-(Hm.)Yes.-',
    ],
    [
      'cut out of the content',
      "{% for message in messages %}{% set c = message.content.split('</think>') %}{{ c | length }}{{ c[-1].lstrip('\\n') }};{% endfor %}",
      '1Once upon a time;2Yes.;1Why?;',
    ],
    ['nowhere', '{% for m in messages %}{{ m.content }};{% endfor %}', 'Once upon a time;Yes.;Why?;'],
  ])('%s', (_name, source, text) => {
    expect(createChatTemplate('test', source, {}).render(history)).toBe(text);
  });
});

test('arguments are text where a template prints them as they are', () => {
  const history: readonly ChatMessage[] = [
    ...messages,
    { role: 'assistant', content: '', toolCalls: [{ name: 'f', arguments: { a: 1 } }] },
  ];
  const render = (expression: string): string => {
    const loops = '{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}';
    return createChatTemplate('test', `${loops}{{ ${expression} }}{% endfor %}{% endfor %}`, {}).render(history);
  };
  const values = 'c.function.arguments';
  expect(['tojson', 'string'].map((filter) => render(`${values} | ${filter}`))).toEqual(['{"a": 1}', '{"a":1}']);
  expect(render(`'<' + ${values} + '>'`)).toBe('<{"a":1}>');
  expect(render(`${values} if ${values} is string else ${values} | tojson`)).toBe('{"a": 1}');
});
