/** The API that a path belongs to. */
import type { FastifyInstance } from 'fastify';
import { ApiError } from '../http/api-error.js';
import { openAiProtocol, type Protocol } from '../http/protocol.js';
import { anthropicProtocol } from './anthropic/errors.js';
import { ollamaProtocol } from './ollama/errors.js';

/** By the path, also of routes that do not exist. */
function protocolOf(path: string): Protocol {
  if (path.startsWith('/api/')) return ollamaProtocol;
  return path.startsWith('/v1/messages') ? anthropicProtocol : openAiProtocol;
}

/** 404 in the format of the API that the path looks like. */
export function refuseUnknownUrls(app: FastifyInstance): void {
  app.setNotFoundHandler(({ method, url }, reply) => {
    const [path = url] = url.split('?', 1);
    const error = new ApiError({ status: 404, message: `Unknown request URL: ${method} ${path}`, code: 'unknown_url' });
    return reply.status(error.status).send(protocolOf(path).errorBody(error));
  });
}
