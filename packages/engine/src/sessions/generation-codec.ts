/** The state of a generation as JSON and sections of a session file. */
import { bytesSection, type JsonValue, type SessionSection } from '@winnow/kv-cache';
import type { DecoderConfig } from '@winnow/models';
import { createRng, describeValue, isRecord, type RngState } from '@winnow/tensor';
import { textOf } from '../generation/constraint.js';
import { lastingOptions, type GenerationState, type LastingOptions } from '../generation/state.js';
import { overflowPolicies } from '../generation/overflow.js';
import { samplingRules, type Sampling } from '../generation/sampling-options.js';

export function encodeGeneration(state: GenerationState): { json: JsonValue; sections: readonly SessionSection[] } {
  const { prompt, numConstrained, chosen, sampling, options, hasEnded } = state;
  return {
    json: {
      sampling: { ...sampling },
      options: {
        ...options,
        ...(options.grammar === undefined ? {} : { grammar: textOf(options.grammar) }),
      } as unknown as JsonValue,
      rngState: state.rngState(),
      hasEnded,
      numConstrained,
    },
    sections: [bytesSection('prompt', prompt), bytesSection('chosen', Int32Array.from(chosen))],
  };
}

/**
 * @param readInts reads a section of integers
 * @param fail throws a `FormatError` for a field
 */
export async function decodeGeneration(
  json: JsonValue,
  readInts: (section: string) => Promise<Int32Array>,
  { vocabSize, imageTokenId }: Pick<DecoderConfig, 'vocabSize' | 'imageTokenId'>,
  fail: (field: string, message: string) => never,
): Promise<GenerationState | undefined> {
  if (json === null) return undefined;
  const { sampling, options, rngState, hasEnded, numConstrained = 0 } = json as Readonly<Record<string, JsonValue>>;
  const prompt = await readInts('prompt');
  const chosen = await readInts('chosen');
  if (prompt.length === 0 || chosen.length === 0) fail('generation', 'expected a prompt and a chosen token');
  const minId = imageTokenId === undefined ? 0 : -Infinity; // rows of images have negative ids
  const wrong = [
    ...prompt.filter((id) => id < minId || id >= vocabSize),
    ...chosen.filter((id) => id < 0 || id >= vocabSize),
  ];
  for (const id of wrong.slice(0, 1)) {
    fail('generation', `expected token ids below ${vocabSize}, got ${id}`);
  }
  if (!Number.isSafeInteger(numConstrained) || Number(numConstrained) < 0 || Number(numConstrained) > prompt.length) {
    fail('generation.numConstrained', `expected at most ${prompt.length}, got ${JSON.stringify(numConstrained)}`);
  }
  try {
    createRng(0).restore(rngState as unknown as RngState);
  } catch (error) {
    fail('generation.rngState', String(error));
  }
  const state = rngState as unknown as RngState;
  return {
    prompt,
    numConstrained: Number(numConstrained),
    chosen: Array.from(chosen),
    sampling: checkedSampling(sampling ?? null, fail),
    options: checkedOptions(options ?? null, fail),
    rngState: () => state,
    hasEnded: hasEnded === true,
  };
}

function checkedSampling(json: JsonValue, fail: (field: string, message: string) => never): Sampling {
  const values = (json ?? {}) as Readonly<Record<string, JsonValue>>;
  const names = Object.keys(samplingRules) as (keyof Sampling)[];
  const entries = names.map((name) => {
    const value = values[name];
    const [expected, isValid] = samplingRules[name];
    if (typeof value !== 'number' || !Number.isFinite(value) || !isValid(value)) {
      fail(`generation.sampling.${name}`, `expected ${expected}, got ${describeValue(value)}`);
    }
    return [name, value];
  });
  return Object.fromEntries(entries) as Sampling;
}

function isSpanLimit(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { begin, end, maxTokens } = value;
  const areTexts = typeof end === 'string' && (begin === undefined || typeof begin === 'string');
  return areTexts && Number.isSafeInteger(maxTokens);
}

function checkedOptions(json: JsonValue, fail: (field: string, message: string) => never): LastingOptions {
  const options = (json ?? {}) as LastingOptions;
  const { stop, ignoreEos, numTopLogprobs, logitBias, overflow, grammar, jsonSchema, showTokens, spanLimit } = options;
  const isValid =
    (stop === undefined || (Array.isArray(stop) && stop.every((text) => typeof text === 'string' && text !== ''))) &&
    (ignoreEos === undefined || typeof ignoreEos === 'boolean') &&
    (numTopLogprobs === undefined || Number.isSafeInteger(numTopLogprobs)) &&
    (logitBias === undefined || (isRecord(logitBias) && Object.values(logitBias).every(Number.isFinite))) &&
    (overflow === undefined || overflowPolicies.includes(overflow)) &&
    (grammar === undefined || typeof grammar === 'string') &&
    (jsonSchema === undefined || typeof jsonSchema === 'boolean' || isRecord(jsonSchema)) &&
    (showTokens === undefined || (Array.isArray(showTokens) && showTokens.every((text) => typeof text === 'string'))) &&
    (spanLimit === undefined || isSpanLimit(spanLimit));
  if (!isValid) fail('generation.options', `unexpected values: ${JSON.stringify(json)}`);
  return lastingOptions(options);
}
