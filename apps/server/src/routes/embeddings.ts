/** `/v1/embeddings` */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { EmbedOptions, TextEmbedding } from '@winnow/engine';
import { ArgumentError, CapacityError, definedFields, encode } from '@winnow/tensor';
import { badRequest, contextExceeded } from '../http/api-error.js';
import { engineApiError } from '../http/error-mapping.js';
import type { EmbeddingEntry } from '../models/model-registry.js';
import { openScope } from '../requests/request-scope.js';
import type { EmbeddingList, EmbeddingRequest } from '../schemas/embeddings.js';
import type { ServerContext } from '../requests/server-context.js';
import { answers } from './answers.js';

export function registerEmbeddingRoute(app: FastifyInstance, context: ServerContext): void {
  app.post(
    '/v1/embeddings',
    {
      schema: {
        operationId: 'createEmbedding',
        summary: 'Turns texts into vectors.',
        tags: ['Embeddings'],
        body: { $ref: 'EmbeddingRequest#' },
        response: answers('EmbeddingList'),
      },
    },
    async (request, reply): Promise<EmbeddingList> => {
      const body = request.body as EmbeddingRequest;
      const entry = context.registry.embedding(body.model);
      const embedded = await embed(inputsOf(body), body, entry, reply, context);
      const numTokens = embedded.reduce((total, text) => total + text.numTokens, 0);
      context.metrics.embeddedTokens.add(numTokens, { model: entry.id });
      const encode = body.encoding_format === 'base64' ? base64Of : (vector: Float32Array) => Array.from(vector);
      return {
        object: 'list',
        model: entry.id,
        data: embedded.map(({ vector }, index) => ({ object: 'embedding', index, embedding: encode(vector) })),
        usage: { prompt_tokens: numTokens, total_tokens: numTokens },
      };
    },
  );
}

function inputsOf({ input }: EmbeddingRequest): (string | number[])[] {
  const isOne = typeof input === 'string' || typeof input[0] === 'number';
  return isOne ? [input as string | number[]] : (input as (string | number[])[]);
}

async function embed(
  inputs: readonly (string | number[])[],
  { dimensions }: EmbeddingRequest,
  { model, slots }: EmbeddingEntry,
  reply: FastifyReply,
  { limits, shutdown }: ServerContext,
): Promise<TextEmbedding[]> {
  const scope = openScope(reply, limits.requestTimeoutMs, shutdown);
  try {
    const lease = await slots.acquire(reply.request.id, scope.signal);
    lease.activity.state = 'embedding';
    try {
      return await model.embedTexts(inputs, {
        ...definedFields<EmbedOptions>({ dimensions }),
        signal: scope.signal,
        onProgress: ({ embeddedTokens }) => {
          lease.activity.promptTokens = embeddedTokens;
          lease.activity.processedTokens = embeddedTokens;
        },
      });
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

/** Little-endian 32-bit floats. */
function base64Of(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.byteLength);
  encode('f32', vector, bytes);
  return bytes.toString('base64');
}
