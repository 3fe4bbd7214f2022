/** Shapes of well-known models with recommended windows. */
import { ArgumentError } from '@winnow/tensor';
import { parsePolicy } from './text.js';
import type { SubquadraticPolicy } from './kinds.js';

/**
 * A model with recommended windows for `subquadratic`. `kvCacheBytes` of `@winnow/kv-cache` computes the size of its KV
 * cache.
 */
export interface ModelPreset {
  readonly name: string;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** The smallest and the largest recommended window. */
  readonly windows: readonly [number, number];
}

const preset = (
  name: string,
  [numHeads, numKvHeads]: readonly [number, number],
  numLayers: number,
  headDim: number,
  windows: readonly [number, number],
): ModelPreset => ({ name, numHeads, numKvHeads, numLayers, headDim, windows });

/** Phi-2 to SmolLM2, with the head counts, layers and head sizes of their published configurations. */
export const modelPresets: readonly ModelPreset[] = [
  preset('phi-2', [32, 32], 32, 80, [128, 128]),
  preset('mistral-7b', [32, 8], 32, 128, [128, 256]),
  preset('llama-3-8b', [32, 8], 32, 128, [128, 256]),
  preset('llama-3.2-1b', [32, 8], 16, 64, [64, 128]),
  preset('tinyllama-1.1b', [32, 4], 22, 64, [64, 64]),
  preset('smollm2-135m', [9, 3], 30, 64, [64, 128]),
];

/** The subquadratic policy of a preset: its largest window, defaults otherwise. @throws {ArgumentError} unknown name */
export function presetPolicy(name: string): SubquadraticPolicy {
  const found = modelPresets.find((candidate) => candidate.name === name);
  if (found === undefined) {
    const expected = modelPresets.map((candidate) => candidate.name).join(' | ');
    throw new ArgumentError({ argument: 'preset', expected, actual: name });
  }
  return parsePolicy(`subquadratic:window=${found.windows[1]}`) as SubquadraticPolicy;
}
