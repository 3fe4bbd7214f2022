/** Errors of the Messages API: `{ type: 'error', error: { type, message } }`. */
import type { ApiError } from '../../http/api-error.js';
import { namedEventOf, type StreamFormat } from '../../http/event-stream.js';
import type { Protocol } from '../../http/protocol.js';
import type { MessageError } from './schemas.js';

const types: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

export function messageError({ status, message }: ApiError): MessageError {
  const type = types[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
  return { type: 'error', error: { type, message } };
}

export const anthropicProtocol: Protocol = { errorBody: messageError, neutral: {} };

export const messageStream: StreamFormat = {
  contentType: 'text/event-stream; charset=utf-8',
  keepAlive: namedEventOf('ping', { type: 'ping' }),
  lastEvent: (error) => namedEventOf('error', messageError(error)),
};
