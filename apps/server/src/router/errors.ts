import { ApiError } from '../http/api-error.js';

/** The last error of a server becomes the cause; clients do not see its message. */
export function noUpstream(what: string, cause?: unknown): ApiError {
  const fields = {
    status: 503,
    message: `No server is available for ${what}`,
    code: 'no_upstream',
    retryAfterSeconds: 1,
  };
  return new ApiError(fields, { cause });
}

export function upstreamLost(cause: unknown): ApiError {
  const message = 'The connection to the server of this answer was lost; the answer is incomplete';
  return new ApiError({ status: 502, message, code: 'upstream_lost' }, { cause });
}

export function lostTwice(cause: unknown): ApiError {
  const message = 'Two servers were lost while they had this request';
  return new ApiError({ status: 502, message, code: 'upstream_lost' }, { cause });
}

export function mayBeDone(cause: unknown): ApiError {
  const message = 'The server was lost while it had this request, which it may have carried out';
  return new ApiError({ status: 502, message, code: 'upstream_lost', mayBeDone: true }, { cause });
}

export function noBatches(): ApiError {
  const message = 'This router has no server for files and batches: start it with one, or ask that server itself';
  return new ApiError({ status: 501, message, code: 'no_batch_upstream' });
}
