/** The state of a generation as JSON and sections of a session file. */
import { bytesSection, type JsonValue, type SessionSection } from '@winnow/kv-cache';
import { createRng, type RngState } from '@winnow/tensor';
import { lastingOptions, type GenerationState, type LastingOptions } from './generation-state.js';
import { overflowPolicies } from './overflow.js';
import { samplingRules, type Sampling } from './sampling-options.js';

export function encodeGeneration(state: GenerationState): { json: JsonValue; sections: readonly SessionSection[] } {
  const { prompt, chosen, sampling, options, hasEnded } = state;
  return {
    json: { sampling: { ...sampling }, options: { ...options }, rngState: state.rngState(), hasEnded },
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
  vocabSize: number,
  fail: (field: string, message: string) => never,
): Promise<GenerationState | undefined> {
  if (json === null) return undefined;
  const { sampling, options, rngState, hasEnded } = json as Readonly<Record<string, JsonValue>>;
  const prompt = await readInts('prompt');
  const chosen = await readInts('chosen');
  if (prompt.length === 0 || chosen.length === 0) fail('generation', 'expected a prompt and a chosen token');
  for (const id of [prompt, chosen].flatMap((ids) => ids.find((value) => value < 0 || value >= vocabSize) ?? [])) {
    fail('generation', `expected token ids below ${vocabSize}, got ${id}`);
  }
  try {
    createRng(0).restore(rngState as unknown as RngState);
  } catch (error) {
    fail('generation.rngState', String(error));
  }
  const state = rngState as unknown as RngState;
  return {
    prompt,
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
      fail(`generation.sampling.${name}`, `expected ${expected}, got ${JSON.stringify(value)}`);
    }
    return [name, value];
  });
  return Object.fromEntries(entries) as Sampling;
}

function checkedOptions(json: JsonValue, fail: (field: string, message: string) => never): LastingOptions {
  const options = (json ?? {}) as LastingOptions;
  const { stop, ignoreEos, numTopLogprobs, overflow } = options;
  const isValid =
    (stop === undefined || (Array.isArray(stop) && stop.every((text) => typeof text === 'string' && text !== ''))) &&
    (ignoreEos === undefined || typeof ignoreEos === 'boolean') &&
    (numTopLogprobs === undefined || Number.isSafeInteger(numTopLogprobs)) &&
    (overflow === undefined || overflowPolicies.includes(overflow));
  if (!isValid) fail('generation.options', `unexpected values: ${JSON.stringify(json)}`);
  return lastingOptions(options);
}
