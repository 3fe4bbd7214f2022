/** `/api/chat`, `/api/generate`, `/api/embed`, `/api/tags`, `/api/show`, `/api/ps`, `/api/version`: the API of Ollama. */
import { Type, type Static } from 'typebox';
import { JsonObject, ModelId, TokenLogprobs } from '../../schemas/common.js';

const noEffect = { description: 'Has no effect: the options of loading are those of the server.' };

const Options = Type.Object(
  {
    num_predict: Type.Optional(Type.Integer({ minimum: -2, description: 'Maximum number of tokens; below 0: none.' })),
    num_ctx: Type.Optional(Type.Integer({ minimum: 0, description: "At most the model's context." })),
    temperature: Type.Optional(Type.Number({ minimum: 0, description: '0: greedy decoding.' })),
    top_k: Type.Optional(Type.Integer({ minimum: 0, description: '0: all.' })),
    top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
    min_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
    repeat_penalty: Type.Optional(Type.Number({ exclusiveMinimum: 0, description: '1: off.' })),
    repeat_last_n: Type.Optional(Type.Integer({ minimum: -1, description: '0: off; -1: all tokens.' })),
    presence_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
    frequency_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
    seed: Type.Optional(Type.Integer({ minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER })),
    stop: Type.Optional(Type.Array(Type.String({ minLength: 1 }), { maxItems: 16 })),
    mirostat: Type.Optional(Type.Literal(0, { description: 'Not supported.' })),
    tfs_z: Type.Optional(Type.Literal(1, { description: 'Not supported.' })),
    typical_p: Type.Optional(Type.Literal(1, { description: 'Not supported.' })),
    ...Object.fromEntries(
      ['num_keep', 'num_batch', 'num_gpu', 'main_gpu', 'num_thread'].map((name) => [
        name,
        Type.Optional(Type.Integer(noEffect)),
      ]),
    ),
    ...Object.fromEntries(
      ['numa', 'low_vram', 'use_mmap', 'use_mlock'].map((name) => [name, Type.Optional(Type.Boolean(noEffect))]),
    ),
  },
  { additionalProperties: false },
);
export type OllamaOptions = Static<typeof Options>;

const Think = Type.Union([Type.Boolean(), Type.Enum(['low', 'medium', 'high'])], {
  description: 'Sets enable_thinking of the chat template, and reasoning_effort for a level.',
});
export type Think = Static<typeof Think>;

const Format = Type.Union([Type.Enum(['', 'json']), JsonObject], { description: 'json, or a JSON schema.' });
const Images = Type.Optional(Type.Array(Type.String(), { description: 'PNG, JPEG or WebP files in base64.' }));
const KeepAlive = Type.Optional(
  Type.Union([Type.String(), Type.Number()], {
    description:
      'Seconds, or a text such as 5m, after which a model on demand is unloaded; 0: after this request, below 0: never.',
  }),
);

const requestFields = {
  model: Type.Optional(ModelId),
  stream: Type.Optional(Type.Boolean({ description: 'Default true.' })),
  format: Type.Optional(Format),
  options: Type.Optional(Options),
  think: Type.Optional(Think),
  logprobs: Type.Optional(Type.Boolean()),
  top_logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
  keep_alive: KeepAlive,
};

const ToolCall = Type.Object({
  function: Type.Object({ name: Type.String(), arguments: Type.Optional(JsonObject) }),
});

const RequestMessage = Type.Object({
  role: Type.Enum(['system', 'user', 'assistant', 'tool']),
  content: Type.Optional(Type.String()),
  thinking: Type.Optional(Type.String()),
  images: Images,
  tool_calls: Type.Optional(Type.Array(ToolCall)),
  tool_name: Type.Optional(Type.String()),
});
export type OllamaMessage = Static<typeof RequestMessage>;

const Tool = Type.Object({
  type: Type.Literal('function'),
  function: Type.Object({
    name: Type.String({ pattern: '^[a-zA-Z0-9_.:-]{1,128}$' }),
    description: Type.Optional(Type.String()),
    parameters: Type.Optional(JsonObject),
  }),
});

export const OllamaChatRequest = Type.Object(
  {
    ...requestFields,
    messages: Type.Optional(Type.Array(RequestMessage)),
    tools: Type.Optional(Type.Array(Tool, { maxItems: 128 })),
  },
  { $id: 'OllamaChatRequest', additionalProperties: false },
);
export type OllamaChatRequest = Static<typeof OllamaChatRequest>;

export const OllamaGenerateRequest = Type.Object(
  {
    ...requestFields,
    prompt: Type.Optional(Type.String()),
    system: Type.Optional(Type.String()),
    raw: Type.Optional(Type.Boolean({ description: 'Continue the prompt without the chat template.' })),
    suffix: Type.Optional(Type.Literal('', { description: 'Not supported.' })),
    template: Type.Optional(Type.Literal('', { description: "Not supported: the model's own template is used." })),
    context: Type.Optional(Type.Array(Type.Integer(), { maxItems: 0, description: 'Not supported.' })),
    images: Images,
  },
  { $id: 'OllamaGenerateRequest', additionalProperties: false },
);
export type OllamaGenerateRequest = Static<typeof OllamaGenerateRequest>;

