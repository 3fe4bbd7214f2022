/** `/v1/chat/completions` */
import { Type, type Static } from 'typebox';
import {
  Grammar,
  ignoredFields,
  JsonObject,
  LogitBias,
  ModelId,
  NumChoices,
  samplingFields,
  Stop,
  StreamOptions,
  TokenLogprobs,
  Usage,
} from './common.js';

const ContentPart = Type.Object({
  type: Type.String(),
  text: Type.Optional(Type.String()),
  image_url: Type.Optional(
    Type.Object({
      url: Type.String({
        description: 'A data: URL with a PNG, JPEG or WebP file in base64. Other URLs are not fetched.',
      }),
      detail: Type.Optional(Type.String({ description: 'Has no effect: the model decides.' })),
    }),
  ),
});

const RequestToolCall = Type.Object({
  id: Type.String(),
  type: Type.Optional(Type.Literal('function')),
  function: Type.Object({ name: Type.String(), arguments: Type.String({ description: 'A JSON object as a string.' }) }),
});

const ReasoningContent = Type.String({
  description: "Extension of the OpenAI API: the model's reasoning, without the marks around it.",
});

const RequestMessage = Type.Object({
  role: Type.Enum(['system', 'developer', 'user', 'assistant', 'tool']),
  content: Type.Optional(
    Type.Union([
      Type.String(),
      Type.Null(),
      Type.Array(ContentPart, { description: 'Content parts of type text or image_url.' }),
    ]),
  ),
  name: Type.Optional(Type.String()),
  reasoning_content: Type.Optional(Type.Union([ReasoningContent, Type.Null()])),
  tool_calls: Type.Optional(Type.Union([Type.Array(RequestToolCall), Type.Null()])),
  tool_call_id: Type.Optional(Type.String()),
});
export type RequestMessage = Static<typeof RequestMessage>;

const Tool = Type.Object({
  type: Type.Literal('function'),
  function: Type.Object({
    name: Type.String({ pattern: '^[a-zA-Z0-9_-]{1,64}$' }),
    description: Type.Optional(Type.String()),
    parameters: Type.Optional(JsonObject),
    strict: Type.Optional(
      Type.Union([Type.Boolean(), Type.Null()], { description: 'Has no effect: arguments always follow the schema.' }),
    ),
  }),
});

const ToolChoice = Type.Union([
  Type.Enum(['none', 'auto', 'required']),
  Type.Object({ type: Type.Literal('function'), function: Type.Object({ name: Type.String() }) }),
]);

const ResponseFormat = Type.Object({
  type: Type.Enum(['text', 'json_object', 'json_schema']),
  json_schema: Type.Optional(
    Type.Object({
      name: Type.Optional(Type.String()),
      description: Type.Optional(Type.String()),
      schema: Type.Optional(JsonObject),
      strict: Type.Optional(
        Type.Union([Type.Boolean(), Type.Null()], { description: 'Has no effect: answers always follow the schema.' }),
      ),
    }),
  ),
});

/** What makes a prompt and constrains its answer. */
export const promptFields = {
  messages: Type.Array(RequestMessage, { minItems: 1 }),
  response_format: Type.Optional(ResponseFormat),
  tools: Type.Optional(Type.Array(Tool, { maxItems: 128 })),
  tool_choice: Type.Optional(ToolChoice),
  parallel_tool_calls: Type.Optional(Type.Boolean()),
  reasoning_effort: Type.Optional(
    Type.Union([Type.String({ minLength: 1 }), Type.Null()], {
      description: 'How much the model reasons: what its chat template knows, such as low, or none.',
    }),
  ),
  max_reasoning_tokens: Type.Optional(
    Type.Integer({
      minimum: 0,
      description: 'Extension of the OpenAI API: maximum number of tokens of reasoning, after which its end is forced.',
    }),
  ),
  chat_template_kwargs: Type.Optional(
    Type.Record(Type.String(), Type.Unknown(), {
      description: "Extension of the OpenAI API: variables of the model's chat template, such as enable_thinking.",
    }),
  ),
};

export const ChatCompletionRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    ...promptFields,
    max_completion_tokens: Type.Optional(
      Type.Integer({ minimum: 1, description: 'Maximum number of tokens to generate. Default: until the end token.' }),
    ),
    max_tokens: Type.Optional(Type.Integer({ minimum: 1, description: 'Deprecated name of max_completion_tokens.' })),
    ...samplingFields,
    n: Type.Optional(NumChoices),
    logit_bias: Type.Optional(LogitBias),
    stop: Type.Optional(Stop),
    logprobs: Type.Optional(Type.Boolean()),
    top_logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
    grammar: Type.Optional(Grammar),
    stream: Type.Optional(Type.Boolean()),
    stream_options: Type.Optional(StreamOptions),
    ...ignoredFields,
  },
  { $id: 'ChatCompletionRequest', additionalProperties: false },
);
export type ChatCompletionRequest = Static<typeof ChatCompletionRequest>;

const ChatLogprobs = Type.Object({ content: TokenLogprobs, refusal: Type.Null() });
export type ChatLogprobs = Static<typeof ChatLogprobs>;

const ToolCall = Type.Object({
  id: Type.String(),
  type: Type.Literal('function'),
  function: Type.Object({ name: Type.String(), arguments: Type.String() }),
});
export type ToolCall = Static<typeof ToolCall>;

const ToolCallDelta = Type.Object({
  index: Type.Integer({ description: 'Number of calls before this one.' }),
  id: Type.Optional(Type.String({ description: 'In the first delta of a call, as are type and name.' })),
  type: Type.Optional(Type.Literal('function')),
  function: Type.Object({
    name: Type.Optional(Type.String()),
    arguments: Type.String({ description: 'The deltas of a call make up its arguments.' }),
  }),
});

const FinishReason = Type.Enum(['stop', 'length', 'tool_calls']);
export type ChatFinishReason = Static<typeof FinishReason>;

export const ChatCompletion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('chat.completion'),
    created: Type.Integer({ description: 'Seconds since 1970.' }),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        message: Type.Object({
          role: Type.Literal('assistant'),
          content: Type.Union([Type.String(), Type.Null()]),
          reasoning_content: Type.Optional(ReasoningContent),
          refusal: Type.Null(),
          tool_calls: Type.Optional(Type.Array(ToolCall)),
        }),
        logprobs: Type.Union([ChatLogprobs, Type.Null()]),
        finish_reason: FinishReason,
      }),
    ),
    usage: Usage,
  },
  { $id: 'ChatCompletion' },
);
export type ChatCompletion = Static<typeof ChatCompletion>;

export const ChatCompletionChunk = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('chat.completion.chunk'),
    created: Type.Integer(),
    model: Type.String(),
    choices: Type.Array(
      Type.Object({
        index: Type.Integer(),
        delta: Type.Object({
          role: Type.Optional(Type.Literal('assistant')),
          content: Type.Optional(Type.String()),
          reasoning_content: Type.Optional(ReasoningContent),
          tool_calls: Type.Optional(Type.Array(ToolCallDelta)),
        }),
        logprobs: Type.Optional(Type.Union([ChatLogprobs, Type.Null()])),
        finish_reason: Type.Union([FinishReason, Type.Null()]),
      }),
    ),
    usage: Type.Optional(Type.Union([Usage, Type.Null()])),
  },
  { $id: 'ChatCompletionChunk' },
);
export type ChatCompletionChunk = Static<typeof ChatCompletionChunk>;
