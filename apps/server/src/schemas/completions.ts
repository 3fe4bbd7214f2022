/** `/v1/completions` */
import { Type, type Static } from 'typebox';
import {
  Grammar,
  ignoredFields,
  LogitBias,
  ModelId,
  NumChoices,
  samplingFields,
  Stop,
  StreamOptions,
  Usage,
} from './common.js';

const TokenIds = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1 });

export const CompletionRequest = Type.Object(
  {
    model: Type.Optional(ModelId),
    prompt: Type.Union(
      [
        Type.String(),
        Type.Array(Type.String(), { minItems: 1, maxItems: 64 }),
        TokenIds,
        Type.Array(TokenIds, { minItems: 1, maxItems: 64 }),
      ],
      { description: 'A text, token ids, or a list of one kind; prompts are processed sequentially.' },
    ),
    max_tokens: Type.Optional(
      Type.Integer({
        minimum: 0,
        description: 'Maximum number of tokens to generate; 0 needs echo. Default: 16, as in the OpenAI API.',
      }),
    ),
    ...samplingFields,
    n: Type.Optional(NumChoices),
    echo: Type.Optional(
      Type.Boolean({
        description: 'Begin each answer with its prompt; with logprobs, score the tokens of the prompt, too.',
      }),
    ),
    logit_bias: Type.Optional(LogitBias),
    stop: Type.Optional(Stop),
    logprobs: Type.Optional(Type.Integer({ minimum: 0, maximum: 20 })),
    grammar: Type.Optional(Grammar),
    stream: Type.Optional(Type.Boolean()),
    stream_options: Type.Optional(StreamOptions),
    ...ignoredFields,
  },
  { $id: 'CompletionRequest', additionalProperties: false },
);
export type CompletionRequest = Static<typeof CompletionRequest>;

const CompletionLogprobs = Type.Object({
  tokens: Type.Array(Type.String()),
  token_logprobs: Type.Array(
    Type.Union([Type.Number(), Type.Null()], { description: 'Null for the first token of an echoed prompt.' }),
  ),
  top_logprobs: Type.Array(Type.Union([Type.Record(Type.String(), Type.Number()), Type.Null()])),
  text_offset: Type.Array(Type.Integer()),
});
export type CompletionLogprobs = Static<typeof CompletionLogprobs>;

const FinishReason = Type.Enum(['stop', 'length']);

const CompletionChoice = Type.Object({
  index: Type.Integer(),
  text: Type.String(),
  logprobs: Type.Union([CompletionLogprobs, Type.Null()]),
  finish_reason: Type.Union([FinishReason, Type.Null()], { description: 'Null in all stream chunks except the last.' }),
});
export type CompletionChoice = Static<typeof CompletionChoice>;

export const Completion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal('text_completion'),
    created: Type.Integer({ description: 'Seconds since 1970.' }),
    model: Type.String(),
    choices: Type.Array(CompletionChoice),
    usage: Type.Optional(Type.Union([Usage, Type.Null()])),
  },
  { $id: 'Completion' },
);
export type Completion = Static<typeof Completion>;
