/** `/v1/messages` and `/v1/messages/count_tokens`: the Messages API of Anthropic. */
import { Type, type Static } from 'typebox';
import { JsonObject, ModelId } from '../../schemas/common.js';

const CacheControl = Type.Optional(Type.Unknown({ description: 'Has no effect: prompts are cached by their tokens.' }));

const RequestBlock = Type.Object({
  type: Type.String({ description: 'text, image, thinking, redacted_thinking, tool_use or tool_result.' }),
  text: Type.Optional(Type.String()),
  source: Type.Optional(
    Type.Object({
      type: Type.String({ description: 'base64; URLs are not fetched.' }),
      media_type: Type.Optional(Type.String()),
      data: Type.Optional(Type.String()),
    }),
  ),
  thinking: Type.Optional(Type.String()),
  id: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  input: Type.Optional(JsonObject),
  tool_use_id: Type.Optional(Type.String()),
  content: Type.Optional(
    Type.Union([Type.String(), Type.Array(Type.Object({ type: Type.String(), text: Type.Optional(Type.String()) }))]),
  ),
  is_error: Type.Optional(Type.Boolean()),
  cache_control: CacheControl,
});
export type RequestBlock = Static<typeof RequestBlock>;

const RequestMessage = Type.Object({
  role: Type.Enum(['user', 'assistant', 'system']),
  content: Type.Union([Type.String(), Type.Array(RequestBlock)]),
});
export type AnthropicMessageParam = Static<typeof RequestMessage>;

const Tool = Type.Object({
  type: Type.Optional(Type.Union([Type.String(), Type.Null()], { description: 'custom; the server runs no tools.' })),
  name: Type.String({ pattern: '^[a-zA-Z0-9_-]{1,128}$' }),
  description: Type.Optional(Type.String()),
  input_schema: Type.Optional(JsonObject),
  strict: Type.Optional(Type.Boolean({ description: 'Has no effect: arguments always follow the schema.' })),
  cache_control: CacheControl,
});

const ToolChoice = Type.Object({
  type: Type.Enum(['auto', 'any', 'tool', 'none']),
  name: Type.Optional(Type.String()),
  disable_parallel_tool_use: Type.Optional(Type.Boolean()),
});

const promptFields = {
  model: Type.Optional(ModelId),
  messages: Type.Array(RequestMessage, { minItems: 1 }),
  system: Type.Optional(
    Type.Union([Type.String(), Type.Array(Type.Object({ type: Type.Literal('text'), text: Type.String() }))]),
  ),
  tools: Type.Optional(Type.Array(Tool, { maxItems: 128 })),
  tool_choice: Type.Optional(ToolChoice),
  thinking: Type.Optional(
    Type.Object({
      type: Type.Enum(['enabled', 'disabled', 'adaptive'], {
        description: 'Sets enable_thinking of the chat template.',
      }),
      budget_tokens: Type.Optional(
        Type.Integer({
          minimum: 1,
          description: 'Maximum number of tokens of reasoning, after which its end is forced.',
        }),
      ),
      display: Type.Optional(Type.Unknown({ description: 'Has no effect: thinking is always shown.' })),
    }),
  ),
  output_config: Type.Optional(
    Type.Object(
      {
        effort: Type.Optional(
          Type.Union([Type.Enum(['low', 'medium', 'high', 'xhigh', 'max']), Type.Null()], {
            description: 'Sets reasoning_effort of the chat template.',
          }),
        ),
        format: Type.Optional(
          Type.Union([Type.Object({ type: Type.Literal('json_schema'), schema: JsonObject }), Type.Null()]),
        ),
      },
      { additionalProperties: false },
    ),
  ),
  cache_control: CacheControl,
};

