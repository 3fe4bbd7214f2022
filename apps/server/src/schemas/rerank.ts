/** `/v1/rerank`, in the shapes of Jina and Cohere. */
import { Type, type Static } from 'typebox';
import { ModelId } from './common.js';

const maxDocuments = 2048;

export const RerankRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    query: Type.String({ description: 'What the documents should answer.' }),
    documents: Type.Array(
      Type.Union([Type.String(), Type.Object({ text: Type.String() }, { additionalProperties: false })]),
      {
        minItems: 1,
        maxItems: maxDocuments,
        description: 'Texts, or objects with a text.',
      },
    ),
    top_n: Type.Optional(Type.Integer({ minimum: 1, description: 'Number of results, the best ones. Default: all.' })),
    return_documents: Type.Optional(
      Type.Boolean({ description: 'Whether results have their documents. Default: false.' }),
    ),
    truncate: Type.Optional(
      Type.Boolean({
        description: 'Whether documents beyond the context lose their end. Default: false, they are an error.',
      }),
    ),
    instruction: Type.Optional(
      Type.String({ description: 'What makes a document relevant, for models such as Qwen3-Reranker.' }),
    ),
  },
  { $id: 'RerankRequest', additionalProperties: false },
);
export type RerankRequest = Static<typeof RerankRequest>;

export const RerankResult = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('list'),
    model: Type.String(),
    results: Type.Array(
      Type.Object({
        index: Type.Integer({ description: 'Index in the list of documents.' }),
        relevance_score: Type.Number({ description: 'Between 0 and 1.' }),
        document: Type.Optional(Type.Object({ text: Type.String() })),
        dropped_tokens: Type.Optional(Type.Integer({ description: 'Number of tokens that truncate left out.' })),
      }),
      { description: 'The best document first.' },
    ),
    usage: Type.Object({ prompt_tokens: Type.Integer(), total_tokens: Type.Integer() }),
    meta: Type.Object({ api_version: Type.Object({ version: Type.String() }) }),
  },
  { $id: 'RerankResult' },
);
export type RerankResult = Static<typeof RerankResult>;
