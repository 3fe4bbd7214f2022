/** Ranks the documents of a request. */
import type { FastifyReply } from 'fastify';
import type { RankedDocument, RerankOptions } from '@winnow/engine';
import { CapacityError } from '@winnow/tensor';
import { contextExceeded } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import type { RerankingEntry } from '../models/model-entry.js';
import { inSlot } from './in-slot.js';
import type { ServerContext } from './server-context.js';

export interface RankedDocuments {
  readonly ranked: readonly RankedDocument[];
  /** Of all documents, also those beyond `topN`. */
  readonly numTokens: number;
}

/** @throws {ApiError} for texts that the model cannot rank */
export async function rankDocuments(
  query: string,
  documents: readonly string[],
  { topN = documents.length, ...options }: RerankOptions,
  { id, model, slots }: RerankingEntry,
  reply: FastifyReply,
  context: ServerContext,
): Promise<RankedDocuments> {
  try {
    const all = await inSlot(slots, reply, context, (signal, activity) => {
      activity.state = 'reranking';
      return model.rerank(query, documents, {
        ...options,
        signal,
        onProgress: ({ rankedTokens }) => {
          activity.promptTokens = rankedTokens;
          activity.processedTokens = rankedTokens;
        },
      });
    });
    const numTokens = all.reduce((total, document) => total + document.numTokens, 0);
    context.metrics.rerankedTokens.add(numTokens, { model: id });
    context.chargeTokens(reply.request, numTokens);
    return { ranked: all.slice(0, topN), numTokens };
  } catch (error) {
    throw tooLong(error) ?? engineApiError(error, 'query') ?? error;
  }
}

function tooLong(error: unknown): Error | undefined {
  if (!CapacityError.isInstance(error) || error.unit !== 'tokens') return undefined;
  return contextExceeded(error.resource, error.needed, error.available);
}
