/** `/v1/responses`: OpenAI's Responses API. */
import { Type, type Static, type TProperties } from 'typebox';
import { ignoredFields, JsonObject, ModelId, TokenLogprobs } from '../../schemas/common.js';

const Nullable = <T extends Parameters<typeof Type.Union>[0][number]>(schema: T) => Type.Union([schema, Type.Null()]);

const ContentPart = Type.Object({
  type: Type.String({
    description: 'input_text, input_image or output_text; of reasoning: reasoning_text or summary_text.',
  }),
  text: Type.Optional(Type.String()),
  image_url: Type.Optional(
    Nullable(
      Type.String({
        description: 'A data: URL with a PNG, JPEG or WebP file in base64. Other URLs are not fetched.',
      }),
    ),
  ),
  detail: Type.Optional(Nullable(Type.String({ description: 'Has no effect: the model decides.' }))),
});

const InputItem = Type.Object({
  type: Type.Optional(Type.String({ description: 'message, function_call, function_call_output or reasoning.' })),
  id: Type.Optional(Nullable(Type.String())),
  role: Type.Optional(Type.Enum(['user', 'assistant', 'system', 'developer'])),
  content: Type.Optional(Nullable(Type.Union([Type.String(), Type.Array(ContentPart)]))),
  summary: Type.Optional(Type.Array(ContentPart)),
  call_id: Type.Optional(Type.String()),
  name: Type.Optional(Type.String()),
  arguments: Type.Optional(Type.String()),
  output: Type.Optional(Type.Union([Type.String(), Type.Array(ContentPart)])),
});
export type InputItem = Static<typeof InputItem>;

const Tool = Type.Object({
  type: Type.String({ description: 'function; the server runs no tools.' }),
  name: Type.Optional(Type.String()),
  description: Type.Optional(Nullable(Type.String())),
  parameters: Type.Optional(Nullable(JsonObject)),
  strict: Type.Optional(Nullable(Type.Boolean({ description: 'Has no effect: arguments always follow the schema.' }))),
});

const ToolChoice = Type.Union([
  Type.Enum(['none', 'auto', 'required']),
  Type.Object({ type: Type.Literal('function'), name: Type.String() }),
]);

const Format = Type.Object({
  type: Type.Enum(['text', 'json_object', 'json_schema']),
  name: Type.Optional(Type.String()),
  description: Type.Optional(Type.String()),
  schema: Type.Optional(JsonObject),
  strict: Type.Optional(Nullable(Type.Boolean({ description: 'Has no effect: answers always follow the schema.' }))),
});

const Reasoning = Type.Object(
  {
    effort: Type.Optional(
      Nullable(Type.String({ description: 'Sets reasoning_effort of the chat template; none turns reasoning off.' })),
    ),
    summary: Type.Optional(Nullable(Type.String({ description: 'Has no effect: reasoning is shown in full.' }))),
  },
  { additionalProperties: false },
);

export const ResponseRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    input: Type.Union([Type.String(), Type.Array(InputItem, { minItems: 1 })]),
    instructions: Type.Optional(Type.String({ description: 'A system message before the conversation.' })),
    previous_response_id: Type.Optional(Type.String({ description: 'Continues a stored conversation.' })),
    store: Type.Optional(Type.Boolean({ description: 'Keep the conversation, within a limit. Default true.' })),
    max_output_tokens: Type.Optional(Type.Integer({ minimum: 1 })),
    temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 2, description: '0: greedy decoding.' })),
    top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
    top_logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
    include: Type.Optional(Type.Array(Type.Enum(['message.output_text.logprobs', 'reasoning.encrypted_content']))),
    stream: Type.Optional(Type.Boolean()),
    stream_options: Type.Optional(
      Type.Object(
        { include_obfuscation: Type.Optional(Type.Boolean({ description: 'Has no effect.' })) },
        { additionalProperties: false },
      ),
    ),
    tools: Type.Optional(Type.Array(Tool, { maxItems: 128 })),
    tool_choice: Type.Optional(ToolChoice),
    parallel_tool_calls: Type.Optional(Type.Boolean()),
    text: Type.Optional(Type.Object({ format: Type.Optional(Format) }, { additionalProperties: false })),
    reasoning: Type.Optional(Reasoning),
    truncation: Type.Optional(Type.Literal('disabled', { description: 'A conversation is never cut.' })),
    ...ignoredFields,
  },
  { $id: 'ResponseRequest', additionalProperties: false },
);
export type ResponseRequest = Static<typeof ResponseRequest>;

