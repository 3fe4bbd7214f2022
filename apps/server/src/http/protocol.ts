/** One API among those of the server: the shape of its errors, and the fields of its bodies that have no effect. */
import type { FastifyError, FastifyInstance } from 'fastify';
import { internalError, type ApiError } from './api-error.js';
import { engineApiError, frameworkApiError } from './error-mapping.js';
import { unsupportedParameters, withoutNoOpFields } from './request-body.js';

export interface Protocol {
  readonly errorBody: (error: ApiError) => object;
  /** Unsupported parameters with the only value that is accepted. */
  readonly neutral: Readonly<Record<string, unknown>>;
}

export const openAiProtocol: Protocol = { errorBody: (error) => error.toJSON(), neutral: unsupportedParameters };

/** Registers the routes of a protocol. Hooks of the server apply to them. */
export function registerProtocol(
  app: FastifyInstance,
  { errorBody, neutral }: Protocol,
  reportError: (error: unknown) => void,
  registerRoutes: (scope: FastifyInstance) => void,
): void {
  void app.register(async (scope) => {
    scope.addHook('preValidation', async (request) => {
      request.body = withoutNoOpFields(request.body, neutral);
    });
    setErrorBody(scope, errorBody, reportError);
    registerRoutes(scope);
  });
}

export function setErrorBody(
  app: FastifyInstance,
  errorBody: Protocol['errorBody'],
  reportError: (error: unknown) => void,
): void {
  app.setErrorHandler<FastifyError>((error, _request, reply) => {
    let known = engineApiError(error, 'prompt') ?? frameworkApiError(error);
    if (known === undefined) {
      reportError(error);
      known = internalError(error);
    }
    if (known.retryAfterSeconds !== undefined) void reply.header('retry-after', known.retryAfterSeconds);
    if (known.mayBeDone) void reply.header('x-should-retry', 'false');
    return reply.status(known.status).send(errorBody(known));
  });
}
