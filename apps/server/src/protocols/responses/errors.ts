import type { ApiError } from '../../http/api-error.js';

/** The last event of a stream that fails, without its number. */
export function errorEvent({ code, message, param }: ApiError) {
  return { type: 'error' as const, code: code ?? null, message, param: param ?? null };
}
