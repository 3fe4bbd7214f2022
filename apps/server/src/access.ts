/** Who may ask: API keys, and names that a browser may have been tricked into. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { ApiError } from './api-error.js';

/** Anybody may know whether the server lives. */
const openPaths = new Set(['/health']);

/** Equally long whatever is compared, so that the time of a comparison tells nothing. */
const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** @throws {ApiError} 401, for requests without one of the keys */
export function requireApiKey(app: FastifyInstance, keys: readonly string[]): void {
  const digests = keys.map(digest);
  app.addHook('onRequest', async (request, reply) => {
    if (openPaths.has(request.routeOptions.url ?? '')) return;
    const [, given = ''] = /^Bearer +(.+)$/i.exec(request.headers.authorization ?? '') ?? [];
    const actual = digest(given);
    // every key is compared, for the same reason
    const isKnown = digests.map((expected) => timingSafeEqual(expected, actual)).includes(true);
    if (isKnown && given !== '') return;
    void reply.header('www-authenticate', 'Bearer');
    throw new ApiError({
      status: 401,
      type: 'authentication_error',
      message: given === '' ? 'No API key: expected "Authorization: Bearer KEY"' : 'Incorrect API key',
      code: 'invalid_api_key',
    });
  });
}

const loopbackNames = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i;

/**
 * A page of any site can give its own name the address of this machine and then talk to the server as if it was its own
 * (DNS rebinding). Without an API key, a server that is there for this machine alone answers to its own names only.
 */
export function requireLoopbackName(app: FastifyInstance, isNeeded: () => boolean): void {
  app.addHook('onRequest', async ({ headers }) => {
    if (!isNeeded() || loopbackNames.test(headers.host ?? '')) return;
    const message = `Without an API key this server answers to localhost only, not to '${headers.host ?? ''}'`;
    throw new ApiError({ status: 403, message, code: 'forbidden_host' });
  });
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
