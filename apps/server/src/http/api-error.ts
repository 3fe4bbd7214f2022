/** Errors in OpenAI's format: `{ error: { message, type, param, code } }` with the matching status. */
import { IoError, NonFiniteError } from '@winnow/tensor';

/** Error types, for programs. */
export type ApiErrorType = 'invalid_request_error' | 'authentication_error' | 'rate_limit_error' | 'server_error';

export interface ApiErrorFields {
  readonly status: number;
  readonly message: string;
  readonly type?: ApiErrorType;
  /** Name of the invalid parameter, such as `messages[0].content`. */
  readonly param?: string | undefined;
  readonly code?: string | undefined;
  /** When to retry, in whole seconds: becomes `Retry-After`. */
  readonly retryAfterSeconds?: number;
  /**
   * The request may have taken effect, so a retry could repeat the effect: becomes `X-Should-Retry: false`, which the
   * clients of OpenAI and Anthropic obey.
   */
  readonly mayBeDone?: boolean;
}

export interface ApiErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: ApiErrorType;
    readonly param: string | null;
    readonly code: string | null;
  };
}

/** An error response. */
export class ApiError extends Error {
  override readonly name: string = 'ApiError';
  readonly status: number;
  readonly type: ApiErrorType;
  readonly param: string | undefined;
  readonly code: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly mayBeDone: boolean;

  constructor(fields: ApiErrorFields, options?: { cause?: unknown }) {
    super(fields.message, options);
    this.status = fields.status;
    this.type = fields.type ?? (fields.status >= 500 ? 'server_error' : 'invalid_request_error');
    this.param = fields.param;
    this.code = fields.code;
    this.retryAfterSeconds = fields.retryAfterSeconds;
    this.mayBeDone = fields.mayBeDone ?? false;
  }

  toJSON(): ApiErrorBody {
    const { message, type, param = null, code = null } = this;
    return { error: { message, type, param, code } };
  }
}

/** The client disconnected, so the response is discarded. nginx logs the same status. */
export class ClientClosedError extends ApiError {
  constructor() {
    super({ status: 499, message: 'the client closed the connection', code: 'client_closed' });
  }
}

export function badRequest(param: string, message: string, code?: string): ApiError {
  return new ApiError({ status: 400, message: `${param}: ${message}`, param, code });
}

/** @param expected what the parameter could be, if that helps */
export function missingParameter(param: string, expected?: string): ApiError {
  const message = `Missing required parameter: '${param}'${expected === undefined ? '' : `; expected ${expected}`}`;
  return new ApiError({ status: 400, message, param, code: 'missing_required_parameter' });
}

/** A parameter of the API that this server does not support. */
export function unsupported(param: string, message: string): ApiError {
  return new ApiError({
    status: 400,
    message: `Unsupported parameter: '${param}': ${message}`,
    param,
    code: 'unsupported_parameter',
  });
}

export function modelNotFound(model: string): ApiError {
  return new ApiError({
    status: 404,
    message: `The model '${model}' does not exist; GET /v1/models lists the available models`,
    param: 'model',
    code: 'model_not_found',
  });
}

export function contextExceeded(param: string, needed: number, available: number): ApiError {
  const message =
    `This model's context is ${available} tokens, including at least one for the answer; ` +
    `your request has at least ${needed} tokens. Please shorten it.`;
  return new ApiError({ status: 400, message, param, code: 'context_length_exceeded' });
}

export function shuttingDown(retryAfterSeconds: number): ApiError {
  const message = 'The server is shutting down';
  return new ApiError({ status: 503, message, code: 'shutting_down', retryAfterSeconds });
}

/** The message of an internal error may reveal details to the client, so it is replaced. */
export function internalError(error: unknown): ApiError {
  if (IoError.isInstance(error)) {
    const message = 'Storage that the server needs does not answer, or is full; the log of the server names it';
    const fields = { status: 503, message, code: 'storage_unavailable', retryAfterSeconds: 1 };
    return new ApiError(fields, { cause: error });
  }
  if (!NonFiniteError.isInstance(error)) {
    return new ApiError({ status: 500, message: 'Internal error', code: 'internal_error' }, { cause: error });
  }
  const message = `The model is broken: its ${error.result} are not finite`;
  return new ApiError({ status: 500, message, code: 'model_not_finite' }, { cause: error });
}
