/** `/v1/embeddings` */
import type { FastifyInstance } from 'fastify';
import type { EmbedOptions } from '@winnow/engine';
import { definedFields, encode } from '@winnow/tensor';
import { chooseEmbedding } from '../requests/choose-model.js';
import { embedTexts } from '../requests/embed-texts.js';
import type { EmbeddingList, EmbeddingRequest } from '../schemas/embeddings.js';
import type { ServerContext } from '../requests/server-context.js';
import { answers } from '../http/answers.js';

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
      const entry = await chooseEmbedding(context, body.model, reply);
      const options = definedFields<EmbedOptions>({ dimensions: body.dimensions });
      const { embedded, numTokens } = await embedTexts(inputsOf(body), options, entry, reply, context);
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

/** Little-endian 32-bit floats. */
function base64Of(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.byteLength);
  encode('f32', vector, bytes);
  return bytes.toString('base64');
}
