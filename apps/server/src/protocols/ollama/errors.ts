/** Errors of Ollama's API, and its lines. */
import type { ApiError } from '../../http/api-error.js';
import type { StreamFormat } from '../../http/event-stream.js';
import type { Protocol } from '../../http/protocol.js';

const errorBody = ({ message }: ApiError): object => ({ error: message });

export const ollamaProtocol: Protocol = { errorBody, neutral: {} };

export const ollamaStream: StreamFormat = {
  contentType: 'application/x-ndjson',
  keepAlive: ' ', // white space before the next line
  lastEvent: (error) => lineOf(errorBody(error)),
};

export function lineOf(value: object): string {
  return `${JSON.stringify(value)}\n`;
}
