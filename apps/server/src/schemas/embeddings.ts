/** `/v1/embeddings` */
import { Type, type Static } from 'typebox';
import { ModelId } from './common.js';

const maxInputs = 2048;
const Vector = Type.Union([Type.Array(Type.Number()), Type.String()]);
const TokenIds = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1 });

export const EmbeddingRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    input: Type.Union(
      [
        Type.String(),
        Type.Array(Type.String(), { minItems: 1, maxItems: maxInputs }),
        TokenIds,
        Type.Array(TokenIds, { minItems: 1, maxItems: maxInputs }),
      ],
      { description: 'A text, token ids, or a list of one kind.' },
    ),
    encoding_format: Type.Optional(
      Type.Enum(['float', 'base64'], { description: 'base64: little-endian 32-bit floats.' }),
    ),
    dimensions: Type.Optional(
      Type.Integer({ minimum: 1, description: 'For Matryoshka models, whose vectors can be truncated.' }),
    ),
    outputs: Type.Optional(
      Type.Array(Type.Enum(['sparse', 'multi_vector']), {
        uniqueItems: true,
        description:
          'What else to return, of models such as BGE-M3: lexical weights and a vector per token. ColBERT models ' +
          'return only the latter, and empty embeddings.',
      }),
    ),
    prompt_name: Type.Optional(
      Type.String({ description: 'One of the prompts of the model, such as query. Default: as the model declares.' }),
    ),
    user: Type.Optional(Type.String({ description: 'Has no effect.' })),
  },
  { $id: 'EmbeddingRequest', additionalProperties: false },
);
export type EmbeddingRequest = Static<typeof EmbeddingRequest>;

export const EmbeddingList = Type.Object(
  {
    object: Type.Literal('list'),
    model: Type.String(),
    data: Type.Array(
      Type.Object({
        object: Type.Literal('embedding'),
        index: Type.Integer(),
        embedding: Vector,
        sparse: Type.Optional(
          Type.Object(
            { indices: Type.Array(Type.Integer()), values: Type.Array(Type.Number()) },
            { description: 'The lexical weight of each token id.' },
          ),
        ),
        multi_vector: Type.Optional(Type.Array(Vector)),
      }),
    ),
    usage: Type.Object({ prompt_tokens: Type.Integer(), total_tokens: Type.Integer() }),
  },
  { $id: 'EmbeddingList' },
);
export type EmbeddingList = Static<typeof EmbeddingList>;
