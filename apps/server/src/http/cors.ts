/** Pages of other origins. */
import cors from '@fastify/cors';
import type { App } from './create-app.js';

const rateHeaders = ['Requests', 'Tokens'].flatMap((unit) => [
  `X-RateLimit-Limit-${unit}`,
  `X-RateLimit-Remaining-${unit}`,
]);

export async function registerCors(app: App, origins: readonly string[]): Promise<void> {
  await app.register(cors, {
    origin: origins.includes('*') ? '*' : [...origins],
    // without a list the headers of the request are allowed: clients send headers of their own, such as X-Stainless-*
    exposedHeaders: ['Retry-After', 'X-Request-Id', ...rateHeaders],
    methods: ['GET', 'POST', 'DELETE'],
    maxAge: 600,
  });
}
