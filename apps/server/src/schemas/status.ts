/** `/v1/models`, `/health`, `/slots` */
import { Type, type Static } from 'typebox';

export const ModelObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('model'),
    created: Type.Integer({ description: 'When the server started, in seconds since 1970.' }),
    owned_by: Type.String(),
    context_length: Type.Optional(
      Type.Integer({
        description: 'Maximum number of tokens of a request, including prompt and answer; absent until it is loaded.',
      }),
    ),
    capabilities: Type.Array(Type.Enum(['chat', 'completion', 'vision', 'embedding', 'reranking']), {
      description: 'Empty until the model is loaded; vision: prompts may contain images.',
    }),
    aliases: Type.Optional(Type.Array(Type.String(), { description: 'Other names of the model.' })),
    status: Type.Object({ value: Type.Enum(['loaded', 'loading', 'unloaded']) }),
  },
  { $id: 'Model' },
);
export type ModelObject = Static<typeof ModelObject>;

export const ModelList = Type.Object(
  { object: Type.Literal('list'), data: Type.Array(ModelObject) },
  { $id: 'ModelList' },
);

export const Health = Type.Object({ status: Type.Enum(['ok', 'closing']) }, { $id: 'Health' });

export const SlotList = Type.Array(
  Type.Object({
    id: Type.Integer(),
    model: Type.String(),
    state: Type.Enum(['idle', 'prompt', 'generating', 'embedding', 'reranking', 'blocked'], {
      description: 'blocked: the client does not read its stream.',
    }),
    request_id: Type.Union([Type.String(), Type.Null()]),
    running_ms: Type.Integer(),
    prompt_tokens: Type.Integer(),
    processed_tokens: Type.Integer({ description: 'Number of computed prompt tokens.' }),
    generated_tokens: Type.Integer(),
  }),
  { $id: 'SlotList' },
);
export type SlotList = Static<typeof SlotList>;
