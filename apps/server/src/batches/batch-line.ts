/** One line of an input in OpenAI's batch format. */
import { isRecord } from '@winnow/tensor';
import type { JobError } from '@winnow/jobs';
import { batchEndpoints, type BatchEndpoint } from '../schemas/batches.js';
import { prefixGroup } from './prefix-group.js';
import type { Line } from './split-lines.js';

export interface BatchLine {
  readonly customId: string;
  readonly url: BatchEndpoint;
  readonly body: Readonly<Record<string, unknown>>;
  /** Of `groupOf`. */
  readonly group: string;
}

/** What a job of a batch is asked for. */
export interface LinePayload {
  readonly url: BatchEndpoint;
  readonly body: Readonly<Record<string, unknown>>;
  /** The client: a hash of the API key, if there are keys. Prefixes in the KV cache are not shared among owners. */
  readonly owner?: string;
}

/** A line that is not a valid request. Its `custom_id` may still be known. */
export class LineError extends Error {
  override readonly name: string = 'LineError';
  readonly code: string;
  readonly customId: string | undefined;

  constructor(code: string, message: string, customId?: string) {
    super(message);
    this.code = code;
    this.customId = customId;
  }

  toJobError(lineNumber: number): JobError {
    const detail = JSON.stringify({
      line: lineNumber,
      ...(this.customId === undefined ? {} : { customId: this.customId }),
    });
    return { code: this.code, message: `line ${lineNumber}: ${this.message}`, detail };
  }
}

const maxIdLength = 512;
const fieldNames = new Set(['custom_id', 'method', 'url', 'body']);

/**
 * @param endpoint the only endpoint that lines may name; without it they may name any
 * @throws {LineError} for a line that does not follow the format
 */
export function parseBatchLine({ text, problem }: Line, endpoint: BatchEndpoint | undefined): BatchLine {
  if (problem !== undefined) throw new LineError('invalid_line', problem);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new LineError('invalid_json_line', `expected JSON: ${(error as Error).message}`);
  }
  if (!isRecord(value)) throw new LineError('invalid_json_line', 'expected an object');
  const { custom_id: customId, method, url, body } = value;
  if (typeof customId !== 'string' || customId === '' || customId.length > maxIdLength || hasControls(customId)) {
    const expected = `custom_id: expected a string of 1 to ${maxIdLength} characters without control characters`;
    throw new LineError('invalid_custom_id', `${expected}, got ${JSON.stringify(customId)?.slice(0, 80)}`);
  }
  const refuse = (code: string, message: string): LineError => new LineError(code, message, customId);
  const unknown = Object.keys(value).find((name) => !fieldNames.has(name));
  if (unknown !== undefined) throw refuse('unknown_parameter', `unknown field '${unknown}'`);
  if (method !== 'POST') throw refuse('invalid_method', `method: expected 'POST', got ${JSON.stringify(method)}`);
  const expected = endpoint === undefined ? batchEndpoints : [endpoint];
  if (!expected.includes(url as BatchEndpoint)) {
    throw refuse('invalid_url', `url: expected ${expected.join(', ')}, got ${JSON.stringify(url)}`);
  }
  if (!isRecord(body)) throw refuse('invalid_body', 'body: expected an object');
  if (body['stream'] === true) {
    throw refuse('invalid_body', 'body.stream: expected false in a line of a batch, got true');
  }
  return { customId, url: url as BatchEndpoint, body, group: groupOf(url as BatchEndpoint, body) };
}

function hasControls(text: string): boolean {
  return /\p{Cc}/u.test(text);
}

/** Queues of lines that name no model. */
const unnamedQueueOf: Readonly<Record<BatchEndpoint, string>> = {
  '/v1/chat/completions': 'default',
  '/v1/completions': 'default',
  '/v1/embeddings': 'default-embeddings',
  '/v1/rerank': 'default-rerankers',
};

/**
 * The queue of a line: the model that it asks for. Lines without one are in the queue `default`, `default-embeddings`
 * for `/v1/embeddings`, or `default-rerankers` for `/v1/rerank`.
 */
export function batchQueueOf(url: BatchEndpoint, model: unknown): string {
  if (typeof model === 'string' && model !== '') return model;
  return unnamedQueueOf[url];
}

/** A key that sorts lines by the beginnings of their prompts. Texts to embed or to rank do not share pages. */
export function groupOf(url: BatchEndpoint, { model, prompt, messages, tools }: BatchLine['body']): string {
  if (url === '/v1/embeddings' || url === '/v1/rerank') return '';
  const begin = typeof prompt === 'string' ? prompt : JSON.stringify(prompt ?? [tools, messages]);
  return prefixGroup(`${typeof model === 'string' ? model : ''}\n${begin}`);
}
