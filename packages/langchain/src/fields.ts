/** Common settings of both language models, at construction and per call. */
import type { BaseChatModelParams } from '@langchain/core/language_models/chat_models';
import type { BaseLLMParams } from '@langchain/core/language_models/llms';
import type { JsonSchema, Model, OverflowPolicy, SamplingOptions, Speculative } from '@winnow/engine';
import type { OptionNames } from '@winnow/tensor';

/** Generation settings. The defaults are the model's recommendations, else those of the engine. */
export interface GenerationFields extends SamplingOptions {
  /** Maximum number of tokens of an answer. Default: until the end token or a full context. */
  maxTokens?: number;
  /** Stop sequences, which are not part of the answer. Default: none. */
  stop?: string[];
  /** GBNF grammar that the answer must match. Not together with tools or `jsonSchema`. Default: none. */
  grammar?: string;
  /** JSON schema that the answer must satisfy. Default: none. */
  jsonSchema?: JsonSchema;
  /** How to handle prompts that do not fit. Default `stop`: an error. */
  overflow?: OverflowPolicy;
  /** How tokens are drafted, which changes the speed and not the text. Default: the option of `loadModel`. */
  speculative?: Speculative;
}

export type WinnowLLMFields = WinnowFields & Omit<BaseLLMParams, 'maxConcurrency'>;

export type ChatWinnowFields = WinnowFields & Omit<BaseChatModelParams, 'maxConcurrency'>;

export interface WinnowFields extends GenerationFields {
  /** A loaded model, owned by the caller. */
  model: Model;
  /** LangChain's name of `stop`, which takes precedence. */
  stopSequences?: string[];
  /** Ignored: LangChain may pass a key to any model, and local models need none. */
  apiKey?: string;
  /** Maximum number of concurrent generations; further calls wait. At most the model's `maxSessions`. Default 4. */
  maxConcurrency?: number;
  /** Maximum time of a call in milliseconds, after which it throws a `TimeoutError`. Default: none. */
  timeout?: number;
  /** Whether `invoke` reports tokens to callbacks as they are generated. Default false. */
  streaming?: boolean;
}

const generationNames: OptionNames<GenerationFields> = {
  temperature: true,
  topK: true,
  topP: true,
  minP: true,
  repetitionPenalty: true,
  presencePenalty: true,
  frequencyPenalty: true,
  penaltyWindow: true,
  seed: true,
  maxTokens: true,
  stop: true,
  grammar: true,
  jsonSchema: true,
  overflow: true,
  speculative: true,
};
const names = Object.keys(generationNames) as (keyof GenerationFields)[];

/** Names of the fields of a completion model: ours, and those of the class of LangChain that it extends. */
export const llmFieldNames: OptionNames<WinnowLLMFields> = {
  ...generationNames,
  model: true,
  stopSequences: true,
  apiKey: true,
  maxConcurrency: true,
  timeout: true,
  streaming: true,
  callbacks: true,
  callbackManager: true,
  tags: true,
  metadata: true,
  verbose: true,
  cache: true,
  maxRetries: true,
  onFailedAttempt: true,
};

/** The same of a chat model. */
export const chatFieldNames: OptionNames<ChatWinnowFields> = {
  ...llmFieldNames,
  disableStreaming: true,
  outputVersion: true,
};

/** Selects the settings among other fields. */
export function pickFields(fields: GenerationFields): GenerationFields {
  return Object.fromEntries(names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]]));
}
