/** Answers of each family of models, cut into pieces at every place. */
import { sampled } from '@winnow/test-utils';
import { describe, expect, test } from 'vitest';
import { createAnswerReader } from '../../src/chat/answers/answer-reader.js';
import { reasoningFormatOf } from '../../src/chat/formats/reasoning-formats.js';
import { toolFormat, toolFormats } from '../../src/chat/formats/tool-formats.js';
import type { ChatPart, ChatTool } from '../../src/index.js';
import { answerCorpus, type CorpusAnswer } from './answer-corpus.js';

const tools: readonly ChatTool[] = [
  {
    name: 'weather',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
  },
  { name: 'stop' },
  {
    name: 'note',
    parameters: {
      type: 'object',
      properties: { text: { type: 'string' }, tags: { type: 'array' }, done: { $ref: '#/$defs/done' } },
      $defs: { done: { anyOf: [{ type: 'boolean' }, { type: 'null' }] } },
    },
  },
];

function read(
  { format, reasoningMark = '', startsInReasoning, answer }: CorpusAnswer,
  cuts: readonly number[],
): unknown {
  let numIds = 0;
  const reader = createAnswerReader(
    {
      tools: toolFormat(format),
      reasoning: reasoningFormatOf(reasoningMark),
      startsInReasoning: startsInReasoning === true,
    },
    tools,
    () => `id${numIds++}`,
  );
  const pieces = [...cuts, answer.length].map((end, at) => answer.slice(cuts[at - 1] ?? 0, end));
  return summarized([...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()]);
}

/** Parts of one kind in a row as one, and calls with what their pieces add up to. */
function summarized(parts: readonly ChatPart[]): unknown {
  const texts = { text: '', reasoning: '' };
  const calls: unknown[] = [];
  let pieces = '';
  for (const part of parts) {
    if (part.type === 'text' || part.type === 'reasoning') texts[part.type] += part.text;
    else if (part.type === 'tool-call-delta') pieces += part.arguments;
    else if (part.type === 'tool-call') {
      calls.push(part);
      expect(pieces).toBe(part.arguments);
      pieces = '';
    }
  }
  return { ...texts, calls };
}

test.each(answerCorpus.map((entry) => [entry.format, entry] as const))('%s, answer %#', (_name, entry) => {
  const { answer, text = '', reasoning = '', calls = [] } = entry;
  let numIds = 0;
  const whole = read(entry, []);
  expect(whole).toEqual({
    ...{ text, reasoning },
    calls: calls.map((call) => ({
      ...{ type: 'tool-call', id: call.id ?? `id${numIds++}`, isComplete: true },
      ...call,
    })),
  });
  const places = Array.from({ length: answer.length - 1 }, (_, at) => at + 1);
  for (const cut of sampled(places, 4)) expect(read(entry, [cut])).toEqual(whole);
  expect(read(entry, places)).toEqual(whole);
});

test('every family has answers', () => {
  const missing = toolFormats.filter(({ name }) => answerCorpus.every(({ format }) => format !== name));
  expect(missing.map(({ name }) => name)).toEqual(['deepseek-v4']); // as deepseek-v3.2, with another section
});

test('no mark begins with another one, so that a mark is known when it is complete', () => {
  for (const { name, opens, ignored = [] } of toolFormats) {
    const marks = [...opens, ...ignored];
    const pairs = marks.flatMap((mark) => marks.map((other) => [mark, other] as const));
    expect(
      pairs.filter(([mark, other]) => mark !== other && mark.startsWith(other)),
      name,
    ).toEqual([]);
  }
});

describe('streaming', () => {
  test('arguments arrive while they are written', () => {
    const format = { tools: toolFormat('hermes'), reasoning: undefined, startsInReasoning: false };
    const reader = createAnswerReader(format, tools, () => 'id');
    expect(reader.push('<tool_call>\n{"name": "weather", "arguments": {"ci')).toEqual([
      { type: 'tool-call-start', id: 'id', name: 'weather' },
      { type: 'tool-call-delta', id: 'id', arguments: '{"ci' },
    ]);
    expect(reader.push('ty": "U')).toEqual([{ type: 'tool-call-delta', id: 'id', arguments: 'ty": "U' }]);
  });

  test('halves of a surrogate pair stay together', () => {
    const entry = {
      format: 'qwen3-coder',
      answer: '<tool_call>\n<function=weather>\n<parameter=city>\n🌊\n</parameter>\n</function>\n</tool_call>',
    } as const;
    const at = entry.answer.indexOf('🌊');
    for (const cut of [at, at + 1, at + 2]) {
      expect(read(entry, [cut])).toMatchObject({ calls: [{ arguments: '{"city": "🌊"}' }] });
    }
  });

  test('without tools, what looks like a call is text', () => {
    const format = { tools: toolFormat('hermes'), reasoning: undefined, startsInReasoning: false };
    const reader = createAnswerReader(format, [], () => 'id');
    expect(reader.push('<tool_call>')).toEqual([{ type: 'text', text: '<tool_call>' }]);
  });
});
