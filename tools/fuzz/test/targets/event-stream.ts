/**
 * Server-sent events: what a model writes, piece by piece, as a stream and as one answer. A reader written after the
 * standard (WHATWG HTML, section 9.2.6) must find whole chunks in the stream, which say the same as the answer.
 */
import { loadModel, type GenerateOptions, type Generation, type GenerationResult, type Model } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { createReferenceBackend } from '@winnow/ops';
import { createServer } from '@winnow/server';
import { isRecord } from '@winnow/tensor';
import { mutateText } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyFiles } from '../tiny-model.ts';

const call = '<tool_call>\n{"name": "f", "arguments": {"x": "|a\\n"}}\n</tool_call>';
/** Pieces of a text, separated by `|`. */
const examples: readonly string[] = [
  'Hel|lo,\n| world|.',
  `|Let me see.\n${call}\n${call}|\nDone.|`,
  'data: {"a": 1}\n\n|event: x\r\nid: 1\r|retry: 0\n: comment|\u2028\u2029|[DONE]',
  '<tool|_call>{"name": "f"|, "arguments": "{}"}</tool_call> <tool_call>{"name"',
];
const vocabulary: readonly string[] = [
  ...['data: ', 'data', ':', '\n', '\r\n', '\r', '\n\n', 'event: error', 'id: 0', 'retry: 1', '[DONE]', '\0', '\ufeff'],
  ...['<tool_call>', '</tool_call>', '{"name": "f", "arguments": {}}', '"', '\\', '\u2028', '\u{1F30A}', '\u0085', ' '],
  ...['|', '||', '{', '}', '[', '<', '</', '\\ud800', '\ufffd'],
];
const pattern = /<\/?\w+>|\w+|\s|[^]/gu;

const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];
const chat = { model: 'tiny', messages: [{ role: 'user', content: 'Hi' }], tools };
const completion = { model: 'tiny', prompt: 'Hi' };
const streamed = { stream: true, stream_options: { include_usage: true } };

/** A model that writes these pieces. */
function writerOf(model: Model, pieces: () => readonly string[]): Model {
  const generate = (_prompt: unknown, { signal }: GenerateOptions = {}): Generation => {
    const texts = pieces();
    let result: GenerationResult | undefined;
    const tokens = (async function* () {
      for (const text of texts) {
        signal?.throwIfAborted();
        yield { tokenId: 1, text, logprob: -1, topLogprobs: [] };
      }
      const counts = { promptTokens: 1, cachedTokens: 0, droppedTokens: 0, evictedTokens: 0 };
      const timings = { promptMs: 1, generateMs: 1, promptTokensPerSecond: 1, tokensPerSecond: 1 };
      const ended = { finishReason: 'eos' as const, satisfiesConstraint: true, timings };
      result = { text: texts.join(''), tokens: texts.map(() => 1), ...counts, ...ended };
    })();
    return {
      [Symbol.asyncIterator]: () => tokens,
      async result() {
        for await (const _token of tokens); // to the end
        return result as GenerationResult;
      },
    };
  };
  return { ...model, generate: generate as Model['generate'] };
}

/** The data of each event. @throws {Error} for bytes that are not UTF-8, other fields, and an event without an end */
function eventsOf(bytes: Uint8Array): string[] {
  const lines = new TextDecoder('utf-8', { fatal: true }).decode(bytes).split(/\r\n|\n|\r/);
  const events: string[] = [];
  let data: string[] = [];
  for (const line of lines) {
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (line === '' && data.length > 0) events.push(data.join('\n'));
    if (line === '') data = [];
    else if (field === 'data') data.push(value);
    else if (field !== '') throw new Error(`an event has a field ${JSON.stringify(field)}`);
  }
  if (data.length > 0) throw new Error('the last event has no end');
  return events;
}

interface Said {
  readonly text: string;
  readonly calls: readonly string[];
}

/** What the chunks of a stream say. @throws {Error} for a stream that does not end as it should */
function saidInStream(events: readonly string[]): Said {
  if (events.at(-1) !== '[DONE]') throw new Error(`the stream ends with ${String(events.at(-1))}`);
  let text = '';
  const calls: Call[] = [];
  for (const event of events.slice(0, -1)) {
    const chunk: unknown = JSON.parse(event);
    if (!isRecord(chunk) || !Array.isArray(chunk['choices'])) throw new Error(`not a chunk: ${event}`);
    for (const choice of chunk['choices'] as Record<string, unknown>[]) {
      const delta = (choice['delta'] ?? { content: choice['text'] }) as Record<string, unknown>;
      if (typeof delta['content'] === 'string') text += delta['content'];
      for (const { index, ...part } of (delta['tool_calls'] ?? []) as (Call & { readonly index: number })[]) {
        const { name, arguments: values } = part.function;
        if (name !== undefined) calls[index] = { function: { name, arguments: '' } };
        (calls[index] as Call).function.arguments += values ?? '';
      }
    }
  }
  return { text, calls: callsOf(calls) };
}

function saidInAnswer(answer: Record<string, unknown>): Said {
  const [choice] = answer['choices'] as [Record<string, unknown>];
  const { content, tool_calls: calls } = (choice['message'] ?? { content: choice['text'] }) as Record<string, unknown>;
  return { text: typeof content === 'string' ? content : '', calls: callsOf(calls) };
}

interface Call {
  readonly function: { readonly name?: string; arguments: string };
}

/** The arguments of a call that the answer cut are incomplete, so they are compared as texts. */
function callsOf(calls: unknown): string[] {
  if (!Array.isArray(calls)) return [];
  return (calls as Call[]).map(({ function: { name, arguments: values } }) => `${name}(${values})`);
}

export async function createTarget(): Promise<Target> {
  const backend = createReferenceBackend();
  const loaded = await loadModel(memoryFolder(await tinyFiles()), { backend, context: 512, maxSessions: 2 });
  let pieces: readonly string[] = [];
  const failures: unknown[] = [];
  const model = writerOf(loaded, () => pieces);
  const server = await createServer({ models: [{ id: 'tiny', model }], onError: (error) => failures.push(error) });
  const url = await server.listen({ port: 0 });
  const post = async (path: string, body: object): Promise<Response> => {
    const response = await fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  return {
    examples: examples.map(bytesOf),
    mutate: (random, input) => bytesOf(mutateText(random, textOf(input), pattern, vocabulary).slice(0, 4000)),
    async run(input) {
      pieces = textOf(input).split('|');
      const requests = [
        ['/v1/chat/completions', chat],
        ['/v1/completions', completion],
      ] as const;
      for (const [path, body] of requests) {
        const stream = new Uint8Array(await (await post(path, { ...body, ...streamed })).arrayBuffer());
        const inStream = saidInStream(eventsOf(stream));
        const inAnswer = saidInAnswer((await (await post(path, body)).json()) as Record<string, unknown>);
        const [left, right] = [inStream, inAnswer].map((said) => JSON.stringify(said));
        if (left !== right) throw new Error(`${path}: the stream says ${left}, the answer ${right}`);
        if (path === '/v1/completions' && inAnswer.text !== pieces.join('')) throw new Error(`the text is ${right}`);
      }
      const failure = failures.splice(0).at(0);
      if (failure !== undefined) throw new Error(`the server failed: ${String((failure as Error).stack ?? failure)}`);
    },
  };
}