export const OllamaEmbedRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    input: Type.Union([Type.String(), Type.Array(Type.String(), { minItems: 1, maxItems: 2048 })]),
    truncate: Type.Optional(Type.Boolean({ description: 'Whether longer texts are cut. Default true.' })),
    dimensions: Type.Optional(Type.Integer({ minimum: 1 })),
    options: Type.Optional(Options),
    keep_alive: KeepAlive,
  },
  { $id: 'OllamaEmbedRequest', additionalProperties: false },
);
export type OllamaEmbedRequest = Static<typeof OllamaEmbedRequest>;

export const OllamaShowRequest = Type.Object(
  { model: Type.Optional(ModelId), name: Type.Optional(Type.String()), verbose: Type.Optional(Type.Boolean()) },
  { $id: 'OllamaShowRequest', additionalProperties: false },
);
export type OllamaShowRequest = Static<typeof OllamaShowRequest>;

const answerFields = {
  model: Type.String(),
  created_at: Type.String({ description: 'RFC 3339.' }),
  logprobs: Type.Optional(TokenLogprobs),
  done: Type.Boolean(),
  done_reason: Type.Optional(Type.Enum(['stop', 'length', 'load', 'unload'])),
  total_duration: Type.Optional(Type.Integer({ description: 'Nanoseconds, as are all durations.' })),
  load_duration: Type.Optional(Type.Integer()),
  prompt_eval_count: Type.Optional(Type.Integer({ description: 'Prompt tokens.' })),
  prompt_eval_duration: Type.Optional(Type.Integer()),
  eval_count: Type.Optional(Type.Integer({ description: 'Generated tokens.' })),
  eval_duration: Type.Optional(Type.Integer()),
};

const ResponseMessage = Type.Object({
  role: Type.Literal('assistant'),
  content: Type.String(),
  thinking: Type.Optional(Type.String()),
  tool_calls: Type.Optional(
    Type.Array(Type.Object({ function: Type.Object({ name: Type.String(), arguments: JsonObject }) })),
  ),
});
export type OllamaResponseMessage = Static<typeof ResponseMessage>;

export const OllamaChatResponse = Type.Object(
  { ...answerFields, message: ResponseMessage },
  { $id: 'OllamaChatResponse' },
);
export const OllamaGenerateResponse = Type.Object(
  { ...answerFields, response: Type.String(), thinking: Type.Optional(Type.String()) },
  { $id: 'OllamaGenerateResponse' },
);
export type OllamaAnswer = Static<typeof OllamaChatResponse> | Static<typeof OllamaGenerateResponse>;

export const OllamaEmbedResponse = Type.Object(
  {
    model: Type.String(),
    embeddings: Type.Array(Type.Array(Type.Number())),
    total_duration: Type.Integer(),
    load_duration: Type.Integer(),
    prompt_eval_count: Type.Integer(),
  },
  { $id: 'OllamaEmbedResponse' },
);

const Details = Type.Object({
  parent_model: Type.String(),
  format: Type.String(),
  family: Type.String(),
  families: Type.Array(Type.String()),
  parameter_size: Type.String({ description: 'Empty: not known.' }),
  quantization_level: Type.String({ description: 'Empty: not known.' }),
});
const Capabilities = Type.Array(Type.Enum(['completion', 'tools', 'vision', 'embedding']));

const ListedModel = {
  name: Type.String(),
  model: Type.String(),
  modified_at: Type.String({ description: 'When the files were written, or else when the server started.' }),
  size: Type.Integer({ description: 'Planned memory in bytes, or else the size of the files; 0: not known.' }),
  digest: Type.String({ description: 'Of the id.' }),
  details: Details,
  expires_at: Type.Optional(Type.String({ description: 'When an idle model will be unloaded.' })),
  size_vram: Type.Optional(Type.Integer({ description: '0: the memory is that of the computer.' })),
};
export const OllamaModelList = Type.Object(
  { models: Type.Array(Type.Object(ListedModel)) },
  { $id: 'OllamaModelList' },
);

export const OllamaShowResponse = Type.Object(
  {
    license: Type.String(),
    modelfile: Type.String(),
    parameters: Type.String(),
    template: Type.String({ description: "The model's Jinja template." }),
    modified_at: Type.String(),
    details: Details,
    model_info: JsonObject,
    capabilities: Capabilities,
  },
  { $id: 'OllamaShowResponse' },
);
export type OllamaShowResponse = Static<typeof OllamaShowResponse>;
export type OllamaListedModel = Static<typeof OllamaModelList>['models'][number];

export const OllamaVersion = Type.Object({ version: Type.String() }, { $id: 'OllamaVersion' });
export const OllamaError = Type.Object({ error: Type.String() }, { $id: 'OllamaError' });
