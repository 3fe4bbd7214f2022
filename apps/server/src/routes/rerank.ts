/** `/v1/rerank`, also as `/rerank` and `/v2/rerank`, which clients of llama.cpp and Cohere use. */
import type { FastifyInstance } from 'fastify';
import type { RerankOptions } from '@winnow/engine';
import { definedFields } from '@winnow/tensor';
import { answers } from '../http/answers.js';
import { chooseReranking } from '../requests/choose-model.js';
import { rankDocuments } from '../requests/rank-documents.js';
import type { ServerContext } from '../requests/server-context.js';
import type { RerankRequest, RerankResult } from '../schemas/rerank.js';

const paths: readonly (readonly [path: string, operationId: string, version: string])[] = [
  ['/v1/rerank', 'rerank', '1'],
  ['/v2/rerank', 'rerankV2', '2'],
  ['/rerank', 'rerankUnversioned', '1'],
];

export function registerRerankRoutes(app: FastifyInstance, context: ServerContext): void {
  for (const [path, operationId, version] of paths) {
    app.post(
      path,
      {
        schema: {
          operationId,
          summary: 'Ranks documents by their relevance to a query.',
          tags: ['Reranking'],
          body: { $ref: 'RerankRequest#' },
          response: answers('RerankResult'),
        },
      },
      async (request, reply): Promise<RerankResult> => {
        const body = request.body as RerankRequest;
        const entry = await chooseReranking(context, body.model, reply);
        const documents = body.documents.map((document) => (typeof document === 'string' ? document : document.text));
        const options = definedFields<RerankOptions>({
          topN: body.top_n,
          overflow: body.truncate === true ? 'truncate' : undefined,
          instruction: body.instruction,
        });
        const { ranked, numTokens } = await rankDocuments(body.query, documents, options, entry, reply, context);
        return {
          id: request.id,
          object: 'list',
          model: entry.id,
          results: ranked.map(({ index, score, numDroppedTokens }) => ({
            index,
            relevance_score: score,
            ...(body.return_documents === true ? { document: { text: documents[index] as string } } : {}),
            ...(numDroppedTokens > 0 ? { dropped_tokens: numDroppedTokens } : {}),
          })),
          usage: { prompt_tokens: numTokens, total_tokens: numTokens },
          meta: { api_version: { version } },
        };
      },
    );
  }
}