const Status = Type.Enum(['in_progress', 'completed', 'incomplete']);
const OutputText = Type.Object({
  type: Type.Literal('output_text'),
  text: Type.String(),
  annotations: Type.Array(Type.Unknown()),
  logprobs: TokenLogprobs,
});
const ReasoningText = Type.Object({ type: Type.Literal('reasoning_text'), text: Type.String() });

const MessageItem = Type.Object({
  type: Type.Literal('message'),
  id: Type.String(),
  role: Type.Literal('assistant'),
  status: Status,
  content: Type.Array(OutputText),
});
const ReasoningItem = Type.Object({
  type: Type.Literal('reasoning'),
  id: Type.String(),
  status: Status,
  summary: Type.Array(Type.Unknown()),
  content: Type.Array(ReasoningText),
});
const CallItem = Type.Object({
  type: Type.Literal('function_call'),
  id: Type.String(),
  call_id: Type.String(),
  name: Type.String(),
  arguments: Type.String(),
  status: Status,
});
const OutputItem = Type.Union([MessageItem, ReasoningItem, CallItem]);
export type OutputItem = Static<typeof OutputItem>;

export const ResponseObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('response'),
    created_at: Type.Integer({ description: 'Seconds since 1970.' }),
    completed_at: Nullable(Type.Integer()),
    status: Status,
    error: Type.Null(),
    incomplete_details: Nullable(Type.Object({ reason: Type.Literal('max_output_tokens') })),
    model: Type.String(),
    output: Type.Array(OutputItem),
    usage: Nullable(
      Type.Object({
        input_tokens: Type.Integer(),
        input_tokens_details: Type.Object({ cached_tokens: Type.Integer() }),
        output_tokens: Type.Integer(),
        output_tokens_details: Type.Object({ reasoning_tokens: Type.Integer({ description: '0: not counted.' }) }),
        total_tokens: Type.Integer(),
      }),
    ),
    instructions: Nullable(Type.String()),
    previous_response_id: Nullable(Type.String()),
    store: Type.Boolean(),
    max_output_tokens: Nullable(Type.Integer()),
    temperature: Nullable(Type.Number()),
    top_p: Nullable(Type.Number()),
    parallel_tool_calls: Type.Boolean(),
    tools: Type.Array(Type.Unknown()),
    tool_choice: ToolChoice,
    text: Type.Object({ format: Format }),
    reasoning: Reasoning,
    truncation: Type.Literal('disabled'),
    metadata: Type.Unknown(),
  },
  { $id: 'Response' },
);
export type ResponseObject = Static<typeof ResponseObject>;

const event = <Name extends string, Fields extends TProperties>(names: Name[], fields: Fields) =>
  Type.Object({ type: Type.Enum(names), sequence_number: Type.Integer(), ...fields });

const at = { item_id: Type.String(), output_index: Type.Integer() };
const inPart = { ...at, content_index: Type.Literal(0) };
const OutputPart = Type.Union([OutputText, ReasoningText]);
export type OutputPart = Static<typeof OutputPart>;

export const ResponseStreamEvent = Type.Union(
  [
    event(['response.created', 'response.in_progress', 'response.completed', 'response.incomplete'], {
      response: ResponseObject,
    }),
    event(['response.output_item.added', 'response.output_item.done'], {
      output_index: Type.Integer(),
      item: OutputItem,
    }),
    event(['response.content_part.added', 'response.content_part.done'], { ...inPart, part: OutputPart }),
    event(['response.output_text.delta'], { ...inPart, delta: Type.String(), logprobs: TokenLogprobs }),
    event(['response.output_text.done'], { ...inPart, text: Type.String(), logprobs: TokenLogprobs }),
    event(['response.reasoning_text.delta'], { ...inPart, delta: Type.String() }),
    event(['response.reasoning_text.done'], { ...inPart, text: Type.String() }),
    event(['response.function_call_arguments.delta'], { ...at, delta: Type.String() }),
    event(['response.function_call_arguments.done'], { ...at, name: Type.String(), arguments: Type.String() }),
    event(['error'], {
      code: Nullable(Type.String()),
      message: Type.String(),
      param: Nullable(Type.String()),
    }),
  ],
  { $id: 'ResponseStreamEvent' },
);
export type ResponseStreamEvent = Static<typeof ResponseStreamEvent>;

export const DeletedResponse = Type.Object(
  { id: Type.String(), object: Type.Literal('response'), deleted: Type.Literal(true) },
  { $id: 'DeletedResponse' },
);
