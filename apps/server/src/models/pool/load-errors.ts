/** The API error of a model that could not be loaded. */
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { ApiError } from '../../http/api-error.js';
import type { ModelKind } from '../../catalog.js';

/** Paths and other details stay in the server's log. */
export function loadApiError(id: string, kind: ModelKind, error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (ArgumentError.isInstance(error) && ['model', 'pooling'].includes(error.argument)) {
    return unsuited(id, kind, error);
  }
  if (CapacityError.isInstance(error) && error.resource === 'memory plan') {
    return insufficientMemory(id, error.needed, error.available, error);
  }
  const message = `The model '${id}' could not be loaded; the log of the server says why`;
  return new ApiError({ status: 500, message, param: 'model', code: 'model_load_failed' }, { cause: error });
}

const work: Readonly<Record<ModelKind, string>> = {
  generative: 'generate text',
  embedding: 'embed texts',
  reranking: 'rank documents',
};

/** A model that does another kind of work. */
export function unsuited(id: string, kind: ModelKind, cause?: unknown): ApiError {
  const message = `The model '${id}' does not ${work[kind]} on this server`;
  return new ApiError({ status: 400, message, param: 'model', code: 'unsupported_model' }, { cause });
}

/** A retry would fail, too. */
export function insufficientMemory(id: string, needed: number, available: number, cause?: unknown): ApiError {
  const message = `The model '${id}' needs ${needed} bytes of memory; this server may use ${available} for its models`;
  return new ApiError({ status: 503, message, param: 'model', code: 'insufficient_memory' }, { cause });
}

export function noRoomInTime(id: string, waitMs: number): ApiError {
  const message = `No memory became free for the model '${id}' within ${waitMs / 1000} seconds`;
  return new ApiError({ status: 503, message, param: 'model', code: 'queue_timeout', retryAfterSeconds: 1 });
}
