/** How each API writes streams, and the errors that end them. */
import type { IncomingMessage } from 'node:http';
import type { ApiError } from '../http/api-error.js';
import { namedEventOf, openAiStream, type StreamFormat } from '../http/event-stream.js';
import { messageStream } from '../protocols/anthropic/errors.js';
import { ollamaStream } from '../protocols/ollama/errors.js';
import { errorEvent } from '../protocols/responses/errors.js';
import type { EventSyntax } from './whole-events.js';

export type ApiName = 'openai' | 'responses' | 'anthropic' | 'ollama';

/** The end of one stream; it sees what was passed on. */
export interface StreamEnd {
  readonly format: StreamFormat;
  note(bytes: Buffer): void;
}

/** Undefined for an answer that is no stream. */
export function syntaxOf({ headers, statusCode }: IncomingMessage): EventSyntax | undefined {
  if (statusCode !== 200) return undefined;
  const type = headers['content-type'] ?? '';
  if (type.startsWith('text/event-stream')) return 'events';
  return type.startsWith('application/x-ndjson') ? 'lines' : undefined;
}

const formats = { openai: openAiStream, anthropic: messageStream, ollama: ollamaStream } as const;

export function streamEndOf(api: ApiName): StreamEnd {
  if (api !== 'responses') return { format: formats[api], note: () => {} };
  let last: Buffer | undefined;
  return {
    note: (bytes) => {
      if (bytes.includes('"sequence_number":')) last = bytes;
    },
    format: { ...openAiStream, lastEvent: (error) => numberedError(error, last) },
  };
}

/** Events of this API are numbered. In texts, the quotes of the name would be escaped. */
function numberedError(error: ApiError, last: Buffer | undefined): string {
  const numbers = [...(last?.toString('utf8') ?? '').matchAll(/"sequence_number":\s*(\d+)/g)];
  const event = { ...errorEvent(error), sequence_number: Number(numbers.at(-1)?.[1] ?? -1) + 1 };
  return namedEventOf(event.type, event);
}
