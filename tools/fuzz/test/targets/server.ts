/** HTTP requests to the server: the request line, headers, and the tree of the body. Nothing may fail inside the server. */
import { connect } from 'node:net';
import { loadEmbeddingModel, loadModel } from '@winnow/engine';
import { memoryFolder } from '@winnow/hub';
import { createReferenceBackend } from '@winnow/ops';
import { createServer } from '@winnow/server';
import { mutateBytes, mutateJsonText, mutateText, type JsonTree, type Random } from '@winnow/test-utils';
import { bytesOf, textOf, type Target } from '../../src/target.ts';
import { tinyFiles } from '../tiny-model.ts';

const chat: JsonTree = {
  ...{ model: 'tiny', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 2, temperature: 0, stream: true },
  ...{ tools: [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }], tool_choice: 'auto' },
};
const completion: JsonTree = {
  ...{ model: 'tiny', prompt: 'the', max_tokens: 2, logprobs: 1, stop: ['x'], seed: 1, n: 1, logit_bias: { '5': 1 } },
};
const message: JsonTree = {
  ...{ model: 'tiny', max_tokens: 2, stream: true, system: [{ type: 'text', text: 'the' }], stop_sequences: ['x'] },
  ...{ tools: [{ name: 'f', input_schema: { type: 'object' } }], tool_choice: { type: 'any' } },
  messages: [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: [{ type: 'tool_use', id: '1', name: 'f', input: {} }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: '1', content: 'a' }] },
  ],
};
const schema: JsonTree = { type: 'object', properties: { a: { type: 'integer' } } };
const formatted: JsonTree = {
  ...{ messages: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }], max_completion_tokens: 4 },
  response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema } },
};
const members: Readonly<Record<string, JsonTree>> = {
  ...{ model: 'none', max_tokens: 0, stream_options: { include_usage: true }, grammar: 'root ::= ("a"?){20000}' },
  ...{ n: 2, top_p: 0, top_k: -1, min_p: 1, stop: ['', 'a'], role: 'developer', content: null, tool_call_id: 'x' },
  ...{ logprobs: true, top_logprobs: 20, response_format: { type: 'json_object' }, echo: true, user: '', input: [[1]] },
  ...{ encoding_format: 'base64', dimensions: 1, tokens: [-1, 1e9], add_special: true, parallel_tool_calls: false },
};

const request = (line: string, body: JsonTree | undefined): string => {
  const text = body === undefined ? '' : JSON.stringify(body);
  const headers = ['Host: localhost', 'Connection: close', 'Content-Type: application/json'];
  return `${line} HTTP/1.1\r\n${[...headers, `Content-Length: ${bytesOf(text).length}`].join('\r\n')}\r\n\r\n${text}`;
};
const examples: readonly string[] = [
  request('POST /v1/chat/completions', chat),
  request('POST /v1/completions', completion),
  request('POST /v1/chat/completions', formatted),
  request('POST /v1/embeddings', { model: 'vectors', input: ['a', 'the'] }),
  request('POST /v1/responses', { model: 'tiny', input: [{ role: 'user', content: 'Hi' }], max_output_tokens: 2 }),
  request('GET /v1/responses/resp_1', undefined),
  request('POST /apply-template', { messages: [{ role: 'user', content: 'Hi' }] }),
  request('POST /tokenize', { content: 'the', add_special: false }),
  request('POST /detokenize', { tokens: [1, 2] }),
  request('POST /v1/messages', message),
  request('POST /v1/messages/count_tokens', { messages: [{ role: 'user', content: 'Hi' }], system: 'the' }),
  request('POST /api/chat', { messages: [{ role: 'user', content: 'Hi' }], options: { num_predict: 2, seed: 1 } }),
  request('POST /api/generate', { prompt: 'the', raw: true, format: 'json', options: { num_predict: 2 } }),
  request('POST /api/embed', { model: 'vectors', input: ['a'], truncate: false }),
  request('GET /v1/models', undefined),
  request('GET /metrics', undefined),
  request('GET /slots', undefined),
];
const vocabulary: readonly string[] = [
  ...[
    'GET',
    'POST',
    'OPTIONS',
    'HEAD',
    'PUT',
    ' ',
    '/',
    '\r\n',
    '\n',
    ':',
    'HTTP/1.0',
    'HTTP/9.9',
    '%00',
    '..',
    '?x=1',
    '*',
  ],
  ...['Transfer-Encoding: chunked\r\n', 'Content-Length: 5\r\n', 'Content-Length: -1\r\n', 'Expect: 100-continue\r\n'],
  ...[
    'Host: evil.example\r\n',
    'Origin: null\r\n',
    'Authorization: Bearer x\r\n',
    'Upgrade: websocket\r\n',
    'Cookie: \u00e9\r\n',
  ],
  ...['Content-Type: text/plain\r\n', 'Content-Type: application/json; charset=utf-16\r\n', '0\r\n\r\n', '\0', 'X: '],
];
const headPattern = /[\w-]+|\r\n|[^]/gu;

function mutate(random: Random, input: Uint8Array): Uint8Array {
  const text = textOf(input);
  const split = text.indexOf('\r\n\r\n');
  if (split < 0 || random.nextInt(10) === 0) return mutateBytes(random, input);
  const [head, body] = [text.slice(0, split), text.slice(split + 4)];
  if (random.nextInt(3) === 0) return bytesOf(`${mutateText(random, head, headPattern, vocabulary)}\r\n\r\n${body}`);
  try {
    const changed = mutateJsonText(random, body, members);
    return bytesOf(`${head.replace(/(Content-Length: )\d+/, `$1${bytesOf(changed).length}`)}\r\n\r\n${changed}`);
  } catch {
    return mutateBytes(random, input); // the body is not JSON
  }
}

/** Sends bytes and waits until the server closes the connection, or says nothing more. */
function send(port: number, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const finish = (): void => {
      socket.destroy();
      resolve();
    };
    socket.setTimeout(300, finish);
    socket.on('error', finish);
    socket.on('close', finish);
    socket.resume();
    socket.write(bytes);
  });
}

export async function createTarget(): Promise<Target> {
  const folder = memoryFolder(await tinyFiles());
  const backend = createReferenceBackend();
  const model = await loadModel(folder, { backend, context: 128, maxSessions: 4 });
  const vectors = await loadEmbeddingModel(folder, { backend, context: 64, pooling: 'mean' });
  const failures: unknown[] = [];
  const server = await createServer({
    models: [{ id: 'tiny', model, maxSessions: 2 }],
    embeddingModels: [{ id: 'vectors', model: vectors }],
    requestTimeoutMs: 5000,
    onError: (error) => failures.push(error),
  });
  const url = await server.listen({ port: 0 });
  return {
    examples: examples.map(bytesOf),
    mutate,
    async run(input) {
      await send(Number(new URL(url).port), input);
      const failure = failures.splice(0).at(0);
      if (failure !== undefined) throw new Error(`the server failed: ${String((failure as Error).stack ?? failure)}`);
      const { status } = await fetch(`${url}/health`);
      if (status !== 200) throw new Error(`the server is not well: ${status}`);
    },
  };
}
