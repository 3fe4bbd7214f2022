/** Texts from any server with OpenAI's `/v1/completions`: a peer with `winnow serve`, a router, vLLM, llm-d. */
import { EventSourceParserStream } from 'eventsource-parser/stream';
import { ArgumentError, checkOptions, IoError, isRecord, type OptionNames } from '@winnow/tensor';
import type { InferenceFinishReason, InferenceOptions, InferencePrompt } from './contract.js';
import { PulledStream, type TextBackend, type TextPieces } from './text-backend.js';

export interface OpenAiBackendOptions {
  /** Such as `http://127.0.0.1:8080/v1`. */
  readonly baseUrl: string;
  /** Name of the model in requests. */
  readonly model: string;
  /** Sent as `Authorization: Bearer`. Default: none. */
  readonly apiKey?: string;
  /** Maximum time in milliseconds until the first text of an answer. Default: as long as `fetch` waits. */
  readonly firstPieceTimeoutMs?: number;
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
}

const optionNames: OptionNames<OpenAiBackendOptions> = {
  baseUrl: true,
  model: true,
  apiKey: true,
  firstPieceTimeoutMs: true,
  fetch: true,
};

const inferenceOptionNames: OptionNames<InferenceOptions> = {
  maxTokens: true,
  temperature: true,
  topK: true,
  topP: true,
  seed: true,
  stop: true,
  jsonSchema: true,
  signal: true,
};

/** Maximum number of characters of an event, which holds a few tokens: a server that never ends one must not fill the memory. */
const maxEventLength = 1 << 20;

/** Statuses that depend on the server: its keys, models, limits and load. */
const statusesOfServers: readonly number[] = [401, 403, 404, 408, 413, 429];

/** A server could not be reached, or did not answer as it should. */
export class UpstreamError extends IoError {
  override readonly name: string = 'UpstreamError';
  /** HTTP status; undefined when there was no response, or the stream failed. */
  readonly status: number | undefined;
  /** `code` of the server's error, such as `context_length_exceeded`, if it has one. */
  readonly serverCode: string | undefined;
  /** Whether the request is at fault, so that other servers would reject it, too. */
  readonly isRequestAtFault: boolean;

  constructor(
    fields: { source: string; message: string; status?: number; serverCode?: string | undefined },
    options?: { cause?: unknown },
  ) {
    super(fields, options);
    const { status, serverCode } = fields;
    this.status = status;
    this.serverCode = serverCode;
    const isRefused = status !== undefined && status >= 400 && status < 500 && !statusesOfServers.includes(status);
    this.isRequestAtFault = isRefused && serverCode !== 'context_length_exceeded';
  }

  static override isInstance(value: unknown): value is UpstreamError {
    return IoError.isInstance(value) && 'isRequestAtFault' in value;
  }
}

/**
 * Prompts are continued unchanged; token ids must be those of the server's model. Defaults are those of the server: most stop after 16
 * tokens without `maxTokens`. Calls fail with `UpstreamError`.
 * @throws {ArgumentError} for a base URL that is not HTTP, or has a password: that belongs in `apiKey`
 * @throws {UnknownOptionError} for an option that does not exist; calls check theirs, too
 */
export function createOpenAiBackend(options: OpenAiBackendOptions): TextBackend {
  checkOptions(options, optionNames);
  const { baseUrl } = options;
  if (!/^https?:$/.test(URL.parse(baseUrl)?.protocol ?? '') || baseUrl.includes('@')) {
    const actual = baseUrl.includes('@') ? 'one with a password' : baseUrl; // errors name the URL
    throw new ArgumentError({
      argument: 'baseUrl',
      expected: 'an http:// or https:// URL, without a password',
      actual,
    });
  }
  const generateStream: TextBackend['generateStream'] = (prompt, given = {}) => {
    checkOptions(given, inferenceOptionNames);
    return new PulledStream(completion(options, prompt, given));
  };
  const generate: TextBackend['generate'] = async (prompt, given) => generateStream(prompt, given).result();
  return { name: options.model, generate, generateStream };
}

function bodyOf(model: string, prompt: InferencePrompt, options: InferenceOptions): string {
  const { maxTokens, temperature, topK, topP, seed, stop, jsonSchema } = options;
  return JSON.stringify({
    model,
    prompt: typeof prompt === 'string' ? prompt : Array.from(prompt),
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: maxTokens,
    temperature,
    top_k: topK,
    top_p: topP,
    seed,
    stop: stop?.length === 0 ? undefined : stop,
    response_format:
      jsonSchema === undefined
        ? undefined
        : { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: jsonSchema } },
  });
}