export const MessageRequest = Type.Object(
  {
    ...promptFields,
    max_tokens: Type.Integer({ minimum: 1, description: 'Maximum number of tokens to generate.' }),
    stop_sequences: Type.Optional(Type.Array(Type.String({ minLength: 1 }), { maxItems: 16 })),
    stream: Type.Optional(Type.Boolean()),
    temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 1, description: '0: greedy decoding.' })),
    top_k: Type.Optional(Type.Integer({ minimum: 0, description: '0: all.' })),
    top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
    metadata: Type.Optional(Type.Unknown({ description: 'Has no effect.' })),
    service_tier: Type.Optional(Type.String({ description: 'Has no effect.' })),
  },
  { $id: 'MessageRequest', additionalProperties: false },
);
export type MessageRequest = Static<typeof MessageRequest>;

export const CountTokensRequest = Type.Object(promptFields, { $id: 'CountTokensRequest', additionalProperties: false });
export type CountTokensRequest = Static<typeof CountTokensRequest>;

export const CountTokensResponse = Type.Object({ input_tokens: Type.Integer() }, { $id: 'CountTokensResponse' });

const ContentBlock = Type.Union([
  Type.Object({ type: Type.Literal('text'), text: Type.String(), citations: Type.Null() }),
  Type.Object({ type: Type.Literal('thinking'), thinking: Type.String(), signature: Type.String() }),
  Type.Object({
    type: Type.Literal('tool_use'),
    id: Type.String(),
    name: Type.String(),
    input: JsonObject,
    caller: Type.Object({ type: Type.Literal('direct') }),
  }),
]);
export type ContentBlock = Static<typeof ContentBlock>;

const StopReason = Type.Enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use', 'model_context_window_exceeded']);
export type StopReason = Static<typeof StopReason>;

const Usage = Type.Object({
  input_tokens: Type.Integer({ description: 'Prompt tokens that were not in the cache.' }),
  cache_creation_input_tokens: Type.Integer(),
  cache_read_input_tokens: Type.Integer({ description: 'Prompt tokens found in the cache.' }),
  output_tokens: Type.Integer(),
});
export type MessageUsage = Static<typeof Usage>;

export const Message = Type.Object(
  {
    id: Type.String(),
    type: Type.Literal('message'),
    role: Type.Literal('assistant'),
    model: Type.String(),
    content: Type.Array(ContentBlock),
    stop_reason: Type.Union([StopReason, Type.Null()]),
    stop_sequence: Type.Union([Type.String(), Type.Null()]),
    usage: Usage,
  },
  { $id: 'Message' },
);
export type Message = Static<typeof Message>;

const ContentDelta = Type.Union([
  Type.Object({ type: Type.Literal('text_delta'), text: Type.String() }),
  Type.Object({ type: Type.Literal('thinking_delta'), thinking: Type.String() }),
  Type.Object({ type: Type.Literal('input_json_delta'), partial_json: Type.String() }),
]);
export type ContentDelta = Static<typeof ContentDelta>;

export const MessageError = Type.Object(
  {
    type: Type.Literal('error'),
    error: Type.Object({ type: Type.String(), message: Type.String() }),
  },
  { $id: 'MessageError' },
);
export type MessageError = Static<typeof MessageError>;

export const MessageStreamEvent = Type.Union(
  [
    Type.Object({ type: Type.Literal('message_start'), message: Message }),
    Type.Object({ type: Type.Literal('content_block_start'), index: Type.Integer(), content_block: ContentBlock }),
    Type.Object({ type: Type.Literal('content_block_delta'), index: Type.Integer(), delta: ContentDelta }),
    Type.Object({ type: Type.Literal('content_block_stop'), index: Type.Integer() }),
    Type.Object({
      type: Type.Literal('message_delta'),
      delta: Type.Object({ stop_reason: StopReason, stop_sequence: Type.Union([Type.String(), Type.Null()]) }),
      usage: Usage,
    }),
    Type.Object({ type: Type.Literal('message_stop') }),
    Type.Object({ type: Type.Literal('ping') }),
    MessageError,
  ],
  { $id: 'MessageStreamEvent' },
);
export type MessageStreamEvent = Static<typeof MessageStreamEvent>;
