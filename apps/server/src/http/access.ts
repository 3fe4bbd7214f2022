/** Access control: API keys, and protection against DNS rebinding. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { ApiError } from './api-error.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whether the route needs no API key. */
    readonly isPublic?: boolean;
  }
}

/** Hashes of equal length, so that the comparison time reveals nothing. */
const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Hash of the API key, which distinguishes keys without storing them. */
export function keyHash({ headers }: Pick<FastifyRequest, 'headers'>): string {
  return digest(givenKey(headers)).toString('base64url');
}

/** Clients of Anthropic's API send `x-api-key`. */
function givenKey({ authorization = '', 'x-api-key': apiKey }: FastifyRequest['headers']): string {
  return /^Bearer +(.+)$/i.exec(authorization)?.[1] ?? (typeof apiKey === 'string' ? apiKey : '');
}

/** @throws {ApiError} 401 for requests without a valid key */
export function requireApiKey(
  app: FastifyInstance,
  keys: readonly string[],
  isInternal: (request: FastifyRequest) => boolean,
): void {
  const digests = keys.map(digest);
  app.addHook('onRequest', async (request, reply) => {
    if (request.routeOptions.config.isPublic === true || isInternal(request)) return;
    const given = givenKey(request.headers);
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
 * A page of any site can resolve its own host name to the address of this machine and then reach the server as
 * same-origin (DNS rebinding). Without an API key, a server bound to the loopback interface accepts only local host
 * names.
 */
export function requireLoopbackName(app: FastifyInstance, isNeeded: (request: FastifyRequest) => boolean): void {
  app.addHook('onRequest', async (request) => {
    const { headers } = request;
    if (!isNeeded(request) || loopbackNames.test(headers.host ?? '')) return;
    const message = `Without an API key this server accepts only the host localhost, not '${headers.host ?? ''}'`;
    throw new ApiError({ status: 403, message, code: 'forbidden_host' });
  });
}

export function isLoopback(host: string | undefined): boolean {
  if (host === undefined) return false;
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
