/** Schemas shared by several requests and responses. */
import { Type, type Static } from 'typebox';

export const ErrorBody = Type.Object(
  {
    error: Type.Object({
      message: Type.String(),
      type: Type.String(),
      param: Type.Union([Type.String(), Type.Null()], { description: 'The invalid parameter.' }),
      code: Type.Union([Type.String(), Type.Null()]),
    }),
  },
  { $id: 'Error' },
);

export const Usage = Type.Object(
  {
    prompt_tokens: Type.Integer(),
    completion_tokens: Type.Integer(),
    total_tokens: Type.Integer(),
    prompt_tokens_details: Type.Object({
      cached_tokens: Type.Integer({ description: 'Prompt tokens found in the cache.' }),
    }),
  },
  { $id: 'Usage' },
);
export type Usage = Static<typeof Usage>;

/** Any JSON object, such as a schema or the arguments of a call. */
export const JsonObject = Type.Record(Type.String(), Type.Unknown());

const logprobFields = {
  token: Type.String(),
  logprob: Type.Number(),
  bytes: Type.Array(Type.Integer({ minimum: 0, maximum: 255 })),
};

/** Log-probabilities of the tokens of a chat answer, in every API. */
export const TokenLogprobs = Type.Array(
  Type.Object({ ...logprobFields, top_logprobs: Type.Array(Type.Object(logprobFields)) }),
);

export const ModelId = Type.String({ description: 'May be omitted if the server has one model of the kind.' });

/** Not in the API of OpenAI. */
export const Grammar = Type.String({
  minLength: 1,
  description: "Extension of the OpenAI API: a grammar in llama.cpp's GBNF format that constrains the answer.",
});

export const StreamOptions = Type.Object(
  {
    include_usage: Type.Optional(Type.Boolean({ description: 'Send a final chunk with the usage and no choices.' })),
    include_obfuscation: Type.Optional(Type.Boolean({ description: 'Has no effect.' })),
  },
  { additionalProperties: false },
);

/**
 * Sampling parameters, named as in OpenAI's API and, beyond that, in vLLM. Defaults are the model's recommendations.
 */
export const samplingFields = {
  temperature: Type.Optional(Type.Number({ minimum: 0, maximum: 2, description: '0: greedy decoding.' })),
  top_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1 })),
  top_k: Type.Optional(Type.Integer({ minimum: 0, description: 'Extension of the OpenAI API. 0: all.' })),
  min_p: Type.Optional(Type.Number({ minimum: 0, maximum: 1, description: 'Extension of the OpenAI API. 0: off.' })),
  repetition_penalty: Type.Optional(
    Type.Number({ exclusiveMinimum: 0, description: 'Extension of the OpenAI API. 1: off.' }),
  ),
  speculative: Type.Optional(
    Type.Enum(['off', 'lookup', 'auto', 'self', 'draft'], {
      description:
        'Extension of the OpenAI API: how tokens are drafted, which changes the speed of an answer, not its text. ' +
        'Needs a server that was started with --speculative.',
    }),
  ),
  presence_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
  frequency_penalty: Type.Optional(Type.Number({ minimum: -2, maximum: 2 })),
  seed: Type.Optional(Type.Integer({ minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER })),
};

/** OpenAI's bound of `n`. */
export const NumChoices = Type.Integer({
  minimum: 1,
  maximum: 128,
  description: 'Number of answers, generated one after the other. Answer i is drawn with the seed plus i.',
});

export const LogitBias = Type.Record(Type.String(), Type.Number({ minimum: -100, maximum: 100 }), {
  description: 'Added to the logits of tokens, by token id.',
});

export const Stop = Type.Union(
  [Type.String({ minLength: 1 }), Type.Array(Type.String({ minLength: 1 }), { maxItems: 16 })],
  { description: 'Stop sequences, which are not part of the answer.' },
);

/** Accepted because clients send them; they have no effect. */
export const ignoredFields = {
  metadata: Type.Optional(Type.Unknown({ description: 'Has no effect.' })),
  prompt_cache_key: Type.Optional(Type.String({ description: 'Has no effect: prompts are cached by their tokens.' })),
  prompt_cache_retention: Type.Optional(Type.String({ description: 'Has no effect.' })),
  safety_identifier: Type.Optional(Type.String({ description: 'Has no effect.' })),
  service_tier: Type.Optional(Type.String({ description: 'Has no effect.' })),
  user: Type.Optional(Type.String({ description: 'Has no effect.' })),
};
