/** Embeddings of a request, in any protocol. */
import type { FastifyReply } from 'fastify';
import type { EmbedOptions, TextEmbedding } from '@winnow/engine';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { badRequest, contextExceeded } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import type { EmbeddingEntry } from '../models/model-entry.js';
import { openScope } from './request-scope.js';
import type { ServerContext } from './server-context.js';

export interface EmbeddedTexts {
  readonly embedded: readonly TextEmbedding[];
  readonly numTokens: number;
}

/** Embeds texts in a slot. @throws {ApiError} for texts that the model cannot embed */
export async function embedTexts(
  inputs: readonly (string | number[])[],
  options: EmbedOptions,
  { id, model, slots }: EmbeddingEntry,
  reply: FastifyReply,
  { limits, shutdown, metrics, chargeTokens, isInternal }: ServerContext,
): Promise<EmbeddedTexts> {
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  try {
    const lease = await slots.acquire(reply.request.id, scope.signal, isInternal(reply.request));
    lease.activity.state = 'embedding';
    try {
      const embedded = await model.embedTexts(inputs, {
        ...options,
        signal: scope.signal,
        onProgress: ({ embeddedTokens }) => {
          lease.activity.promptTokens = embeddedTokens;
          lease.activity.processedTokens = embeddedTokens;
        },
      });
      const numTokens = embedded.reduce((total, text) => total + text.numTokens, 0);
      metrics.embeddedTokens.add(numTokens, { model: id });
      chargeTokens(reply.request, numTokens);
      return { embedded, numTokens };
    } finally {
      lease.release();
    }
  } catch (error) {
    throw inputError(error) ?? engineApiError(error, 'input') ?? error;
  } finally {
    scope.end();
  }
}

/** The engine calls the inputs `texts[index]`. */
function inputError(error: unknown): Error | undefined {
  if (CapacityError.isInstance(error) && error.unit === 'tokens') {
    return contextExceeded(error.resource.replace(/^texts/, 'input'), error.needed, error.available);
  }
  if (ArgumentError.isInstance(error) && error.argument.startsWith('texts')) {
    const param = error.argument.replace(/^texts/, 'input');
    return badRequest(param, `expected ${error.expected}, got ${error.actual}`, 'invalid_value');
  }
  return undefined;
}