async function* completion(
  server: OpenAiBackendOptions,
  prompt: InferencePrompt,
  options: InferenceOptions,
): TextPieces {
  const { firstPieceTimeoutMs: limitMs, baseUrl: source } = server;
  const { signal } = options;
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  const expire = (): void =>
    controller.abort(new UpstreamError({ source, message: `expected text within ${limitMs} ms, got none` }));
  const timer = limitMs === undefined ? undefined : setTimeout(expire, limitMs);
  signal?.addEventListener('abort', abort);
  if (signal?.aborted === true) abort();
  try {
    controller.signal.throwIfAborted();
    const response = await send(server, bodyOf(server.model, prompt, options), controller.signal);
    let [text, numPromptTokens]: [string, number | undefined] = ['', undefined];
    let finishReason: InferenceFinishReason | undefined;
    for await (const chunk of chunksOf(response, source)) {
      numPromptTokens = chunk.numPromptTokens ?? numPromptTokens;
      finishReason = chunk.finishReason ?? finishReason;
      if (chunk.text === '') continue;
      clearTimeout(timer);
      text += chunk.text;
      yield { text: chunk.text };
    }
    if (finishReason === undefined) throw new UpstreamError({ source, message: 'the stream ended within an answer' });
    return { text, finishReason, numPromptTokens };
  } catch (error) {
    if (controller.signal.aborted) throw controller.signal.reason;
    if (UpstreamError.isInstance(error)) throw error;
    throw new UpstreamError({ source, message: `the connection failed: ${reasonOf(error)}` }, { cause: error });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
    controller.abort(); // also ends a connection whose answer was not read
  }
}

/** The reason of a failed `fetch`, which only its cause contains. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined;
  return String(cause ?? error);
}

async function send(server: OpenAiBackendOptions, body: string, signal: AbortSignal): Promise<Response> {
  const { baseUrl: source, apiKey, fetch: ask = fetch } = server;
  const headers = {
    'content-type': 'application/json',
    ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
  };
  const response = await ask(`${source.replace(/\/$/, '')}/completions`, { method: 'POST', headers, body, signal });
  const { status } = response;
  if (!response.ok) {
    const { message, serverCode } = parseFailure(await response.text());
    throw new UpstreamError({ source, status, serverCode, message: `answered ${status}: ${message}` });
  }
  const type = response.headers.get('content-type');
  if (type?.startsWith('text/event-stream') === true) return response;
  throw new UpstreamError({ source, message: `expected a stream of events, got ${type ?? 'no type of content'}` });
}

/** Parses an error in OpenAI's format; other texts, such as the page of a proxy, are shortened. */
function parseFailure(text: string): { message: string; serverCode: string | undefined } {
  const body = parseJson(text);
  const error = isRecord(body) && isRecord(body['error']) ? body['error'] : {};
  const { message, code } = error;
  return {
    message: typeof message === 'string' ? message : text.slice(0, 200),
    serverCode: typeof code === 'string' ? code : undefined,
  };
}

/** Returns undefined for anything but JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface Chunk {
  readonly text: string;
  readonly finishReason: InferenceFinishReason | undefined;
  readonly numPromptTokens: number | undefined;
}

async function* chunksOf({ body }: Response, source: string): AsyncGenerator<Chunk, void, void> {
  if (body === null) throw new UpstreamError({ source, message: 'expected a stream of events, got no body' });
  const parser = new EventSourceParserStream({ maxBufferSize: maxEventLength });
  for await (const { data } of body.pipeThrough(new TextDecoderStream()).pipeThrough(parser)) {
    if (data === '[DONE]') return;
    yield parseChunk(data, source);
  }
}

/** Finish reasons by their names; servers have several for the end token. */
const finishReasons: Readonly<Record<string, InferenceFinishReason>> = {
  stop: 'stop',
  stop_sequence: 'stop',
  eos_token: 'stop',
  length: 'length',
};

function parseChunk(data: string, source: string): Chunk {
  const chunk = parseJson(data);
  if (isRecord(chunk) && isRecord(chunk['error'])) throw new UpstreamError({ source, ...parseFailure(data) });
  const { choices, usage } = isRecord(chunk) ? chunk : {};
  if (!Array.isArray(choices)) throw malformed(source, 'an object with choices', data);
  const choice: unknown = choices[0] ?? {}; // the chunk with the usage has none
  const { text, finish_reason: reason } = isRecord(choice) ? choice : { text: 0 };
  if (typeof (text ?? '') !== 'string') throw malformed(source, 'a choice with text', data);
  const finishReason = typeof reason === 'string' ? finishReasons[reason] : undefined;
  if (finishReason === undefined && (reason ?? null) !== null) {
    throw malformed(source, 'finish_reason "stop" or "length"', data);
  }
  const numPromptTokens = isRecord(usage) ? usage['prompt_tokens'] : undefined;
  return {
    text: typeof text === 'string' ? text : '',
    finishReason,
    numPromptTokens: typeof numPromptTokens === 'number' ? numPromptTokens : undefined,
  };
}

function malformed(source: string, expected: string, data: string): UpstreamError {
  return new UpstreamError({ source, message: `expected ${expected}, got ${data.slice(0, 200)}` });
}
