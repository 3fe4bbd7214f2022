/**
 * Common settings of both language models, at construction and per call, and their conversion to options of the engine.
 */
import type { GenerateOptions, JsonSchema, Model, OverflowPolicy, SamplingOptions } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';

/** Generation settings. The defaults are the model's recommendations, else those of the engine. */
export interface GenerationFields extends SamplingOptions {
  /** Maximum number of tokens of an answer. Default: until the end token or a full context. */
  maxTokens?: number;
  /** Stop sequences, which are not part of the answer. */
  stop?: string[];
  /** GBNF grammar that the answer must match. Not together with tools or `jsonSchema`. */
  grammar?: string;
  /** JSON schema that the answer must satisfy. */
  jsonSchema?: JsonSchema;
  /** How to handle prompts that do not fit. Default `stop`: an error. */
  overflow?: OverflowPolicy;
}

export interface WinnowFields extends GenerationFields {
  /** A loaded model, owned by the caller. */
  model: Model;
  /** Maximum number of concurrent generations; further calls wait. At most the model's `maxSessions`. Default 4. */
  maxConcurrency?: number;
  /** Whether `invoke` reports tokens to callbacks as they are generated. Default false. */
  streaming?: boolean;
}

/** Names of the settings, as fields and as call options. */
const samplingNames = [
  'temperature',
  'topK',
  'topP',
  'minP',
  'repetitionPenalty',
  'presencePenalty',
  'frequencyPenalty',
  'penaltyWindow',
  'seed',
] as const satisfies readonly (keyof SamplingOptions)[];
const names = [
  ...samplingNames,
  'maxTokens',
  'stop',
  'grammar',
  'jsonSchema',
  'overflow',
] as const satisfies readonly (keyof GenerationFields)[];

/** Selects the settings among other fields. */
export function pickFields(fields: GenerationFields): GenerationFields {
  return Object.fromEntries(names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]]));
}

/** Settings of a call override those of the object. */
export function generateOptions(
  own: GenerationFields,
  call: GenerationFields & { readonly signal?: AbortSignal },
): GenerateOptions {
  const { signal } = call;
  return { ...own, ...pickFields(call), ...(signal === undefined ? {} : { signal }) };
}

/** The key of LangChain's response cache: the model and all settings. */
export function identifyingParams(model: Model, own: GenerationFields): Record<string, unknown> {
  return { model: model.name, ...own };
}

/** @throws {ArgumentError} */
export function concurrencyOf(asked = 4): number {
  if (asked === Infinity || (Number.isSafeInteger(asked) && asked > 0)) return asked;
  throw new ArgumentError({ argument: 'maxConcurrency', expected: 'a positive integer', actual: String(asked) });
}
