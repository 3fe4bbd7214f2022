/** A request of a client, as far as the router reads it. */
import { isRecord } from '@winnow/tensor';
import type { FastifyRequest } from 'fastify';
import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import type { RouteEntry } from './routes.js';
import type { RequestHeaders } from './upstream.js';

export interface RoutedCall {
  readonly method: string;
  readonly path: string;
  readonly headers: RequestHeaders;
  body: Uint8Array | Readable | undefined;
  /** The model that it names. */
  readonly model: string | undefined;
  /** Begins like the prompt that the model gets, as far as the request tells. */
  readonly prompt: string;
  readonly previousResponseId: string | undefined;
  /** Whether the same server may get it twice, because it has no effect there. */
  readonly isRepeatable: boolean;
}

/**
 * Headers that are not passed on: those of one connection (RFC 9110, 7.6.1), those that the router sets itself, and
 * those of compression, which would hide the events.
 */
const ownHeaders = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'host',
  'content-length',
  'expect',
  'accept-encoding',
]);

export function forwardedHeaders(headers: IncomingHttpHeaders): Record<string, string | string[]> {
  const named = String(headers.connection ?? '')
    .split(',')
    .map((name) => name.trim().toLowerCase());
  const kept: Record<string, string | string[]> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !ownHeaders.has(name) && !named.includes(name)) kept[name] = value;
  }
  return kept;
}

export function callOf({ method, url, headers, body }: FastifyRequest, { kind, api }: RouteEntry): RoutedCall {
  const fields = body instanceof Uint8Array ? fieldsOf(body) : {};
  const { model, previous_response_id: previousId } = fields;
  const { 'content-length': length } = headers;
  const forwarded = forwardedHeaders(headers);
  return {
    method,
    path: url,
    headers: body === undefined || length === undefined ? forwarded : { ...forwarded, 'content-length': length },
    body: body instanceof Uint8Array || body instanceof Readable ? body : undefined,
    model: typeof model === 'string' && model !== '' ? model : undefined,
    prompt: kind === 'prompt' ? promptOf(fields) : '',
    previousResponseId: typeof previousId === 'string' ? previousId : undefined,
    isRepeatable: method !== 'POST' || (kind !== 'batches' && (api !== 'responses' || fields['store'] === false)),
  };
}

/** The servers validate bodies; here, a body that is not JSON has no fields. */
export function fieldsOf(bytes: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'));
    return isRecord(value) ? value : {};
  } catch {
    return {};
  }
}

/** Of all APIs: templates put tools and instructions first. */
function promptOf({
  model,
  tools,
  system,
  instructions,
  messages,
  input,
  prompt,
}: Readonly<Record<string, unknown>>): string {
  const turns = messages ?? input ?? prompt;
  if (turns === undefined) return '';
  try {
    const text = typeof turns === 'string' ? turns : JSON.stringify(turns);
    const head = [model, tools, system, instructions].filter((part) => part !== undefined);
    return `${JSON.stringify(head)}\n${text}`;
  } catch {
    return ''; // nested too deeply: the server refuses it
  }
}
