/** `/operator`: a page that shows queues, workers and batches, from `/jobs`. */
import type { FastifyInstance } from 'fastify';
import { pageFile, sendFile } from '../page.js';
import { operatorCss, operatorHtml, operatorScript } from './page-files.js';

/** Needs no API key: the page is the same for everyone, and asks for the key. */
export function registerOperatorPage(app: FastifyInstance): void {
  const files = {
    '/operator': pageFile(operatorHtml, '.html'),
    '/operator.css': pageFile(operatorCss, '.css'),
    '/operator.js': pageFile(operatorScript, '.js'),
  };
  for (const [path, file] of Object.entries(files)) {
    app.get(path, { schema: { hide: true }, config: { isPublic: true } }, (request, reply) =>
      sendFile(request, reply.header('cache-control', 'no-cache'), file),
    );
  }
}
