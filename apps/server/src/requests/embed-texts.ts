/** Embeddings of a request, in any protocol. */
import type { FastifyReply } from 'fastify';
import type { EmbedTextsOptions, TextEmbedding } from '@winnow/engine';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { badRequest, contextExceeded } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import type { EmbeddingEntry } from '../models/model-entry.js';
import { inSlot } from './in-slot.js';
import type { ServerContext } from './server-context.js';

export interface EmbeddedTexts {
  readonly embedded: readonly TextEmbedding[];
  readonly numTokens: number;
}

/** Embeds texts in a slot. @throws {ApiError} for texts that the model cannot embed */
export async function embedTexts(
  inputs: readonly (string | number[])[],
  options: EmbedTextsOptions,
  { id, model, slots }: EmbeddingEntry,
  reply: FastifyReply,
  context: ServerContext,
): Promise<EmbeddedTexts> {
  try {
    return await inSlot(slots, reply, context, async (signal, activity) => {
      activity.state = 'embedding';
      const embedded = await model.embedTexts(inputs, {
        ...options,
        signal,
        onProgress: ({ embeddedTokens }) => {
          activity.promptTokens = embeddedTokens;
          activity.processedTokens = embeddedTokens;
        },
      });
      const numTokens = embedded.reduce((total, text) => total + text.numTokens, 0);
      context.metrics.embeddedTokens.add(numTokens, { model: id });
      context.chargeTokens(reply.request, numTokens);
      return { embedded, numTokens };
    });
  } catch (error) {
    throw inputError(error) ?? engineApiError(error, 'input') ?? error;
  }
}

/** The engine calls the inputs `texts[index]`, and options and outputs as in JavaScript. */
function inputError(error: unknown): Error | undefined {
  if (CapacityError.isInstance(error) && error.unit === 'tokens') {
    return contextExceeded(error.resource.replace(/^texts/, 'input'), error.needed, error.available);
  }
  if (ArgumentError.isInstance(error) && /^(texts|(outputs|promptName)$)/.test(error.argument)) {
    const param = error.argument.replace(/^texts/, 'input').replace('promptName', 'prompt_name');
    const message = `expected ${error.expected.replace(' in embedTexts', '')}, got ${error.actual}`;
    return badRequest(param, message.replaceAll('multiVector', 'multi_vector'), 'invalid_value');
  }
  return undefined;
}
