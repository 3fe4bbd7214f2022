/** The routes of a router: those of `winnow serve`, by how a server is chosen. */
import type { ApiName } from './stream-formats.js';

/**
 * `prompt`: a server that has the beginning of the prompt. `load`: one with little to do. `stored`: the one that has the response.
 * `list`: all, and their lists become one. `batches`: that of files and batches.
 */
export type RouteKind = 'prompt' | 'load' | 'stored' | 'list' | 'batches';

export interface RouteEntry {
  readonly kind: RouteKind;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly url: string;
  readonly api: ApiName;
}

function entries(
  kind: RouteKind,
  api: ApiName,
  ...routes: readonly `${RouteEntry['method']} ${string}`[]
): RouteEntry[] {
  return routes.map((route) => {
    const [method, url] = route.split(' ') as [RouteEntry['method'], string];
    return { kind, api, method, url };
  });
}

export const routeEntries: readonly RouteEntry[] = [
  ...entries('prompt', 'openai', 'POST /v1/chat/completions', 'POST /v1/completions'),
  ...entries('prompt', 'responses', 'POST /v1/responses'),
  ...entries('prompt', 'anthropic', 'POST /v1/messages'),
  ...entries('prompt', 'ollama', 'POST /api/chat', 'POST /api/generate'),
  ...entries('load', 'openai', 'POST /v1/embeddings', 'POST /v1/rerank', 'POST /v2/rerank', 'POST /rerank'),
  ...entries('load', 'openai', 'POST /tokenize', 'POST /detokenize', 'POST /apply-template'),
  ...entries('load', 'openai', 'GET /v1/models/:model', 'GET /openapi.json'),
  ...entries('load', 'anthropic', 'POST /v1/messages/count_tokens'),
  ...entries('load', 'ollama', 'POST /api/embed', 'POST /api/show', 'GET /api/version'),
  ...entries('stored', 'responses', 'GET /v1/responses/:id', 'GET /v1/responses/:id/*', 'DELETE /v1/responses/:id'),
  ...entries('list', 'openai', 'GET /v1/models'),
  ...entries('list', 'ollama', 'GET /api/tags', 'GET /api/ps'),
  ...entries('batches', 'openai', 'POST /v1/files', 'GET /v1/files', 'GET /v1/files/:id', 'GET /v1/files/:id/content'),
  ...entries('batches', 'openai', 'DELETE /v1/files/:id', 'POST /v1/batches', 'GET /v1/batches', 'GET /v1/batches/:id'),
  ...entries('batches', 'openai', 'POST /v1/batches/:id/cancel', 'GET /jobs'),
];
