/** `/v1/embeddings` */
import type { FastifyInstance } from 'fastify';
import type { EmbedTextsOptions, TextEmbedding, TokenOutput } from '@winnow/engine';
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
      const outputs = body.outputs?.map((name): TokenOutput => (name === 'sparse' ? 'sparse' : 'multiVector'));
      const { dimensions, prompt_name: promptName } = body;
      const options = definedFields<EmbedTextsOptions>({ dimensions, outputs, promptName });
      const { embedded, numTokens } = await embedTexts(inputsOf(body), options, entry, reply, context);
      const encode = body.encoding_format === 'base64' ? base64Of : (vector: Float32Array) => Array.from(vector);
      return {
        object: 'list',
        model: entry.id,
        data: embedded.map((text, index) => ({
          object: 'embedding',
          index,
          embedding: encode(text.vector),
          ...tokenOutputsOf(text, encode),
        })),
        usage: { prompt_tokens: numTokens, total_tokens: numTokens },
      };
    },
  );
}

/** What a request asks for besides vectors. */
function tokenOutputsOf(
  { sparse, multiVector }: TextEmbedding,
  encode: (vector: Float32Array) => number[] | string,
): Pick<EmbeddingList['data'][number], 'sparse' | 'multi_vector'> {
  return {
    ...(sparse && { sparse: { indices: Array.from(sparse.indices), values: Array.from(sparse.values) } }),
    ...(multiVector && { multi_vector: multiVector.map(encode) }),
  };
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
