/** What both language models take, at construction and per call, and how it becomes options of the engine. */
import type { GenerateOptions, JsonSchema, Model, OverflowPolicy, SamplingOptions } from '@winnow/engine';
import { ArgumentError } from '@winnow/tensor';

/** Settings of a generation. What is not given is what the model recommends, else the engine's defaults. */
export interface GenerationFields extends SamplingOptions {
  /** Most tokens of an answer. Default: until the end token or a full context. */
  maxTokens?: number;
  /** Texts that end an answer, and are no part of it. */
  stop?: string[];
  /** What an answer has to match, in GBNF. Not beside tools or `jsonSchema`. */
  grammar?: string;
  /** What an answer has to be: JSON that this schema accepts. */
  jsonSchema?: JsonSchema;
  /** What to do with prompts that do not fit. Default `stop`: they are refused. */
  overflow?: OverflowPolicy;
}

export interface WinnowFields extends GenerationFields {
  /** A loaded model. It stays with who loaded it. */
  model: Model;
  /** Most answers that are generated at a time; others wait. At most the model's `maxSessions`. Default 4. */
  maxConcurrency?: number;
  /** Whether `invoke` reports tokens to callbacks as they come. Default false. */
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

/** The settings among other fields. */
export function pickFields(fields: GenerationFields): GenerationFields {
  return Object.fromEntries(names.filter((name) => fields[name] !== undefined).map((name) => [name, fields[name]]));
}

/** Settings of a call before those of the object. */
export function generateOptions(
  own: GenerationFields,
  call: GenerationFields & { readonly signal?: AbortSignal },
): GenerateOptions {
  const { signal } = call;
  return { ...own, ...pickFields(call), ...(signal === undefined ? {} : { signal }) };
}

/** What says which answers a cache may give: the model and all settings. */
export function identifyingParams(model: Model, own: GenerationFields): Record<string, unknown> {
  return { model: model.name, ...own };
}

/** @throws {ArgumentError} */
export function concurrencyOf(asked = 4): number {
  if (asked === Infinity || (Number.isSafeInteger(asked) && asked > 0)) return asked;
  throw new ArgumentError({ argument: 'maxConcurrency', expected: 'a positive integer', actual: String(asked) });
}
